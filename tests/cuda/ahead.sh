#!/bin/sh
# ahead.sh MODEL ARCHITECTURE OPTION... -- compiles the kernels of an example, or of a file with its whole path, ahead of
# time, at full size: with no registers spilled, nothing but rope's angles and initial weights in local memory, two blocks
# of rows in shared memory on a multiprocessor, and no more shared memory than small GPUs have.
set -u
model=$1 architecture=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
log=$folder/log
case $model in /*) file=$model ;; *) file=examples/$model.mdl ;; esac
fail() # WHY
{
    echo "$model $architecture $*"
    exit 1
}
"${BUILD%/cuda}/mpc" compile "$file" --target=cuda --nvrtc="$architecture" --no-cc "$@" -o "$folder/out" > "$log" 2>&1 &&
    grep "compiled in" "$log" | grep -q "; 0 of their functions spill" || { cat "$log"; fail "is not compiled without spills"; }
awk '$3 == "x" && (($8 > 0 && $1 !~ /(_rope(_v[0-9]+)?|^rt_initial_values)$/) || ($4 == 512 && $5 > 64)) { print; found = 1 } END { exit found }' \
    "$log" || fail "local memory, or too many registers for two blocks"
! grep "Performance Loss" "$log" || fail "waits between products of warpgroups"
case $architecture in sm_90a)
    grep -q "^ *kernel_.*_hopper " "$log" || fail "no attention for Hopper" ;;
esac
case $architecture in sm_86 | sm_89)
    awk '$3 == "x" && $6 > 99 * 1024 { print; found = 1 } END { exit found }' "$log" || fail "too much shared memory" ;;
esac
