#!/bin/sh
# The mpc command, and the trainers that it writes.
# reaches: compiler codegen/cuda driver/hf driver/plot trainers packaging examples docs/mpc.1 tests/error
# reaches: .clang-format
exec sh tests/pytest.sh tests/driver
