#!/bin/sh
# run.sh -- builds and runs the unit tests: tests/unit/test_NAME.c, all or those named, with the objects of mpc that `make`
# has built.
#
#   tests/unit/run.sh [NAME ...]      CC, BUILD; SANITIZE=1: with the objects that tests/sanitize/run.sh has built
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
BUILD=${BUILD:-build}
FLAGS="-std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -g -I. -Iir -Ipasses -Icodegen -Idriver"
if [ "${SANITIZE:-0}" = 1 ]; then
    FLAGS="$FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined -DARENA_DEBUG"
    BUILD=$BUILD/sanitize
fi
mkdir -p "$BUILD/unit"

# What a test needs beside the IR.
beside() # NAME
{
    case $1 in
    autodiff)
        ls passes/training/activity.c passes/training/autodiff.c passes/training/step.c passes/training/step_update.c \
            passes/training/hoist.c passes/training/measures.c passes/layout/accumulator.c passes/simplify/cleanup.c ;;
    extent) ls codegen/extent.c codegen/text/names.c codegen/text/fill.c ;;
    rules) ls passes/simplify/rewrite.c passes/simplify/cleanup.c ;;
    share) ls passes/layout/share_copies.c ;;
    timeline) ls driver/timeline*.c ;;
    esac
}

for name in ${*:-interp region storage extent message exact gradients tangents sharding print_parse verify autodiff rules schedule share table timeline}; do
    objects=$(ls ir/*.c ir/*/*.c; beside "$name")
    objects=$(printf '%s\n' "$objects" | sed "s|^|$BUILD/|; s|c$|o|")
    # shellcheck disable=SC2086
    $CC $FLAGS "tests/unit/test_$name.c" $objects -o "$BUILD/unit/test_$name" -lcmocka -lm
    "$BUILD/unit/test_$name"
done
