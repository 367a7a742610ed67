#!/bin/sh
# run.sh -- builds and runs the micro-benchmark of products and attention.
#
#   bench/kernels/run.sh [WORD]      CC, EXTRA_CFLAGS; only lines that contain WORD
set -eu
cd "$(dirname "$0")/../.."
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
# The flags of a trainer (kernels) and of the runtime's library (products).
# shellcheck disable=SC2086
${CC:-gcc} -std=gnu17 -D_GNU_SOURCE -O3 -march=native -fno-math-errno -fno-trapping-math -fopenmp ${EXTRA_CFLAGS:-} -Iruntime \
    bench/kernels/bench.c runtime/cpu/product.c runtime/cpu/product_kernel.c runtime/processor_has.c runtime/cpu/onednn.c runtime/cpu/counted.c runtime/cpu/peak.c runtime/error.c runtime/visible.c -o "$built/bench" -ldnnl -lmvec -lm
"$built/bench" "$@"
