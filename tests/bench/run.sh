#!/bin/sh
# The benchmarks that need nothing from PyPI still run, at small sizes; pipelines.py compares the losses of all schedules.
# Times are not looked at.  Most of the time goes into compiling trainers: some layouts are enough, without optimization.
# reaches: compiler trainers bench examples tests/ranks
set -eu
cd "$(dirname "$0")/../.."
export CC="sh $PWD/tests/bench/cc.sh"
xargs -P 2 -I COMMAND sh -c '/usr/bin/python3 bench/COMMAND >/dev/null' <<'END'
pipelines.py --small --steps 3 --micros 2 --peers none
compile_time.py --runs 1
trainer_time.py --only chars --runs 1
ranks.py --small --steps 3 --only tensor
packed.py --seq 4096 --draws 1
experts.py --small --steps 3 --only 1.25 --peers none
ring.py --small --steps 3
saving.py --small --only 2
exposed.py --small --lines 1
pieces.py --small
abreast.py --small
bodies.py --small
predict.py --only chars --layout dp=2 --turns 1 --seconds 0.5 --steps 2
END
sh bench/kernels/run.sh nothing >/dev/null
echo "fourteen benchmarks ran"
