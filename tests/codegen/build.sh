#!/bin/sh
# build.sh -- builds tests/codegen/execute.
#
#   tests/codegen/build.sh      CC, SANITIZE=1 (address and undefined behaviour), BUILD (where to)
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
BUILD=${BUILD:-build/codegen-tests}
FLAGS="-std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -g -I. -Iir -Icodegen -I$BUILD -fopenmp"
[ "$CC" = gcc ] && FLAGS="$FLAGS -Wshadow=local"
if [ "${SANITIZE:-0}" = 1 ]; then
    FLAGS="$FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined -DARENA_DEBUG"
fi
mkdir -p "$BUILD"
codegen/text/embed.sh codegen/text/templates/*.c > "$BUILD/templates.h.new"
cmp -s "$BUILD/templates.h.new" "$BUILD/templates.h" || mv "$BUILD/templates.h.new" "$BUILD/templates.h"
objects=
for source in ir/*.c ir/*/*.c codegen/*.c codegen/text/*.c codegen/row/*.c codegen/product/*.c codegen/library/*.c; do
    object=$BUILD/$(basename "$source" .c).o
    objects="$objects $object"
    if [ ! -e "$object" ] || [ -n "$(find ir codegen "$BUILD/templates.h" \( -name '*.h' -o -name '*.def' -o -path "$source" \) -newer "$object")" ]; then
        # shellcheck disable=SC2086
        $CC $FLAGS -c "$source" -o "$object"
    fi
done
# shellcheck disable=SC2086
$CC $FLAGS -rdynamic "-DMPC_ROOT=\"$PWD\"" tests/codegen/execute.c $objects -o "$BUILD/execute" -ldl -lm
# shellcheck disable=SC2086
$CC $FLAGS tests/codegen/test_fill.c $objects -o "$BUILD/test_fill" -lcmocka -lm
