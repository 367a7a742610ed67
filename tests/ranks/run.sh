#!/bin/sh
# Trainers of several ranks, as processes: results, checkpoints, messages, and errors.
# reaches: compiler trainers examples tests/runtime
cd "$(dirname "$0")/../.." || exit 2
status=0
sh tests/pytest.sh -n 0 tests/ranks/test_collectives.py || status=1 # alone: under MPI, processes that wait keep the processor
sh tests/pytest.sh -n 3 --dist loadfile tests/ranks --ignore tests/ranks/test_collectives.py || status=1
exit $status
