#!/bin/sh
# The runtime with a small handwritten program: data, order, checkpoints, messages, signals.
# reaches: trainers docs/trainer.md
cd "$(dirname "$0")/../.." || exit 2
exec sh tests/pytest.sh tests/runtime
