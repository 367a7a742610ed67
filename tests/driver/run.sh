#!/bin/sh
# The mpc command, and the trainers that it writes.
exec sh tests/pytest.sh tests/driver
