#!/bin/sh
# build.sh -- builds tests/cuda/execute, and the tests of the emulator and of single kernels.
#
#   tests/cuda/build.sh      CC, SANITIZE=1 (address and undefined behaviour), BUILD (where to)
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
BUILD=${BUILD:-build/cuda}
FLAGS="-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -g -I. -Iir -Icodegen -Iruntime -I$BUILD -Itests/cuda"
mkdir -p "$BUILD"
codegen/text/embed.sh codegen/text/templates/*.c > "$BUILD/templates.h.new"
cmp -s "$BUILD/templates.h.new" "$BUILD/templates.h" || mv "$BUILD/templates.h.new" "$BUILD/templates.h"
objects= stale=
for source in ir/*.c ir/*/*.c codegen/*.c codegen/text/*.c codegen/row/*.c codegen/product/*.c codegen/library/*.c \
    codegen/cuda/*.c tests/cuda/emulator/*.c; do
    object=$BUILD/$(basename "$source" .c).o
    objects="$objects $object"
    if [ ! -e "$object" ] || [ -n "$(find ir codegen tests/cuda/emulator "$BUILD/templates.h" \( -name '*.h' -o -name '*.def' -o -path "$source" \) -newer "$object")" ]; then
        stale="$stale $source"
    fi
done
export CC FLAGS BUILD
# shellcheck disable=SC2016
echo $stale | xargs -r -n 1 -P 2 sh -c '$CC $FLAGS -c "$1" -o "$BUILD/$(basename "$1" .c).o"' --
# shellcheck disable=SC2086
$CC $FLAGS -rdynamic "-DMPC_ROOT=\"$PWD\"" tests/cuda/execute.c tests/cuda/machine.c tests/cuda/memory.c tests/cuda/moved.c tests/cuda/ranks.c $objects -o "$BUILD/execute" -ldl -lm
for test in test_emulator test_bad_hopper test_counted test_hopper; do
    # shellcheck disable=SC2086
    $CC $FLAGS -rdynamic tests/cuda/$test.c tests/cuda/emulator/*.c -o "$BUILD/$test" -ldl -lm
done
for kernels in bad_kernels bad_hopper counted_kernels hopper_kernels; do
    ${KERNEL_CXX:-g++} -std=gnu++20 -O1 -fPIC -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -Wall -Wextra \
        -Wno-unknown-pragmas -Wno-unused-parameter -Wno-psabi -Itests/cuda/emulator -Itests/cuda -Iruntime/cuda -Iruntime \
        -c tests/cuda/$kernels.cpp -o "$BUILD/$kernels.o"
    ${KERNEL_CXX:-g++} -shared -o "$BUILD/$kernels.so" "$BUILD/$kernels.o"
done
