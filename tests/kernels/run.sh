#!/bin/sh
# run.sh -- builds and runs the tests of products and kernels, as a trainer would be built.
#
#   tests/kernels/run.sh [NAME ...]      CC, EXTRA_CFLAGS, SANITIZE=1 (address and undefined behaviour)
# reaches: trainers -runtime/net -runtime/data -runtime/trainer -runtime/store -runtime/mesh
set -eu
cd "$(dirname "$0")/../.."
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
FLAGS="-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wno-unused-parameter -Wno-missing-field-initializers -O3 -march=native -fno-math-errno"
# clang says of each loop that calls expf or erff that it has no vectors of them; gcc does not know this warning.
FLAGS="$FLAGS -fno-trapping-math -fopenmp -Iruntime -Wno-pass-failed"
if [ "${SANITIZE:-0}" = 1 ]; then
    FLAGS="$FLAGS -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined"
fi
one() # NAME
{
    sources=tests/kernels/test_$1.c
    [ "$1" != product ] || sources="$sources runtime/cpu/product.c runtime/cpu/product_kernel.c runtime/processor_has.c runtime/cpu/onednn.c runtime/cpu/counted.c runtime/cpu/peak.c runtime/error.c runtime/visible.c"
    # shellcheck disable=SC2086
    ${CC:-gcc} $FLAGS ${EXTRA_CFLAGS:-} $sources -o "$built/test_$1" -ldnnl -lm &&
        "$built/test_$1" && { [ "$1" != product ] || { MPC_EMULATE_BF16=1 "$built/test_$1" && ONEDNN_MAX_CPU_ISA=AVX2 "$built/test_$1" "product, AVX2"; }; }
}

# Attention as trainers for other processors of this kind have it.
level() # MARCH
{
    # shellcheck disable=SC2086
    ${CC:-gcc} $FLAGS -O2 "-march=$1" ${EXTRA_CFLAGS:-} tests/kernels/test_attend.c -o "$built/attend_$1" -lm &&
        "$built/attend_$1"
}

names=${*:-element rows tile attend product}
levels=
case " $names " in *" attend "*)
    case $(uname -m):$(${CC:-gcc} -march=native -dM -E - </dev/null) in
    x86_64:*__AVX512VL__*) levels='x86-64 x86-64-v3' ;;
    x86_64:*__AVX2__*) levels='x86-64' ;;
    esac
    ;;
esac
for name in $names; do
    one "$name" >"$built/$name.log" 2>&1 || touch "$built/$name.failed" &
done
for level in $levels; do
    level "$level" >"$built/$level.log" 2>&1 || touch "$built/$level.failed" &
done
wait
for name in $names $levels; do
    cat "$built/$name.log"
done
! ls "$built"/*.failed >/dev/null 2>&1
