#!/bin/sh
# build.sh -- builds the emulated device into $BUILD/device, a folder that stands in for CUDA's: CUDA_HOME=$BUILD/device
#
#   tests/device/build.sh      CC, BUILD (build), CUDA_INCLUDE (where CUDA's headers are)
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
mkdir -p "${BUILD:-build}/device"
out=$(cd "${BUILD:-build}/device" && pwd)
exec 9>"$out.lock"
flock 9 # groups that run side by side need it at the same time
include=${CUDA_INCLUDE:-/usr/local/cuda/include}
FLAGS="-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wno-unused-parameter -O3 -march=native -ffp-contract=off -g -fPIC -Itests/cuda -Itests/device -Iruntime -isystem $include"
# Compiled kernels are kept for the same headers and compiler.
kept=$out/kernels/$(cat tests/device/build.sh tests/cuda/emulator/*.*h runtime/*.h runtime/cuda/*.*h | { cat; ${KERNEL_CXX:-g++} --version; } |
    cksum | cut -d ' ' -f 1)
[ -d "$kept" ] || rm -rf "$out/kernels"
mkdir -p "$out/lib64" "$out/objects" "$kept"
# Groups that run it build it once; what NVRTC stands for has the folders in it.
sources=$(cat tests/device/*.* tests/cuda/emulator/*.* runtime/*.h runtime/*/*.h | { cat; echo "$FLAGS $PWD $kept"; $CC --version; } | cksum)
[ "$(cat "$out/built" 2>/dev/null)" != "$sources" ] || exit 0
rm -f "$out/built"
for source in tests/device/streams.c tests/device/graphs.c tests/device/cudart.c tests/cuda/emulator/*.c; do
    # shellcheck disable=SC2086
    $CC $FLAGS -c "$source" -o "$out/objects/$(basename "$source" .c).o"
done
# One object, so that what only the libraries below use is there for them, too.
ld -r -o "$out/objects/all.o" "$out"/objects/streams.o "$out"/objects/graphs.o "$out"/objects/cudart.o "$out"/objects/emulator*.o
rm -f "$out/lib64/libcudart_static.a"
ar rcs "$out/lib64/libcudart_static.a" "$out/objects/all.o"
major=$(sed -n 's/^#define CUDART_VERSION *\([0-9]*\)000*[0-9]*$/\1/p' "$include/cuda_runtime_api.h" | cut -c1-2)
# shellcheck disable=SC2086
$CC $FLAGS -shared "-DMPC_ROOT=\"$PWD\"" "-DMPC_KEPT=\"$kept\"" tests/device/nvrtc.c -o "$out/lib64/libnvrtc.so.$major"
# shellcheck disable=SC2086
$CC $FLAGS -shared tests/device/cublaslt.c -o "$out/lib64/libcublasLt.so.$major"
# shellcheck disable=SC2086
$CC $FLAGS -shared tests/device/cudnn.c -o "$out/lib64/libcudnn.so.9" -lm
if [ -e tests/device/nccl.c ]; then
    # shellcheck disable=SC2086
    $CC $FLAGS -shared tests/device/nccl.c -o "$out/lib64/libnccl.so.2"
fi
echo "$sources" >"$out/built"
