#!/bin/sh
# mpc report and mpc explain: figures of the program against published formulas, and against trainers; pictures of
# pipeline schedules.  -rs: what is skipped, and why.
# reaches: compiler codegen/cuda trainers examples tests/models tests/pass
exec sh tests/pytest.sh tests/report
