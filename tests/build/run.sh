#!/bin/sh
# No warnings from gcc or clang, formatted, no dependency that points up, no file that is too long.
set -eu
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
make -s -j2 BUILD="$out/gcc" CC=gcc EXTRA_CFLAGS='-Werror -Wshadow=local' CFLAGS=-O1 all
make -s -j2 BUILD="$out/clang" CC=clang-14 EXTRA_CFLAGS=-Werror CFLAGS=-O1 all

make -s format FORMAT='clang-format-14 --dry-run -Werror'

# Arrows point down: a folder includes nothing that stands above it.  (A header of its own may have the same name.)
may_not_include() # FOLDER OTHER...
{
    folder=$1
    shift
    for other; do
        for header in $(cd "$other" && ls ./*.h); do
            [ -e "$folder/$header" ] && continue
            [ "$folder" != runtime ] && [ -e "ir/$header" ] && continue
            if grep -n "#include \"\($other/\)\{0,1\}${header#./}\"" "$folder"/*.[chly] 2>/dev/null; then
                echo "$folder/ may not know $other/"
                exit 1
            fi
        done
    done
}
may_not_include ir frontend passes codegen driver runtime
may_not_include frontend passes codegen driver runtime
may_not_include passes frontend codegen driver runtime
may_not_include codegen frontend passes driver
may_not_include runtime ir frontend passes codegen driver

long=$(wc -l ir/*.[ch] frontend/*.[chly] passes/*.[ch] codegen/*.[ch] driver/*.[ch] runtime/*.[ch] runtime/kernels/*.h |
    awk '$2 != "total" && $1 > 520')
if [ -n "$long" ]; then
    echo "files of more than 500 lines hold more than one subject:"
    echo "$long"
    exit 1
fi
echo "gcc and clang without warnings, dependencies point down"
