#!/bin/sh
# What mpc plan does: layouts for models without one, held against those that people wrote for the examples, and layouts
# written into files.
# reaches: compiler examples tests/models tests/random tests/verify
set -eu
cd "$(dirname "$0")/../.."
export BUILD="${BUILD:-build}"
make -s -j2 all BUILD="$BUILD"
${CC:-gcc} -std=gnu17 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wno-unused-parameter -O1 -g -Iir -Ifrontend -Idriver \
    tests/plan/layout.c $(sh tests/objects.sh ir frontend driver/planner/derive.c driver/planner/dims.c driver/planner/rewrite.c) \
    "$BUILD/gen/grammar.o" "$BUILD/gen/scan.o" -o "$BUILD/plan_layout" -lm
exec sh tests/pytest.sh tests/plan
