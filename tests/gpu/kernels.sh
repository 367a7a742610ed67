#!/bin/sh
# kernels.sh -- every kernel of tests/cuda beside the interpreter, on a GPU.
#
#   tests/gpu/kernels.sh [FILE.mir ...]     CC, BUILD, CUDA_HOME
#   tests/gpu/kernels.sh --bundle FOLDER    only writes what does it and its programs there: execute_gpu PROGRAM.mir runs
#                                           in that folder, which needs a copy of runtime/'s headers
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-gcc}
MPC=${BUILD:-build}/mpc
export BUILD=${BUILD:-build}/cuda
home=${CUDA_HOME:-/usr/local/cuda}
include=${CUDA_INCLUDE:-$home/include}
tests/cuda/build.sh
objects=$(BUILD=${BUILD%/*} sh tests/objects.sh ir codegen)
root=$PWD to=$BUILD/execute_gpu
if [ "${1:-}" = --bundle ]; then
    root=. to=$2/execute_gpu
fi
# shellcheck disable=SC2086
$CC -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -g -rdynamic -I. -Iir -Icodegen -Iruntime \
    -Itests -Itests/cuda -isystem "$include" "-DMPC_ROOT=\"$root\"" tests/gpu/machine.c tests/cuda/execute.c \
    tests/cuda/memory.c tests/cuda/moved.c tests/cuda/ranks.c $objects -o "$to" "-Wl,-rpath,$home/lib64" \
    "-L$home/lib64" -lcudart_static -lnvrtc -ldl -lrt -lpthread -lm
if [ "${1:-}" = --bundle ]; then
    export PROGRAMS="$2" BUILD="${BUILD%/cuda}"
    exec sh tests/cuda/run.sh
fi
EXECUTE=$BUILD/execute_gpu
export EXECUTE BUILD="${BUILD%/cuda}" MPC
exec sh tests/cuda/run.sh "$@"
