#!/bin/sh
# The mpc command, and the trainers that it writes.
exec /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider tests/driver
