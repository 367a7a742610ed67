#!/bin/sh
# Trainers against PyTorch.
# reaches: compiler trainers examples tests/random
cd "$(dirname "$0")/../.." || exit 2
exec sh tests/pytest.sh --dist loadgroup tests/oracle
