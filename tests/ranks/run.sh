#!/bin/sh
# Trainers of several ranks, as processes under mpirun: what they compute, save, send, and say when something fails.
exec /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/ranks
