#!/bin/sh
# Bugs of other training systems, injected into programs and trainers: listed in README.md.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
mkdir -p "$build/museum"
objects() # FOLDER...
{
    find "$@" -name '*.c' ! -path '*/templates/*' | sed "s|\(.*\)c$|$build/\1o|"
}
# shellcheck disable=SC2046,SC2086
${CC:-gcc} -std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -Iir -Ipasses \
    -Itests/mutate tests/museum/judge.c tests/mutate/noticed.c "$build/passes/manager/observables.o" $(objects ir) -lm \
    -o "$build/museum/judge"
exec sh tests/pytest.sh --dist loadfile tests/museum
