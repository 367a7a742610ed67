#!/bin/sh
# The compiler and the runtime under ASan and UBSan, each arena object with a red zone: over the tests of passes, of
# lowering, of messages, of units and of the runtime, and over the examples with --verify-passes; and the runtime for
# GPUs on the emulated device.
# reaches: compiler codegen/cuda trainers runtime/cuda examples tests/cuda tests/device tests/error tests/lower
# reaches: tests/pass tests/runtime tests/unit
set -eu
cd "$(dirname "$0")/../.."
root=$(pwd)
san=${BUILD:-build}/sanitize
flags=$(sh tests/sanitized.sh mpc runtime)
export ASAN_OPTIONS=detect_leaks=1

compiler() {
    BUILD="$root/$san" sh tests/filecheck.sh tests/pass/*.mir
    BUILD="$root/$san" sh tests/lower/run.sh
    BUILD="$root/$san" BLESS= sh tests/error/run.sh
    for example in chars gpt2 llama bert; do
        # Less than bert's vocabulary, which is interpreted whole for its masked tokens.
        "$san/mpc" compile "examples/$example.mdl" -D vocab=512 -o "$san/out" --no-cc --verify-passes >/dev/null
    done
}

runtime() {
    CC=clang SANITIZE=1 sh tests/unit/run.sh >/dev/null
    SANITIZED=$san/by-gcc sh tests/device/sanitize.sh "$flags"
    BUILD="$san/by-gcc" EXTRA_CFLAGS="$flags" sh tests/runtime/run.sh
}

compiler &
first=$!
runtime &
second=$! status=0
wait $first || status=1
wait $second || status=1
[ $status = 0 ]
echo "clean under address and undefined-behaviour sanitizers"
