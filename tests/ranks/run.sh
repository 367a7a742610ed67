#!/bin/sh
# Trainers of several ranks, as processes under mpirun: results, checkpoints, messages, and errors.  Half of the tests
# mostly wait for time-outs and for mpirun, so two halves run in parallel.
cd "$(dirname "$0")/../.." || exit 2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
/usr/bin/python3 -m pytest -q -p no:cacheprovider tests/ranks/test_layouts.py >"$log" 2>&1 &
layouts=$!
status=0
/usr/bin/python3 -m pytest -q -p no:cacheprovider tests/ranks --ignore=tests/ranks/test_layouts.py || status=1
wait "$layouts" || status=1
cat "$log"
exit "$status"
