#!/bin/sh
# run.sh -- CUDA kernels without a GPU: emitted, run on the emulator, compared with the interpreter; compiled by NVRTC
# if available.
#
#   tests/cuda/run.sh [FILE.mir ...]     CC, BUILD as for build.sh; KERNEL_CXX: what compiles the kernels;
#                                        EXECUTE: what runs them in the emulator's place (tests/gpu/kernels.sh);
#                                        PROGRAMS: a folder for the programs, and nothing is run
# reaches: compiler codegen/cuda trainers runtime/cuda -runtime/cpu -runtime/net -runtime/data -runtime/trainer
# reaches: -runtime/store examples tests/codegen tests/oracle tests/gpu
set -eu
cd "$(dirname "$0")/../.."
MPC=${BUILD:-build}/mpc
export BUILD=${BUILD:-build}/cuda
if [ -z "${PROGRAMS:-}" ]; then
    tests/cuda/build.sh
    "$BUILD/test_emulator" "$BUILD/bad_kernels.so"
    "$BUILD/test_bad_hopper" "$BUILD/bad_hopper.so"
    "$BUILD/test_counted" "$BUILD/counted_kernels.so"
    "$BUILD/test_hopper" "$BUILD/hopper_kernels.so"
fi
models=$(mktemp -d)
trap 'rm -rf "$models"' EXIT
# With ALL=1, and for a GPU, each model in each precision; else each of both.
all=
[ "${ALL:-}" != 1 ] && [ -z "${EXECUTE:-}${PROGRAMS:-}" ] || all=1
plan() # NAME OPTION... -- an example with small, odd sizes
{
    name=$1
    shift
    case $all$name$1$2 in
    chars*fp32 | chars*bf16 | gpt2*=fp32 | gpt2*=fp16 | llama*=bf16 | llama*=fp16 | bert*=fp32 | bert*=fp16) return ;;
    esac
    "$MPC" compile "examples/$name.mdl" --target=cuda --compile-to=memory -o "$models/$name$n.mir" "$@"
    n=$((n + 1))
}
GPT2="-D layers=2 -D seq=32 -D embed=48 -D heads=4 -D vocab=301 --set train.batch=4 --set train.microbatch=2"
LLAMA="-D layers=2 -D embed=64 -D kv_heads=2 -D group=3 -D head=16 -D ff=80 --set train.batch=2 --set train.microbatch=1"
failed=0 n=0
if [ $# = 0 ]; then
    # shellcheck disable=SC2086
    for precision in fp32 bf16 fp16; do
        plan chars --set train.precision=$precision -D layers=2 -D seq=21 -D embed=36 -D vocab=37 \
            --set train.batch=3 --set train.microbatch=3
        plan gpt2 --set train.precision=$precision $GPT2
        plan llama --set train.precision=$precision $LLAMA -D seq=19 -D vocab=131
        plan bert --set train.precision=$precision -D layers=2 -D seq=16 -D embed=40 -D heads=4 -D vocab=150 \
            --set train.batch=2 --set train.microbatch=2
    done
    # Operands of products in 8 bits, in blocks of rows and of columns.
    plan gpt2 --set train.precision=fp8 -D layers=2 -D seq=64 -D embed=160 -D heads=4 -D vocab=301 \
        --set train.batch=4 --set train.microbatch=2
    # Parts of ranks: logits split by vocabulary, with padding; zig-zag positions.
    # shellcheck disable=SC2086
    plan gpt2 --mesh=tp=2 $GPT2
    # shellcheck disable=SC2086
    plan llama --mesh=cp=2,tp=2 $LLAMA -D seq=20 -D vocab=130
    # shellcheck disable=SC2086
    plan mixtral --mesh=ep=2 $LLAMA -D experts=4 -D seq=19 -D vocab=131 --set train.precision=bf16
    # tests/codegen/product.mir has products, which the library computes
    # shellcheck disable=SC2046
    set -- tests/cuda/*.mir $(ls tests/codegen/*.mir | grep -v product) "$models"/*.mir
fi
if [ -n "${PROGRAMS:-}" ]; then
    for file; do
        cp "$file" "$PROGRAMS/$(echo "${file#"$models/"}" | tr / -)"
    done
    exit 0
fi
# Two at a time on the emulator; a GPU runs one after the other.
printf '%s\n' "$@" | xargs -n 1 -P "$([ -n "${EXECUTE:-}" ] && echo 1 || echo 2)" "${EXECUTE:-$BUILD/execute}" || failed=1
# The same for GPUs with 99 KiB of shared memory per block: smaller tiles.
case "${EXECUTE:-$* }" in *tests/cuda/attend.mir" "*)
    SMALL_SHARED=1 KERNEL_CXX="${KERNEL_CXX:-g++} -D__CUDA_ARCH__=860" "$BUILD/execute" tests/cuda/attend.mir || failed=1 ;;
esac

# A long row is read once for its maximum and the sum of exponentials, and once more for what depends on the sum, but for
# the part that stays in shared memory: on a GPU with 163 KiB per block, and on one with 99.
case "${EXECUTE:-$* }" in *tests/cuda/online.mir" "*)
    READS=1 "$BUILD/execute" tests/cuda/online.mir > "$models/reads" || failed=1
    READS=1 SMALL_SHARED=1 KERNEL_CXX="${KERNEL_CXX:-g++} -D__CUDA_ARCH__=860" "$BUILD/execute" tests/cuda/online.mir \
        >> "$models/reads" || failed=1
    grep -v total "$models/reads" | sed -n 's/ *kernel_\(.*\) reads \(.*\) times/\1 \2/p' | tr '\n' ' ' > "$models/times"
    echo "rows 1.0 softmax 1.1 both 2.4 some 1.0 entropy 1.0 rows 1.2 softmax 1.5 both 2.4 some 1.0 entropy 1.2 " | tr -d '\n' |
        diff - "$models/times" || failed=1
    # Faults: the sum is not rescaled in a row, or not between threads; a base is minus infinity.
    for fault in 's/rt_rescale(\(.*\), \(.*\), \(.*\));/\2 = fmaxf(\3, RT_LEAST);/' 's/sum \*= expf(.*);//' \
        's/rt_rescale(\(.*\), \(.*\), \(.*\));/& \2 = \3;/'; do
        TMPDIR=$models KERNEL_CXX="sh tests/cuda/plant.sh" PLANT=$fault "$BUILD/execute" tests/cuda/online.mir |
            grep -q "differs by" || { echo "not noticed: $fault"; failed=1; }
    done ;;
esac

# Ahead of time, at full size: see ahead.sh.
nvrtc="not compiled by NVRTC: there is none here"
"$MPC" compile examples/chars.mdl --target=cuda --nvrtc=sm_90 --no-cc -o "$models/out" > "$models/log" 2>&1 || true
if ! grep -q "cannot find NVRTC" "$models/log"; then
    # Products of experts that leave empty rows out.
    export DROPLESS="$models/dropless.mdl"
    sed 's/capacity = capacity, within = batch/capacity = none/' examples/mixtral.mdl > "$DROPLESS"
    awk -v all="$all" '/^---/ { if (all) next; exit } 1' <<'END' | xargs -P 2 -I LINE sh -c 'exec sh tests/cuda/ahead.sh LINE' || failed=1
gpt2 sm_90
llama sm_90a -D head=256
bert sm_80 --set train.precision=fp32
$DROPLESS sm_90 -D layers=2
--- With ALL=1 also
gpt2 sm_90 --set train.precision=fp8
gpt2 sm_100
llama sm_120
gpt2 sm_90a --set train.precision=fp16
gpt2 sm_90a -D embed=960
llama sm_90a -D head=64 -D window=600
gpt2 sm_86 --mesh tp=2
llama sm_86 -D head=256
../tests/oracle/packed sm_90 -D seq=2048 -D head=128 --set train.precision=bf16
../tests/oracle/logits sm_80 -D seq=1024 -D distance=2047 -D source=777 -D head=80 --set train.precision=fp32
gpt2 sm_80 --set train.precision=fp16
llama sm_90a -D head=128
llama sm_90a -D head=192
mixtral sm_90 -D layers=2
$DROPLESS sm_80 -D layers=2 --set train.precision=fp16
llama sm_89 -D head=256 --set train.precision=fp32
../tests/oracle/packed sm_80 -D seq=2048 -D head=112 --set train.precision=fp16
../tests/oracle/logits sm_90 -D seq=1024 -D distance=2047 -D source=777 -D head=128 --set train.precision=bf16
../tests/oracle/logits sm_80 -D seq=1024 -D distance=2047 -D source=777 -D head=64 --set train.precision=fp16
../tests/oracle/logits sm_89 -D seq=1024 -D distance=2047 -D source=777 -D head=256 --set train.precision=bf16
END
    nvrtc="compiled by NVRTC for sm_80 to sm_90a without spills"
    /usr/bin/python3 tests/cuda/sass.py "$MPC" "$models" > "$models/sass" || failed=1
    [ ! -s "$models/sass" ] || nvrtc="$nvrtc; $(cat "$models/sass")"
fi
[ $failed = 0 ] && echo "every kernel ran on the emulator as in the interpreter; $nvrtc"
exit $failed
