#!/bin/sh
# run.sh -- every test, group by group, three beside each other, the dearest first; when one ends a line, with the output
# if it failed; at the end what failed once more (CI shows the end of a log), the seconds of processors of all, beside
# their budget, the table in docs/develop.md (without ALL), and one summary line.
#   T=NAME[,NAME...]   only these groups
#   CHANGED=1          only those that can reach what has changed since the project's branch (CHANGED=REV: since REV)
#   BLESS=1            rewrite golden files (read the diff afterwards)
#   LIMIT=SECONDS      a group that takes longer fails (1500)
#   DEAREST=N          after a group of pytest: its N tests that took most seconds of processors
#   LANES=N            groups beside each other (3; with one processor 1): many tests wait, and others run alone
set -u
cd "$(dirname "$0")/.." || exit 2
export BUILD="${BUILD:-build}" BLESS="${BLESS:-}" MPC_PEAK_FLOPS=1e9
export MPC_CACHE="${MPC_CACHE:-$(mkdir -p "$BUILD" && cd "$BUILD" && pwd)/objects}" # not the user's
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}" # tests run beside each other: threads that spin take their time
work=$(mktemp -d) running=
trap 'rm -rf "$work"' EXIT
trap 'kill $running 2>/dev/null; wait; exit 1' HUP INT TERM # lanes do not see the keyboard
reached=
if [ -n "${CHANGED:-}" ]; then
    reached=$(/usr/bin/python3 tests/changed.py "$CHANGED") || exit 2
    [ -n "$reached" ] || { echo "nothing has changed"; exit 0; }
fi

is_wanted() # NAME
{
    case ",${T:-$1}," in *",$1,"*) ;; *) return 1 ;; esac
    case ",${reached:-$1}," in *",$1,"*) ;; *) return 1 ;; esac
}

count_processors() # processors: seconds of all that this lane has ended so far
{
    times >"$log.times"
    processors=$(tail -n 1 "$log.times" | tr 'ms' '  ' | awk '{ printf "%d\n", 60 * ($1 + $3) + $2 + $4 }')
}

# Of trainers that run for a moment, code that oneDNN makes for newer processors takes most of the time.
choose_instructions() # NAME
{
    case $1 in
    device | driver | museum | ranks | report | runtime) export ONEDNN_MAX_CPU_ISA=SSE41 ;;
    *) unset ONEDNN_MAX_CPU_ISA ;;
    esac
}

group() # NAME
{
    choose_instructions "$1"
    start=$(date +%s)
    count_processors
    before=$processors
    # The shell lets what runs in the background ignore signals that tests send.
    env --default-signal=INT,QUIT timeout -k 10 "${LIMIT:-1500}" sh "tests/$1/run.sh" >"$log" 2>&1 &
    child=$!
    wait $child
    status=$? said=ok last="" child=""
    [ $status != 124 ] && [ $status != 137 ] || echo "did not end within ${LIMIT:-1500} s" >>"$log"
    count_processors
    [ $status = 0 ] && last=$(grep -v '^ *$' "$log" | tail -n 1 | cut -c1-90) || said=FAIL last="(make check T=$1)"
    {
        printf '%-10s %-4s  %4s s, %4s of processors  %s\n' "$1" $said "$(($(date +%s) - start))" "$((processors - before))" "$last"
        [ $said = ok ] || sed 's/^/    /' "$log" | tail -n "${LINES_OF_FAILURE:-60}"
        [ -z "${DEAREST:-}" ] || grep '^dear ' "$log"
    } >"$log.said"
    cat "$log.said"
    echo "$((processors - before)) $(sed -n "s/^| \`$1\` | \([0-9]*\) |.*/\1/p" docs/develop.md)" >>"$work/seconds"
    [ $said = ok ] || tail -n 20 "$log.said" >"$work/failure.$1"
    echo "$1" >>"$work/$said"
}

# Makes its folder in `work`, which only one lane can.
take() # NAME
{
    mkdir "$work/$1" 2>/dev/null
}

# Runs one group after the other, until all are taken.
lane() # NUMBER
{
    log=$work/log.$1 child=
    trap - EXIT
    trap '[ -z "$child" ] || kill "$child"; exit 1' TERM
    for name in $wanted; do
        ! take "$name" || group "$name"
    done
}

budget() # NAME: its seconds in docs/develop.md; of one that has none, which is long or does nothing, more than any
{
    seconds=$(sed -n "s/^| \`$1\` | \([0-9]*\) |.*/\1/p" docs/develop.md)
    echo "${seconds:-9999}"
}

wanted=
for runner in tests/*/run.sh; do
    name=$(basename "$(dirname "$runner")")
    is_wanted "$name" && wanted="$wanted$(budget "$name") $name
"
done
wanted=$(echo "$wanted" | sort -rn | sed 's/.* //') # so that no long one runs alone at the end
# shellcheck disable=SC2086
[ "$(nproc)" -gt 1 ] && [ "$(echo $wanted | wc -w)" -gt 1 ] && lanes=3 || lanes=1
lanes=${LANES:-$lanes}
[ "$lanes" -lt 2 ] || export WORKERS="${WORKERS:-$(nproc)}"
for number in $(seq "$lanes"); do
    lane "$number" &
    running="$running $!"
done
wait
awk '{ used += $1; budget += $2 } END { printf "%d s of processors, of %d in docs/develop.md\n", used, budget }' "$work/seconds"
count() { touch "$work/$1"; wc -l <"$work/$1"; }
[ ! -e "$work/FAIL" ] || cat "$work"/failure.* # again: who reads a long log reads its end
[ ! -e "$work/FAIL" ] || echo "failed: $(sort "$work/FAIL" | tr '\n' ' ')"
echo "$(count ok) passed, $(count FAIL) failed"
[ "$(count FAIL)" = 0 ] && [ "$(count ok)" -gt 0 ]
