#!/bin/sh
# filecheck.sh FILE... -- runs the RUN lines of IR and model files; %s is the file, mpc and FileCheck are found.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
PATH="${BUILD:-$root/build}:$PATH"
command -v FileCheck >/dev/null || PATH="$PATH:$(dirname "$(ls /usr/lib/llvm-*/bin/FileCheck | tail -n 1)")" # any version
failed=0 count=0
for file; do
    runs=$(sed -n 's/^# RUN: *//p' "$file")
    if [ -z "$runs" ]; then
        echo "FAIL $file: no RUN line"
        failed=$((failed + 1))
        continue
    fi
    count=$((count + 1))
    script=$(printf '%s\n' "$runs" | sed "s|%s|$file|g")
    if ! output=$(sh -e -c "set -u; cd '$root'; $script" 2>&1); then
        echo "FAIL $file"
        printf '  %s\n' "$script"
        printf '%s\n' "$output" | sed 's/^/  /' | head -40
        failed=$((failed + 1))
    fi
done
echo "$count files, $failed failed"
[ "$failed" = 0 ]
