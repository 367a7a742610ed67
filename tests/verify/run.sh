#!/bin/sh
# No pass changes the results of a program: the examples under many layouts, and random models under random ones.
# reaches: compiler examples tests/oracle
set -eu
cd "$(dirname "$0")/../.."
out=${BUILD:-build}/verify
mkdir -p "$out"
# shellcheck disable=SC2046
${CC:-gcc} -std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -Iir -Ipasses -Icodegen -I. \
    tests/verify/ends.c $(sh tests/objects.sh ir passes codegen) -lm -o "$out/ends"
exec sh tests/pytest.sh tests/verify
