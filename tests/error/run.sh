#!/bin/sh
# run.sh -- every message about a .mdl or a .machine file, and errors of the verifier about invalid layouts: NAME.mdl,
# NAME.machine or NAME.mir must give NAME.err on standard error, and status 1.
#
#   tests/error/run.sh [FILE ...]     of this folder, or all
#
# A file is run with `mpc check NAME.mdl` (or `mpc print NAME.mir`), or with the RUN line at its top.  BLESS=1 rewrites
# the expectations.  Every message of the frontend and of machine_read.c must occur in one of them.
# reaches: compiler examples
set -u
cd "$(dirname "$0")" || exit 2
root=$(cd ../.. && pwd)
case "${BUILD:-build}" in /*) PATH="$BUILD:$PATH" ;; *) PATH="$root/${BUILD:-build}:$PATH" ;; esac
failed=0 count=0
actual=$(mktemp)
trap 'rm -f "$actual"' EXIT

for file in ${*:-*.mdl *.mir *.machine}; do
    name=${file%.m*} command=check
    [ "$file" != "$name.mir" ] || command=print
    read -r first <"$file"
    case $first in
    "# RUN: "*) sh -c "$(echo "${first#"# RUN: "}" | sed "s|%s|$file|g")" ;;
    *) mpc $command "$file" ;;
    esac >/dev/null 2>"$actual"
    status=$?
    count=$((count + 1))
    [ -z "${BLESS:-}" ] || cp "$actual" "$name.err"
    if [ $status != 1 ] || ! cmp -s "$actual" "$name.err"; then
        failed=$((failed + 1))
        echo "FAIL $name (status $status)"
        diff "$name.err" "$actual" | head -20
    fi
done
[ $# = 0 ] || { echo "$count of the files, $failed failed"; exit "$failed"; }
/usr/bin/python3 messages.py || failed=$((failed + 1))
/usr/bin/python3 idioms.py || failed=$((failed + 1))
echo "$count files, $failed failed"
[ "$failed" = 0 ]
