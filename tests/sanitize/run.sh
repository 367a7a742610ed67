#!/bin/sh
# The compiler and the runtime under ASan and UBSan, each arena object with a red zone: over the tests of passes, of
# lowering, of units and of the runtime, over those of messages that the fuzzers do not read, and over the examples with
# --verify-passes; and the runtime for GPUs on the emulated device.
# reaches: compiler codegen/cuda trainers runtime/cuda examples tests/cuda tests/device tests/error tests/lower
# reaches: tests/pass tests/runtime tests/unit
set -eu
cd "$(dirname "$0")/../.."
root=$(pwd)
san=${BUILD:-build}/sanitize
flags=$(sh tests/sanitized.sh mpc runtime)
export ASAN_OPTIONS=detect_leaks=1

# Files with errors that tests/fuzz, which reads all of them under the same sanitizers, does not take to their message: run
# with options, as IR, with a schedule in another file, or with a message of what comes after lowering.
beyond_the_fuzzers() {
    cd tests/error
    ls *.mir # names as in the messages
    grep -l -e '^# RUN' -e 'schedule *= *"' *.mdl *.machine
    for file in *.mdl; do
        ! "$root/${BUILD:-build}/mpc" compile "$file" --compile-to=lower -o /dev/null >/dev/null 2>&1 || echo "$file"
    done
}

compiler() {
    BUILD="$root/$san" sh tests/filecheck.sh tests/pass/*.mir
    BUILD="$root/$san" sh tests/lower/run.sh
    # shellcheck disable=SC2046
    BUILD="$root/$san" BLESS= sh tests/error/run.sh $(beyond_the_fuzzers | sort -u)
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
