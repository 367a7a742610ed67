#!/bin/sh
# mpc report and mpc explain: figures read off the program against published formulas, and against what trainers do.
exec /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/report
