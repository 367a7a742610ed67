#!/bin/sh
# No warnings from gcc or clang, formatted, no upward dependencies, no long files, nothing stray in the root; what each
# group of tests reaches.
# reaches: .
set -eu
# Of gcc: what it has said of the objects in use, with the optimization that flow needs.  Where another compiler made them,
# and of clang, whose warnings do not need any: of objects for this, kept for the same Makefile and compilers.  mpc's are those
# of tests/sanitized.sh.
build=${BUILD:-build}
kept=$build/warnings out=$kept/$(cat Makefile tests/build/run.sh | { cat; gcc --version; clang --version; } | cksum | cut -d ' ' -f 1)
[ -d "$out" ] || rm -rf "$kept"
if ${CC:-cc} --version | grep -q 'Free Software'; then
    said=$(cd "$build" && find ir frontend passes codegen driver runtime gen -name '*.said')
    for file in $said; do
        cat "$build/$file"
    done
    [ -z "$said" ] || exit 1
else
    make -s -j2 BUILD="$out/gcc" CC=gcc EXTRA_CFLAGS=-Werror CFLAGS=-O1 LIBRARY_FLAGS=-O1 all
fi
sh tests/sanitized.sh mpc >/dev/null
runtime=$out/clang/libmpcrt.a
[ ! -e "$build/libmpcrt_cuda.a" ] || runtime="$runtime $out/clang/libmpcrt_cuda.a"
# shellcheck disable=SC2086
make -s -j2 BUILD="$out/clang" CC=clang EXTRA_CFLAGS=-Werror CFLAGS=-O0 LIBRARY_FLAGS=-O0 $runtime

make -s format FORMAT='sh tests/clang_format.sh --dry-run -Werror'

# In the root: what the project has there, and folders and hidden files of whoever builds it.
known=' CHANGELOG.md CONTRIBUTING.md LICENSE Makefile README.md
 bench codegen docs driver editors examples frontend ir machines packaging passes runtime tests .ci .clang-format .dockerignore .gitignore '
stray=$({ find . -mindepth 1 -maxdepth 1 -type f ! -name '.*'; git ls-files 2>/dev/null | sed 's|/.*||' | sort -u; } |
    sed 's|^\./||' | while read -r name; do
    case "$(echo "$known" | tr '\n' ' ')" in *" $name "*) ;; *) echo "$name" ;; esac
done)
if [ -n "$stray" ]; then
    echo "files in the root that the project does not know: move or remove them, or name them in tests/build/run.sh:"
    echo "$stray"
    exit 1
fi

# Amounts have the unit that fits, by ir/amount.h.
if grep -rnE '%[-0-9.*]*l*[a-z] ?[kMGTP](B|FLOPs?)\b[^"]*"' ir frontend passes codegen/host driver --include='*.c' |
    grep -v '^ir/amount.c'; then
    echo "print these amounts with bytes_text or flops_text of ir/amount.h"
    exit 1
fi

# Dependencies point down, without cycles; what groups of tests reach is known.
/usr/bin/python3 tests/build/arrows.py
/usr/bin/python3 tests/build/circles.py
/usr/bin/python3 tests/build/reaches.py
# Who asks about pipelines.
/usr/bin/python3 tests/build/pipelines.py

long=$(find ir frontend passes codegen driver runtime -name '*.[chly]' -exec wc -l {} + |
    awk '$2 != "total" && $1 > 520')
if [ -n "$long" ]; then
    echo "files of more than 500 lines hold more than one subject:"
    echo "$long"
    exit 1
fi
echo "gcc and clang without warnings, dependencies point down"
