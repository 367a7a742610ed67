#!/bin/sh
# run.sh -- every test, group by group; one line each, the output of those that fail, one summary line.
#   T=NAME[,NAME...]   only these groups
#   CHANGED=1          only those that can reach what has changed since the project's branch (CHANGED=REV: since REV)
#   BLESS=1            rewrite golden files (read the diff afterwards)
#   LIMIT=SECONDS      a group that takes longer fails (1500)
set -u
cd "$(dirname "$0")/.." || exit 2
export BUILD="${BUILD:-build}" BLESS="${BLESS:-}" MPC_PEAK_FLOPS=1e9
export MPC_CACHE="${MPC_CACHE:-$(mkdir -p "$BUILD" && cd "$BUILD" && pwd)/objects}" # not the user's
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}" # tests run beside each other: threads that spin take their time
log=$(mktemp)
trap 'rm -f "$log" "$log.times"' EXIT
passed=0 failed=0 names= reached=
if [ -n "${CHANGED:-}" ]; then
    reached=$(/usr/bin/python3 tests/changed.py "$CHANGED") || exit 2
    [ -n "$reached" ] || { echo "nothing has changed"; exit 0; }
fi

count_processors() # processors: seconds of all that has ended so far
{
    times >"$log.times"
    processors=$(tail -n 1 "$log.times" | tr 'ms' '  ' | awk '{ printf "%d\n", 60 * ($1 + $3) + $2 + $4 }')
}

group() # NAME COMMAND...
{
    name=$1
    shift
    case ",${T:-$name}," in *",$name,"*) ;; *) return ;; esac
    case ",${reached:-$name}," in *",$name,"*) ;; *) return ;; esac
    printf '%-10s ' "$name"
    case $name in # of trainers that run for a moment, code that oneDNN makes for newer processors takes most of the time
    device | driver | museum | ranks | report | runtime) export ONEDNN_MAX_CPU_ISA=SSE41 ;;
    *) unset ONEDNN_MAX_CPU_ISA ;;
    esac
    start=$(date +%s)
    count_processors
    before=$processors
    timeout -k 10 "${LIMIT:-1500}" "$@" >"$log" 2>&1
    status=$?
    [ $status != 124 ] && [ $status != 137 ] || echo "did not end within ${LIMIT:-1500} s" >>"$log"
    count_processors
    if [ $status = 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %4s s, %4s of processors  %s\n' "$(($(date +%s) - start))" "$((processors - before))" "$(grep -v '^ *$' "$log" | tail -n 1 | cut -c1-90)"
    else
        failed=$((failed + 1)) names="$names $name"
        printf 'FAIL  %4s s, %4s of processors  (make check T=%s)\n' "$(($(date +%s) - start))" "$((processors - before))" "$name"
        sed 's/^/    /' "$log" | tail -n "${LINES_OF_FAILURE:-60}"
    fi
}

for runner in tests/*/run.sh; do
    group "$(basename "$(dirname "$runner")")" sh "$runner"
done
[ -z "$names" ] || echo "failed:$names"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
