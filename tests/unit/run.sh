#!/bin/sh
# run.sh -- builds and runs the unit tests of the IR: tests/unit/test_NAME.c, all or those named.
#
#   tests/unit/run.sh [NAME ...]      CC, SANITIZE=1 (address and undefined behaviour), BUILD (where to)
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
BUILD=${BUILD:-build}/unit
FLAGS="-std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -g -I. -Iir -Ipasses -Icodegen -Idriver"
if [ "${SANITIZE:-0}" = 1 ]; then
    FLAGS="$FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined -DARENA_DEBUG"
    BUILD=$BUILD-sanitize
fi
mkdir -p "$BUILD"

# compile SOURCE ...: sets $objects to the names of the objects; rebuilds those older than any header or source
compile() {
    for source; do
        object=$BUILD/$(basename "$source" .c).o
        objects="$objects $object"
        if [ ! -e "$object" ] || [ -n "$(find ir passes codegen driver -name '*.[ch]' -newer "$object" -o -name '*.def' -newer "$object")" ]; then
            # shellcheck disable=SC2086
            $CC $FLAGS -c "$source" -o "$object"
        fi
    done
}

for name in ${*:-interp region storage extent message exact gradients tangents sharding print_parse verify autodiff rules schedule share table timeline}; do
    objects=
    compile ir/*.c ir/*/*.c
    if [ "$name" = autodiff ]; then
        compile passes/training/activity.c passes/training/autodiff.c passes/training/step.c passes/training/step_update.c \
            passes/training/hoist.c passes/training/measures.c passes/layout/accumulator.c passes/simplify/cleanup.c
    fi
    if [ "$name" = extent ]; then
        compile codegen/extent.c codegen/text/names.c codegen/text/fill.c
    fi
    if [ "$name" = rules ]; then
        compile passes/simplify/rewrite.c passes/simplify/cleanup.c
    fi
    if [ "$name" = share ]; then
        compile passes/layout/share_copies.c
    fi
    if [ "$name" = timeline ]; then
        compile driver/timeline*.c
    fi
    # shellcheck disable=SC2086
    $CC $FLAGS "tests/unit/test_$name.c" $objects -o "$BUILD/test_$name" -lcmocka -lm
    "$BUILD/test_$name"
done
