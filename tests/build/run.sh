#!/bin/sh
# No warnings from gcc or clang, formatted, no upward dependencies, no long files.
set -eu
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
make -s -j2 BUILD="$out/gcc" CC=gcc EXTRA_CFLAGS='-Werror -Wshadow=local' CFLAGS=-O1 LIBRARY_FLAGS=-O1 all
make -s -j2 BUILD="$out/clang" CC=clang EXTRA_CFLAGS=-Werror CFLAGS=-O1 LIBRARY_FLAGS=-O1 all

make -s format FORMAT='sh tests/clang_format.sh --dry-run -Werror'

# Dependencies point down, without cycles.
/usr/bin/python3 tests/build/arrows.py

long=$(find ir frontend passes codegen driver runtime -name '*.[chly]' -exec wc -l {} + |
    awk '$2 != "total" && $1 > 520')
if [ -n "$long" ]; then
    echo "files of more than 500 lines hold more than one subject:"
    echo "$long"
    exit 1
fi
echo "gcc and clang without warnings, dependencies point down"
