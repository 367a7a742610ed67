#!/bin/sh
# No pass changes the results of a program: the examples under many layouts, and random models under random ones.
# reaches: compiler examples tests/oracle
exec sh tests/pytest.sh tests/verify
