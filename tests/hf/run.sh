#!/bin/sh
# mpc import and mpc export: maps and their errors; and, where `make hf` has installed transformers, its own models.
# reaches: compiler driver/hf trainers examples packaging tests/models docs/models.md
cd "$(dirname "$0")/../.." || exit 2
python="${BUILD:-build}/hf/bin/python"
[ -x "$python" ] || python=/usr/bin/python3
PYTHON=$python exec sh tests/pytest.sh tests/hf ${BLESS:+-n 0}  # one process has all rows of the table
