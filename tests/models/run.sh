#!/bin/sh
# The architectures of this folder, small, beside the same in PyTorch.  (Those of transformers are in tests/hf.)  BLESS=1
# writes their table in docs/models.md.
# reaches: compiler trainers examples tests/hf tests/oracle tests/random docs/models.md
cd "$(dirname "$0")/../.." || exit 2
exec sh tests/pytest.sh tests/models ${BLESS:+-n 0}
