#!/bin/sh
# No pass changes what a program computes: the examples under many layouts, and random models under random ones.
exec /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/verify
