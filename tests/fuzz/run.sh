#!/bin/sh
# Both parsers, and what reads machines, with mutations of the files in the repository, for FUZZ_SECONDS (6; with ALL=1 24) each.
# reaches: ir frontend driver/format.c driver/format.h examples tests/unit tests/pass tests/lower tests/error
# reaches: tests/codegen machines
set -eu
cd "$(dirname "$0")/../.."
out=${BUILD:-build}/fuzz
[ "${ALL:-}" = 1 ] && seconds=24 || seconds=6
seconds=${FUZZ_SECONDS:-$seconds}
mkdir -p "$out/mdl" "$out/mir" "$out/machine"
rm -f "$out"/*.failed
# Without optimization: objects are made in a quarter of the time, and files are tried two thirds as fast.
flags='-O0 -gline-tables-only -DARENA_DEBUG -fno-sanitize-recover=undefined -fsanitize=address,undefined'
parser=$(BUILD=$out sh tests/objects.sh ir frontend driver/format.c)
# shellcheck disable=SC2086
make -s -j2 BUILD="$out" CC=clang CFLAGS="$flags,fuzzer-no-link" "$out/gen/grammar.o" "$out/gen/scan.o" $parser
link() # NAME OBJECT...
{
    name=$1
    shift
    # shellcheck disable=SC2086
    clang -std=gnu17 -D_POSIX_C_SOURCE=200809L $flags,fuzzer -Iir -Ipasses -Ifrontend -Idriver "tests/fuzz/fuzz_$name.c" "$@" -lm -o "$out/fuzz_$name"
}
# shellcheck disable=SC2046
link mir $(BUILD=$out sh tests/objects.sh ir)
# shellcheck disable=SC2046
link machine $(BUILD=$out sh tests/objects.sh ir)
# shellcheck disable=SC2086
link mdl $parser "$out/gen/grammar.o" "$out/gen/scan.o"
cp tests/pass/*.mir tests/unit/*.mir tests/codegen/*.mir "$out/mir/"
cp machines/*.machine tests/error/*.machine "$out/machine/"
cp examples/*.mdl tests/error/*.mdl tests/lower/*.mdl "$out/mdl/"
for kind in mir mdl machine; do
    "$out/fuzz_$kind" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4000 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$out/" "$out/$kind" 2>"$out/$kind.log" || touch "$out/$kind.failed" &
done
wait
said=
for kind in mir mdl machine; do
    [ ! -e "$out/$kind.failed" ] || { tail -n 60 "$out/$kind.log"; exit 1; }
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$kind.log")
    # Each file at least once: of those with errors in tests/error others are not run under sanitizers.
    [ "${runs:-0}" -ge "$(find "$out/$kind" -type f | wc -l)" ] || { echo "the $kind fuzzer ran only ${runs:-0} times"; exit 1; }
    said="$said $kind: $runs runs"
done
echo "${said# }"
