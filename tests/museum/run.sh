#!/bin/sh
# Bugs of other training systems, injected into programs and trainers: listed in README.md.
# reaches: compiler trainers examples tests/mutate tests/ranks tests/verify tests/report tests/runtime
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
mkdir -p "$build/museum"
# shellcheck disable=SC2046,SC2086
${CC:-gcc} -std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -Iir -Ipasses \
    -Itests/mutate tests/museum/judge.c tests/mutate/noticed.c $(sh tests/objects.sh passes/manager/observables.c ir) -lm \
    -o "$build/museum/judge"
exec sh tests/pytest.sh --dist loadfile tests/museum
