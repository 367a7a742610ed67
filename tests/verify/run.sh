#!/bin/sh
# No pass changes the results of a program: the examples under many layouts, and random models under random ones.
exec /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/verify
