#!/bin/sh
# build.sh -- builds tests/codegen/execute, with the objects of mpc that `make` has built.
#
#   tests/codegen/build.sh      CC, BUILD (where to, in the folder of those objects)
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
BUILD=${BUILD:-build/codegen-tests}
FLAGS="-std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -g -I. -Iir -Icodegen -fopenmp"
[ "$CC" = gcc ] && FLAGS="$FLAGS -Wshadow=local"
mkdir -p "$BUILD"
objects=$(BUILD=${BUILD%/*} sh tests/objects.sh ir codegen)
# shellcheck disable=SC2086
$CC $FLAGS -rdynamic "-DMPC_ROOT=\"$PWD\"" "-DMPC_LIBRARY=\"$PWD/${BUILD%/*}/runtime/kernels/library.*.o\"" tests/codegen/execute.c $objects -o "$BUILD/execute" -ldl -lm
# shellcheck disable=SC2086
$CC $FLAGS tests/codegen/walk.c $objects -o "$BUILD/walk" -lm
# shellcheck disable=SC2086
$CC $FLAGS tests/codegen/test_fill.c $objects -o "$BUILD/test_fill" -lcmocka -lm
