#!/bin/sh
# Whole trainers for GPUs on an emulated one: the same losses as on a processor, and errors about missing libraries.
# reaches: compiler codegen/cuda trainers runtime/cuda examples bench tests/cuda tests/gpu tests/ranks
cd "$(dirname "$0")/../.." || exit 2
BUILD=${BUILD:-build}
if [ ! -e "$BUILD/libmpcrt_cuda.a" ]; then
    echo "not run: no headers of CUDA, so no runtime for GPUs was built (set CUDA_HOME)"
    exit 0
fi
BUILD=$BUILD sh tests/device/build.sh || exit 1
exec sh tests/pytest.sh --dist loadgroup tests/device
