#!/bin/sh
# Random programs against PyTorch: previously failing ones, and a fixed number of new ones (RANDOM_COUNT=; 10, with ALL=1
# 60; from RANDOM_SEED= on).
# reaches: compiler codegen/cuda trainers runtime/cuda examples tests/cuda tests/device
cd "$(dirname "$0")/../.." || exit 2
mpc=$(cd "${BUILD:-build}" && pwd)/mpc
count=10
[ "${ALL:-}" != 1 ] || count=60
cd tests/random || exit 2 # PyTorch is read once
exec nice /usr/bin/python3 forked.py test_tools.py + found.py --mpc "$mpc" + \
    fuzz.py --mpc "$mpc" --seed "${RANDOM_SEED:-1}" --count "${RANDOM_COUNT:-$count}" --jobs 2
