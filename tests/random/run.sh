#!/bin/sh
# Random programs against PyTorch: previously failing ones, and a fixed number of new ones (RANDOM_COUNT=; 10, with ALL=1
# 60; from RANDOM_SEED= on).
# reaches: compiler codegen/cuda trainers runtime/cuda examples tests/cuda tests/device
cd "$(dirname "$0")/../.." || exit 2
BUILD=${BUILD:-build}
mpc=$BUILD/mpc
count=10 status=0
[ "${ALL:-}" != 1 ] || count=60
/usr/bin/python3 tests/random/test_tools.py || status=1
/usr/bin/python3 tests/random/found.py --mpc "$mpc" || status=1
nice /usr/bin/python3 tests/random/fuzz.py --mpc "$mpc" --seed "${RANDOM_SEED:-1}" --count "${RANDOM_COUNT:-$count}" --jobs 2 || status=1
exit $status
