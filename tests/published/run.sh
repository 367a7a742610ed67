#!/bin/sh
# mpc report --machine: predicted times and memory of steps against published ones.
# reaches: compiler codegen/cuda machines examples bench
# One process: it starts two of mpc at a time.
exec /usr/bin/python3 -m pytest -q -rs -p no:cacheprovider tests/published
