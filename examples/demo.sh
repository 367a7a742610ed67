#!/bin/sh
# demo.sh -- the main job end to end: examples/chars.mdl becomes a trainer that learns this source tree.
set -eu
cd "$(dirname "$0")/.."
out=${OUT:-out/chars}
mkdir -p "$out"
echo "1. the text: this source tree"
find . \( -path ./build -o -path ./out -o -path ./.git \) -prune -o \
    \( -name '*.[chly]' -o -name '*.def' -o -name '*.mdl' -o -name '*.md' \) -type f -print | LC_ALL=C sort |
    xargs cat >"$out/corpus.txt"
ls -l "$out/corpus.txt" | awk '{ printf "   %s: %d bytes\n", $NF, $5 }'
echo "2. mpc compile examples/chars.mdl -o $out"
build/mpc compile examples/chars.mdl -o "$out" --dump-ir="$out/ir"
echo "3. $out/trainer --data $out/corpus.txt"
"$out/trainer" --data "$out/corpus.txt" --save "$out/chars.safetensors" --log "$out/log.jsonl" --overwrite --print-every 50
echo "4. a sample from what it learned"
"$out/trainer" --data "$out/corpus.txt" --load "$out/chars.safetensors" --steps 0 --sample 400 \
    --prompt 'static bool ' --temperature 0.7
