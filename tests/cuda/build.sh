#!/bin/sh
# build.sh -- builds tests/cuda/execute, and the tests of the emulator and of single kernels, with the objects of mpc that
# `make` has built.
#
#   tests/cuda/build.sh      CC, BUILD (where to, in the folder of those objects)
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
BUILD=${BUILD:-build/cuda}
FLAGS="-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wno-unused-parameter -O2 -g -I. -Iir -Icodegen -Iruntime -Itests/cuda"
mkdir -p "$BUILD"
rm -f "$BUILD"/emulator*.o
export CC FLAGS BUILD
# shellcheck disable=SC2016
printf '%s\n' tests/cuda/emulator/*.c | xargs -n 1 -P 2 sh -c '$CC $FLAGS -c "$1" -o "$BUILD/$(basename "$1" .c).o"' --
objects=$(BUILD=${BUILD%/*} sh tests/objects.sh ir codegen)
# shellcheck disable=SC2086
$CC $FLAGS -rdynamic "-DMPC_ROOT=\"$PWD\"" tests/cuda/execute.c tests/cuda/machine.c tests/cuda/memory.c tests/cuda/moved.c tests/cuda/ranks.c \
    "$BUILD"/emulator*.o $objects -o "$BUILD/execute" -ldl -lm
for test in test_emulator test_bad_hopper test_counted test_hopper; do
    # shellcheck disable=SC2086
    $CC $FLAGS -rdynamic tests/cuda/$test.c "$BUILD"/emulator*.o -o "$BUILD/$test" -ldl -lm
done
for kernels in bad_kernels bad_hopper counted_kernels hopper_kernels; do
    ${KERNEL_CXX:-g++} -std=gnu++20 -Og -DEMULATOR_CALLS -fPIC -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -Wall -Wextra \
        -Wno-unknown-pragmas -Wno-unused-parameter -Wno-psabi -Itests/cuda/emulator -Itests/cuda -Iruntime/cuda -Iruntime \
        -c tests/cuda/$kernels.cpp -o "$BUILD/$kernels.o"
    ${KERNEL_CXX:-g++} -shared -o "$BUILD/$kernels.so" "$BUILD/$kernels.o"
done
