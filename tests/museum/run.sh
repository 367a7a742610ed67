#!/bin/sh
# Bugs of other training systems, planted into what mpc makes: README.md lists them.  The trainers wait for mpirun most of
# the time, so they run beside the planted programs.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
mkdir -p "$build/museum"
# shellcheck disable=SC2086
${CC:-gcc} -std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -Iir -Ipasses \
    -Itests/mutate tests/museum/judge.c tests/mutate/noticed.c "$build/passes/meaning.o" "$build"/ir/*.o -lm \
    -o "$build/museum/judge"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
/usr/bin/python3 -m pytest -q -p no:cacheprovider tests/museum/test_planted.py >"$log" 2>&1 &
planted=$!
status=0
/usr/bin/python3 -m pytest -q -p no:cacheprovider tests/museum --ignore=tests/museum/test_planted.py || status=1
wait "$planted" || status=1
cat "$log"
exit "$status"
