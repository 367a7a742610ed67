#!/bin/sh
# What mpc plan does: layouts for models without one, held against those that people wrote for the examples; layouts
# written into files; what it finds, held against all layouts compiled, and against mpc report of them.
# reaches: compiler codegen/cuda machines examples tests/models tests/published tests/random tests/verify
set -eu
cd "$(dirname "$0")/../.."
export BUILD="${BUILD:-build}"
make -s -j2 all BUILD="$BUILD"
${CC:-gcc} -std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -g -Iir -Ifrontend -Idriver \
    tests/plan/layout.c $(sh tests/objects.sh ir frontend driver/planner/derive.c driver/planner/dims.c driver/planner/rewrite.c) \
    "$BUILD/gen/grammar.o" "$BUILD/gen/scan.o" -o "$BUILD/plan_layout" -lm
exec sh tests/pytest.sh --dist loadgroup tests/plan
