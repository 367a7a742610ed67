#!/bin/sh
# cuda_kernels.sh -- what each CUDA kernel of the examples takes of a multiprocessor, as NVRTC's assembler says, and the
# bytes that it moves beside the least that its operands need; as Markdown, to stdout.  Needs NVRTC and no GPU.
#
#   bench/cuda_kernels.sh sm_90 > bench/results/DATE-cuda-sm90-kernels.md
set -eu
cd "$(dirname "$0")/.."
architecture=${1:-sm_90}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

compiled() # OPTION... -- of mpc compile; the lines of the table in $folder/log
{
    build/mpc compile "$@" --target=cuda --no-cc --nvrtc="$architecture" -o "$folder/out" >"$folder/log"
}

rows() # a Markdown row for each kernel
{
    awk '$3 == "x" && $1 ~ /^kernel_/ { printf "| `%s` | %d x %d | %d | %d | %d | %s |\n", $1, $2, $4, $5, $6, $7, $11 }' \
        "$folder/log"
}

worst() # kernels, the most registers and shared memory, spilled bytes
{
    awk '$3 == "x" && $1 ~ /^kernel_/ {
             n++
             spilled += $7
             if ($5 > registers) { registers = $5; r = $1 }
             if ($6 > shared) { shared = $6; s = $1 }
         }
         END { printf "| %d | %d (`%s`) | %d (`%s`) | %d |\n", n, registers, r, shared, s, spilled }' "$folder/log"
}

moved() # a Markdown row for each kernel, with all of its launches: megabytes, and their ratio
{
    awk 'function row() {
             if (name)
                 printf "| `%s` | %d | %.2f | %.2f | %.2f | %s |\n", name, launches, moved / 1e6, least / 1e6,
                        moved / least, place
         }
         $3 == "x" && $1 ~ /^kernel_/ {
             if ($10 > 0) {
                 row()
                 name = $1
                 launches = moved = 0
                 least = $10
                 place = $11
             }
             launches++
             moved += $9
         }
         END { row() }' "$folder/log"
}

echo "# Kernels for $architecture: registers, shared memory, spills, bytes"
echo
echo "\`bench/cuda_kernels.sh $architecture\`, by NVRTC of CUDA $(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p'); no kernel was run on a GPU for this."
echo
echo "## All examples"
echo
echo "| model | precision | functions | most registers | most shared memory, bytes | spilled bytes |"
echo "| --- | --- | --- | --- | --- | --- |"
for model in gpt2 llama bert chars; do
    for precision in fp32 bf16 fp16; do
        compiled "examples/$model.mdl" --set train.precision=$precision
        printf '| %s | %s ' "$model" "$precision"
        worst
    done
done
echo
echo "## Attention by head size"
echo
echo "\`examples/llama.mdl\`, bf16, \`-D head=N\`."
echo
echo "| head | kernel | blocks x threads | registers | shared memory, bytes | spilled bytes | place |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
for head in 64 80 96 128 192 256; do
    compiled examples/llama.mdl -D head=$head
    rows | grep attend | grep -v _v2 | sed "s/^/| $head /"
done
echo
echo "## GPT-2 124M"
echo
echo "\`examples/gpt2.mdl\`, bf16, as it stands."
echo
echo "| kernel | blocks x threads | registers | shared memory, bytes | spilled bytes | place |"
echo "| --- | --- | --- | --- | --- | --- |"
compiled examples/gpt2.mdl
rows
echo
echo "## Bytes that kernels move"
echo
echo "\`examples/gpt2.mdl\`, bf16, micro-batches of 32 x 1024: megabytes that the launches of each kernel read and write, each byte"
echo "once a launch, as the compiler counts them and the emulator confirms them at small sizes; beside the least, which is"
echo "operands and results once.  What is read again within a launch is taken to come from a cache."
echo
echo "| kernel | launches | moved, MB | least, MB | ratio | place |"
echo "| --- | --- | --- | --- | --- | --- |"
compiled examples/gpt2.mdl -D seq=1024 --set train.batch=32 --set train.microbatch=32
moved
