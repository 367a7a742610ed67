#!/bin/sh
# pytest.sh ARGUMENT... -- pytest with $WORKERS tests at a time, or one more than there are processors, since some wait,
# from the root of the project.  With $PYTHON, if that is set.  DEAREST=N: with the N tests that took most (dearest.py).
cd "$(dirname "$0")/.." || exit 2
[ -z "${DEAREST:-}" ] || export PYTHONPATH="$PWD/tests${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-/usr/bin/python3}" -m pytest -q -rs -p no:cacheprovider ${DEAREST:+-p dearest} -n "${WORKERS:-$(($(nproc) + 1))}" "$@"
