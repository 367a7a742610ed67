#!/bin/sh
# mpc as others have it: other libraries, compilers and processors, installed.  With ALL=1 all of them, in minutes.
# reaches: compiler codegen/cuda trainers packaging examples tests/codegen tests/kernels tests/ranks tests/runtime
cd "$(dirname "$0")/../.." || exit 2
[ "${ALL:-}" = 1 ] || { echo "only make check-all builds with other libraries and compilers"; exit 0; }
exec sh tests/pytest.sh --dist loadfile tests/port "$@"
