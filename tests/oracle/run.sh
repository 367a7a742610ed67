#!/bin/sh
# Trainers against PyTorch.
cd "$(dirname "$0")/../.." || exit 2
exec sh tests/pytest.sh --dist loadgroup tests/oracle
