#!/bin/sh
# sanitize.sh FLAGS -- the runtime for GPUs under sanitizers, on the emulated device: one rank, and two whose messages are
# put together from parts.  The emulator is not under them: ASan does not follow its fibers, and warns that it does not.
#
#   tests/device/sanitize.sh '-fsanitize=address,undefined'      BUILD as for the tests; SANITIZED: where libmpcrt_cuda.a has
#                                                                been built with these flags
set -eu
cd "$(dirname "$0")/../.."
flags=$1 root=$(pwd) build=${BUILD:-build} out=${SANITIZED:-${BUILD:-build}/sanitize}
[ -e "$build/libmpcrt_cuda.a" ] || exit 0
sh tests/device/build.sh
case $build in /*) home=$build/device ;; *) home=$root/$build/device ;; esac
train() # NAME RANKS OPTION... -- of mpc compile
{
    name=$1 ranks=$2
    shift 2
    "$build/mpc" compile "examples/$name.mdl" --target=cuda --no-cc --set train.batch=8 --set train.microbatch=4 \
        -D layers=2 "$@" -o "$out/$name" >"$out/log"
    # shellcheck disable=SC2086
    gcc -std=gnu17 -O1 -g $flags -rdynamic -fopenmp -Iruntime "-I$out/$name" -o "$out/$name/trainer" \
        "$out/$name/trainer.c" "$out/libmpcrt_cuda.a" "$home/lib64/libcudart_static.a" -lcjson -lcrypto -lm
    mkdir -p "$out/$name/messages"
    # The emulated device has a handler of SIGSEGV of its own.
    env "CUDA_HOME=$home" ASAN_OPTIONS=detect_leaks=0:handle_segv=0 OMP_NUM_THREADS=1 "EMULATED_GPUS=$ranks" \
        "EMULATED_MESSAGES=$out/$name/messages" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        timeout 600 mpirun --oversubscribe --bind-to none -n "$ranks" "$out/$name/trainer" --kernel-cache "$out/kernels" \
        --data LICENSE --data-format bytes --steps 3 --eval-data LICENSE --eval-every 2 --eval-batches 1 \
        --save "$out/$name/saved" --log "$out/$name/steps" --trace "$out/$name/trace.json" --overwrite >"$out/log" 2>&1 ||
        { cat "$out/log"; exit 1; }
}
train gpt2 1 -D embed=40 -D heads=5 -D seq=16 -D vocab=250 --set train.precision=bf16
train llama 2 --mesh cp=2 -D embed=32 -D kv_heads=2 -D group=2 -D head=8 -D ff=56 -D seq=20 -D vocab=256
