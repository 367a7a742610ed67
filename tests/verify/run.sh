#!/bin/sh
# No pass changes the results of a program: the examples under many layouts, and random models under random ones.
exec sh tests/pytest.sh tests/verify
