#!/bin/sh
# Trainers against PyTorch.
cd "$(dirname "$0")/../.." || exit 2
exec /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/oracle
