#!/bin/sh
# pytest.sh ARGUMENT... -- pytest with two tests at a time, from the root of the project.  With $PYTHON, if that is set.
cd "$(dirname "$0")/.." || exit 2
exec "${PYTHON:-/usr/bin/python3}" -m pytest -q -rs -p no:cacheprovider -n 2 "$@"
