#!/bin/sh
# Bugs of other training systems, injected into programs and trainers: listed in README.md.  Trainers mostly wait for
# each other, so two halves of their tests run in parallel, together with the injected programs.
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
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
half=tests/museum/test_planted.py:tests/museum/test_checkpoint_parts.py:tests/museum/test_resume.py
# shellcheck disable=SC2046
/usr/bin/python3 -m pytest -q -p no:cacheprovider $(echo "$half" | tr : ' ') >"$folder/log" 2>&1 &
other=$!
status=0
# shellcheck disable=SC2046
/usr/bin/python3 -m pytest -q -p no:cacheprovider tests/museum $(echo ":$half" | sed 's/:/ --ignore=/g') || status=1
wait "$other" || status=1
cat "$folder/log"
exit "$status"
