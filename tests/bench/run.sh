#!/bin/sh
# The benchmarks that need nothing from PyPI still run, at small sizes; pipelines.py compares the losses of all schedules.
# Times are not looked at.  Most of the time goes into compiling trainers: some layouts are enough.
set -eu
cd "$(dirname "$0")/../.."
/usr/bin/python3 bench/compile_time.py >/dev/null
/usr/bin/python3 bench/ranks.py --small --steps 3 --only tensor >/dev/null
/usr/bin/python3 bench/pipelines.py --small --steps 3 --micros 2 --peers none
/usr/bin/python3 bench/packed.py --seq 4096 --draws 1 >/dev/null
/usr/bin/python3 bench/experts.py --small --steps 3 --only 1.25 --peers none >/dev/null
/usr/bin/python3 bench/ring.py --small --steps 3 >/dev/null
