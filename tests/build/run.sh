#!/bin/sh
# No warnings from gcc or clang, no dependency that points up, no file that is too long.
set -eu
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
make -s -j2 BUILD="$out/gcc" CC=gcc EXTRA_CFLAGS='-Werror -Wshadow=local' CFLAGS=-O1 all
make -s -j2 BUILD="$out/clang" CC=clang-14 EXTRA_CFLAGS=-Werror CFLAGS=-O1 all

# Arrows point down: a folder may include what stands to the right of it.
may_include() # FOLDER PATTERN-OF-WHAT-IT-MAY-NOT
{
    if grep -nE "#include \"($2)" "$1"/*.[chly] 2>/dev/null; then
        echo "$1/ includes what it may not know"
        exit 1
    fi
}
headers() { (cd "$1" && ls ./*.h) | sed 's|^\./||; s|\.|\\.|' | paste -sd'|'; }
may_include ir "$(headers frontend)|$(headers passes)|$(headers codegen)|$(headers driver)"
may_include frontend "$(headers passes)|$(headers codegen)|$(headers driver)|rt\\.h"
may_include passes "$(headers frontend)|$(headers codegen)|$(headers driver)|rt\\.h"
may_include codegen "$(headers frontend)|$(headers passes)|$(headers driver)"
may_include runtime "$(headers ir)|$(headers passes)|$(headers codegen)|$(headers driver)|ir/|\\.\\./ir"

long=$(wc -l ir/*.[ch] frontend/*.[chly] passes/*.[ch] codegen/*.[ch] driver/*.[ch] runtime/*.[ch] runtime/kernels/*.h |
    awk '$2 != "total" && $1 > 520')
if [ -n "$long" ]; then
    echo "files of more than 500 lines hold more than one subject:"
    echo "$long"
    exit 1
fi
echo "gcc and clang without warnings, dependencies point down"
