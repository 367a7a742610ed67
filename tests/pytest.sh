#!/bin/sh
# pytest.sh ARGUMENT... -- pytest with $WORKERS tests at a time, or one more than there are processors, since some wait,
# from the root of the project.  With $PYTHON, if that is set.
cd "$(dirname "$0")/.." || exit 2
exec "${PYTHON:-/usr/bin/python3}" -m pytest -q -rs -p no:cacheprovider -n "${WORKERS:-$(($(nproc) + 1))}" "$@"
