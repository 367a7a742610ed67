#!/bin/sh
# sanitized.sh mpc|runtime ... -- builds mpc, or the runtime, into $BUILD/sanitize, under ASan and UBSan and with a red zone
# around each arena object: for tests/sanitize, tests/random and, since warnings of clang are errors, tests/build.  mpc is
# compiled by clang without optimization, in half of gcc's time.  The runtime is compiled by gcc, to whose UBSan a null
# pointer and 0 are a null pointer; clang's objects to this, and loops over no elements have it.
#
#   tests/sanitized.sh mpc runtime      BUILD; SOURCE: another version of this project (tests/random/finds.py).  On standard
#                                       output: the flags that whatever links these objects needs
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${SOURCE:-$here/..}"
out=${BUILD:-build}/sanitize
flags='-fsanitize=address,undefined -fno-sanitize-recover=undefined'
mkdir -p "${BUILD:-build}"
exec 9>"$out.lock"
flock 9 # groups that run side by side need it at the same time
made_by=$(cat Makefile "$here/sanitized.sh" | { cat; gcc --version; clang --version; } | cksum)
[ "$(cat "$out/made_by" 2>/dev/null)" = "$made_by" ] || rm -rf "$out"
mkdir -p "$out"
echo "$made_by" >"$out/made_by"
for what; do
    case $what in
    mpc)
        make -s -j2 BUILD="$out" CC=clang CFLAGS='-O0 -g1' EXTRA_CFLAGS="$flags -DARENA_DEBUG -Werror" LDFLAGS="$flags" "$out/mpc" >&2
        ;;
    runtime)
        targets=$out/by-gcc/libmpcrt.a
        [ ! -e "${BUILD:-build}/libmpcrt_cuda.a" ] || targets="$targets $out/by-gcc/libmpcrt_cuda.a"
        # shellcheck disable=SC2086
        make -s -j2 BUILD="$out/by-gcc" CC=gcc CFLAGS='-Og -g1' LIBRARY_FLAGS=-O0 EXTRA_CFLAGS="$flags" \
            LDFLAGS="$flags" $targets >&2
        ;;
    esac
done
echo "$flags"
