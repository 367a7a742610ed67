#!/bin/sh
# run.sh -- the parser of .mdl, under the sanitizers.
# reaches: ir frontend
set -eu
cd "$(dirname "$0")/../.."
BUILD=${BUILD:-build}
make -s "$BUILD/gen/grammar.c" "$BUILD/gen/scan.c" BUILD="$BUILD"
mkdir -p "$BUILD/syntax"
${CC:-gcc} -std=gnu17 -D_POSIX_C_SOURCE=200809L -DARENA_DEBUG -g -O1 -fsanitize=address,undefined \
    -fno-sanitize-recover=undefined -Wall -Wextra -Wpedantic -Wno-unused-parameter -Wno-sign-compare \
    -Wno-unused-but-set-variable -Iir -Ifrontend -I"$BUILD/gen" tests/syntax/test_syntax.c frontend/syntax/ast.c frontend/syntax/habits.c \
    frontend/syntax/idioms.c ir/diag.c ir/visible.c ir/arena.c ir/near.c "$BUILD/gen/grammar.c" "$BUILD/gen/scan.c" -o "$BUILD/syntax/test_syntax" -lcmocka
"$BUILD/syntax/test_syntax"
