#!/bin/sh
# Both parsers, with mutations of the files in the repository, for FUZZ_SECONDS (default 15) each.
set -eu
cd "$(dirname "$0")/../.."
out=${BUILD:-build}/fuzz
seconds=${FUZZ_SECONDS:-15}
mkdir -p "$out/mdl" "$out/mir"
rm -f "$out"/*.failed
flags="-std=gnu17 -D_POSIX_C_SOURCE=200809L -O1 -g -DARENA_DEBUG -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
    -Iir -Ipasses -Ifrontend -Idriver -I${BUILD:-build}/gen"
# shellcheck disable=SC2086
clang-14 $flags tests/fuzz/fuzz_mir.c ir/*.c ir/*/*.c -lm -o "$out/fuzz_mir" &
# shellcheck disable=SC2086
clang-14 $flags -w tests/fuzz/fuzz_mdl.c ir/*.c ir/*/*.c frontend/*.c driver/format.c "${BUILD:-build}"/gen/*.c -lm -o "$out/fuzz_mdl"
wait $!
cp tests/pass/*.mir tests/unit/*.mir tests/codegen/*.mir "$out/mir/"
cp examples/*.mdl tests/error/*.mdl tests/lower/*.mdl "$out/mdl/"
for kind in mir mdl; do
    "$out/fuzz_$kind" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4000 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$out/" "$out/$kind" 2>"$out/$kind.log" || touch "$out/$kind.failed" &
done
wait
said=
for kind in mir mdl; do
    [ ! -e "$out/$kind.failed" ] || { tail -n 60 "$out/$kind.log"; exit 1; }
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$kind.log")
    [ "${runs:-0}" -gt 100 ] || { echo "the $kind fuzzer ran only ${runs:-0} times"; exit 1; }
    said="$said $kind: $runs runs"
done
echo "${said# }"
