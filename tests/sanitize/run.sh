#!/bin/sh
# The compiler and the runtime under ASan and UBSan, each arena object with a red zone: over the tests of passes, of
# lowering, of messages, of units and of the runtime, and over the examples with --verify-passes; and the runtime for
# GPUs on the emulated device.
set -eu
cd "$(dirname "$0")/../.."
root=$(pwd)
san=${BUILD:-build}/sanitize
flags='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
export ASAN_OPTIONS=detect_leaks=1
make -s -j2 BUILD="$san" CFLAGS='-O1 -g' EXTRA_CFLAGS="$flags -DARENA_DEBUG" LDFLAGS="$flags" "$san/mpc"
BUILD="$root/$san" sh tests/filecheck.sh tests/pass/*.mir
BUILD="$root/$san" sh tests/lower/run.sh
BUILD="$root/$san" BLESS= sh tests/error/run.sh
SANITIZE=1 sh tests/unit/run.sh >/dev/null
for example in chars gpt2 llama bert; do
    "$san/mpc" compile "examples/$example.mdl" -o "$san/out" --no-cc --verify-passes >/dev/null
done
EXTRA_CFLAGS="$flags" sh tests/runtime/run.sh | tail -n 1
SANITIZED=$san-gpu sh tests/device/sanitize.sh "$flags"
echo "clean under address and undefined-behaviour sanitizers"
