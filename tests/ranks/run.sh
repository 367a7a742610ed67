#!/bin/sh
# Trainers of several ranks, as processes under mpirun: what they compute, save, send, and say when something fails.
# Half of the tests wait for time-outs and for mpirun most of the time, so two halves run side by side.
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
