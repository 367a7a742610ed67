#!/bin/sh
# make check-gpu -- what only a real GPU can show; `make check` runs all that can be run without.
#
#   trainers    those of tests/device, on the GPU: each example beside a processor's, layouts with several ranks on it
#   PyTorch     tests/oracle/test_models.py with trainers for the GPU: losses, norms and final weights
#   kernels     each beside the interpreter (tests/gpu/kernels.sh)
#   sanitizer   compute-sanitizer over two steps: accesses, and races in shared memory
#   memory      what the GPU has less of while a trainer runs is what was planned (tests/gpu/test_memory.py)
#
# PYTHON: one with pytest, and for the second part a PyTorch that sees the GPU; by default the first that is found.
set -u
cd "$(dirname "$0")/../.." || exit 2
if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU 0'; then
    echo "make check-gpu: there is no GPU on this machine (nvidia-smi lists none); make check runs all that needs none"
    exit 1
fi
BUILD=${BUILD:-build}
[ -e "$BUILD/libmpcrt_cuda.a" ] || { echo "make check-gpu: no runtime for GPUs was built (set CUDA_HOME)"; exit 1; }
export MPC_DEVICE=gpu
failed=
sees_gpu() # PYTHON
{
    "$1" -c 'import pytest, torch; assert torch.cuda.is_available()' 2>/dev/null
}
if [ -z "${PYTHON:-}" ]; then
    PYTHON=/usr/bin/python3
    sees_gpu python3 && PYTHON=python3
fi
sees_gpu "$PYTHON" || echo "make check-gpu: $PYTHON has no PyTorch that sees the GPU, or no pytest: PYTHON=... names another"
part() # NAME COMMAND...
{
    name=$1
    shift
    printf '%s\n' "--- $name"
    "$@" || failed="$failed $name"
}
sanitize() # TOOL
{
    folder=$(mktemp -d)
    "$BUILD/mpc" compile examples/chars.mdl -D layers=2 -D seq=16 -D embed=32 -D heads=2 --set train.batch=2 \
        --set train.microbatch=2 --target=cuda -o "$folder" >"$folder/log" 2>&1 || { cat "$folder/log"; return 1; }
    compute-sanitizer --tool "$1" --error-exitcode 9 "$folder/trainer" --data LICENSE --steps 2 --no-graph
    status=$?
    rm -r "$folder"
    return $status
}
part trainers "$PYTHON" -m pytest -q -p no:cacheprovider tests/device
part PyTorch "$PYTHON" -m pytest -q -p no:cacheprovider tests/oracle/test_models.py
part kernels sh tests/gpu/kernels.sh
part memory "$PYTHON" -m pytest -q -p no:cacheprovider tests/gpu
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
if command -v compute-sanitizer >/dev/null; then
    part memcheck sanitize memcheck
    part racecheck sanitize racecheck
else
    echo "compute-sanitizer is not installed"
    failed="$failed compute-sanitizer"
fi
[ -z "$failed" ] && echo "all parts passed" && exit 0
echo "failed:$failed"
exit 1
