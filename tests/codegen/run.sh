#!/bin/sh
# run.sh -- tests of the C back end's kernels.
#
#   tests/codegen/run.sh [NAME ...]     names of tests/codegen/NAME.mir, or all.  CC, BUILD as for build.sh;
#                                       KERNEL_CC, KERNEL_FLAGS: what compiles the kernels; BLESS=1 writes golden files
#
# Templates; steps of kernels, walked without any text of theirs (walk.c); emitted C that clang-format leaves alone;
# golden files (golden/NAME.c); results equal to the interpreter's for 1, 2 and 3 threads.
# reaches: ir codegen -codegen/cuda trainers -runtime/net -runtime/data -runtime/trainer -runtime/store -runtime/mesh
# reaches: .clang-format
set -eu
cd "$(dirname "$0")/../.."
export BUILD=${BUILD:-build}/codegen-tests
tests/codegen/build.sh
"$BUILD/test_fill"
"$BUILD/walk" tests/codegen/*.mir > "$BUILD/walk.txt" || { cat "$BUILD/walk.txt"; exit 1; }
here=tests/codegen
names=${*:-$(cd $here && ls *.mir | sed 's/\.mir$//')}
failed=0
for name in $names; do
    "$BUILD/execute" -e $here/$name.mir > "$BUILD/$name.c"
    if command -v clang-format > /dev/null; then
        clang-format --style=file:.clang-format "$BUILD/$name.c" | diff "$BUILD/$name.c" - || failed=1
    fi
    if [ "${BLESS:-0}" = 1 ] && [ -e $here/golden/$name.c ]; then
        cp "$BUILD/$name.c" $here/golden/$name.c
    fi
    if [ -e $here/golden/$name.c ]; then
        diff $here/golden/$name.c "$BUILD/$name.c" || failed=1
    fi
    "$BUILD/execute" $here/$name.mir || failed=1
done
exit $failed
