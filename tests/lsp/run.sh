#!/bin/sh
# mpc lsp, with pygls' client and with bytes that no client sends; files of editors.
# reaches: compiler editors examples tests/error tests/models tests/random docs/language.md docs/experts.md docs/optimizers.md
set -e
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
[ -x "$build/lsp-client/bin/pytest" ] || make --no-print-directory BUILD="$build" lsp-client
PYTHON=$build/lsp-client/bin/python exec sh tests/pytest.sh tests/lsp
