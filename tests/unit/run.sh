#!/bin/sh
# run.sh -- builds and runs the unit tests: tests/unit/test_NAME.c, all or those named, with the objects of mpc that `make`
# has built.
#
#   tests/unit/run.sh [NAME ...]      CC, BUILD; SANITIZE=1: with the objects that tests/sanitize/run.sh has built
# reaches: compiler -frontend
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
export BUILD="${BUILD:-build}"
FLAGS="-std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -Wno-missing-field-initializers -I. -Iir -Ipasses -Icodegen -Idriver" optimize='-O1 -g'
if [ "${SANITIZE:-0}" = 1 ]; then
    FLAGS="$FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined -DARENA_DEBUG"
    optimize='-O0 -g1' # like the objects: compiling took longer than the tests
    [ "${ALL:-}" = 1 ] || FLAGS="$FLAGS -DSLOW"
    BUILD=$BUILD/sanitize
fi
mkdir -p "$BUILD/unit"

# What a test needs beside the IR.
beside() # NAME
{
    case $1 in
    autodiff)
        echo passes/training/activity.c passes/training/autodiff.c passes/training/step.c passes/training/step_update.c \
            passes/training/hoist.c passes/training/measures.c passes/layout/accumulator.c passes/simplify/cleanup.c ;;
    extent) echo codegen/extent.c codegen/text/names.c codegen/text/fill.c ;;
    rules) echo passes/simplify/rewrite.c passes/simplify/cleanup.c ;;
    share) echo passes/layout/stage_shares.c ;;
    timeline) echo driver/timeline*.c ;;
    esac
}

for name in ${*:-amount interp blocks region storage extent message exact operands gradients tangents sharding print_parse verify autodiff rules schedule share table timeline machine}; do
    # shellcheck disable=SC2046,SC2086
    $CC $FLAGS $optimize "tests/unit/test_$name.c" $(sh tests/objects.sh ir $(beside "$name")) -o "$BUILD/unit/test_$name" -lcmocka -lm
    "$BUILD/unit/test_$name"
done
