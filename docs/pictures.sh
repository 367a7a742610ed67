#!/bin/sh
# pictures.sh [DIR] -- the pictures of README, into DIR (docs): the loss of `make demo`, which has run before, the memory of
# its model over a step, and the schedule of a pipeline.
set -eu
cd "$(dirname "$0")/.."
to=${1:-docs} mpc=${BUILD:-build}/mpc
"$mpc" plot out/chars/log.jsonl --title 'make demo: a GPT over bytes learns this source tree' --svg "$to/loss.svg"
"$mpc" report examples/llama3.1.mdl --mesh pp=4 --schedule zb --set train.batch=16 --set train.microbatch=2 \
    --set train.precision=bf16 --gpu-flops 5e14 --link 25e9 --memory 80e9 --svg "$to/timeline.svg" >/dev/null
"$mpc" report examples/chars.mdl --memory-svg "$to/memory.svg" >/dev/null
