#!/bin/sh
# Passes on IR text, and layouts on a model: what each does, and what it leaves alone.
exec sh tests/filecheck.sh tests/pass/*.mir tests/pass/*.mdl
