#!/bin/sh
# Trainers of several ranks, as processes under mpirun: results, checkpoints, messages, and errors.
exec sh "$(dirname "$0")/../pytest.sh" --dist loadfile tests/ranks
