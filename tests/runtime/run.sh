#!/bin/sh
# The runtime with a small handwritten program: data, order, checkpoints, messages, signals.
cd "$(dirname "$0")/../.." || exit 2
exec /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/runtime
