#!/bin/sh
# run.sh -- builds and runs the tests of products and kernels, as a trainer would be built.
#
#   tests/kernels/run.sh [NAME ...]      CC, EXTRA_CFLAGS, SANITIZE=1 (address and undefined behaviour)
set -eu
cd "$(dirname "$0")/../.."
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
FLAGS="-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wno-unused-parameter -O3 -march=native -fno-math-errno"
# clang says of each loop that calls expf or erff that it has no vectors of them; gcc does not know this warning.
FLAGS="$FLAGS -fno-trapping-math -fopenmp -Iruntime -Wno-pass-failed"
if [ "${SANITIZE:-0}" = 1 ]; then
    FLAGS="$FLAGS -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined"
fi
one() # NAME
{
    sources=tests/kernels/test_$1.c
    [ "$1" != product ] || sources="$sources runtime/cpu/product.c runtime/cpu/counted.c runtime/cpu/peak.c runtime/error.c"
    # shellcheck disable=SC2086
    ${CC:-gcc} $FLAGS ${EXTRA_CFLAGS:-} $sources -o "$built/test_$1" -ldnnl -lm &&
        "$built/test_$1" && { [ "$1" != product ] || MPC_EMULATE_BF16=1 "$built/test_$1"; }
}

names=${*:-element rows tile attend product}
for name in $names; do
    one "$name" >"$built/$name.log" 2>&1 || touch "$built/$name.failed" &
done
wait
for name in $names; do
    cat "$built/$name.log"
done
! ls "$built"/*.failed >/dev/null 2>&1
