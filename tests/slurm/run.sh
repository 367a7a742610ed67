#!/bin/sh
# Trainers and mpc run under Slurm: a cluster of two nodes on this machine.  With ALL=1, in minutes; as root.
# reaches: compiler trainers examples
cd "$(dirname "$0")/../.." || exit 2
[ "${ALL:-}" = 1 ] || { echo "only make check-all starts a cluster"; exit 0; }
exec sh tests/pytest.sh -n 0 tests/slurm "$@"
