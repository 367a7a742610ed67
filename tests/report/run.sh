#!/bin/sh
# mpc report and mpc explain: figures of the program against published formulas, and against trainers.
exec /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/report
