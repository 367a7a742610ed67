#!/bin/sh
# How many injected faults are detected, and by which check.  MUTANTS=N: of each kind, in each program (default 2);
# MODELS=N: number of random programs (default 16, with ALL=1 24), from number MODELS_FIRST (default 0) on.
# reaches: compiler trainers examples tests/verify tests/report
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
out=$build/mutate
mkdir -p "$out"
# shellcheck disable=SC2046,SC2086
${CC:-gcc} -std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O2 -Iir -Ipasses -Icodegen -I. \
    -Itests/mutate tests/mutate/*.c $(sh tests/objects.sh ir passes codegen) -lm -o "$out/mutate"
# shellcheck disable=SC2046
${CC:-gcc} -std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -Iir \
    tests/mutate/schedule/certificate.c $(sh tests/objects.sh ir) -lm -o "$out/certificate"
${CC:-gcc} -std=gnu17 -D_DEFAULT_SOURCE -Wall -Wextra -Wpedantic -O1 -Iruntime -c tests/mutate/schedule/trainer.c -o "$out/trainer.o"
[ "${ALL:-}" = 1 ] && models=24 || models=16
status=0
/usr/bin/python3 tests/mutate/schedule/score.py "$out" "${MUTANTS:-2}" || status=1
/usr/bin/python3 tests/mutate/score.py "$out" "${MUTANTS:-2}" "${MODELS:-$models}" "${MODELS_FIRST:-0}" || status=1
exit $status
