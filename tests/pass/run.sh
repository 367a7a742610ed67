#!/bin/sh
# Passes on IR text, and layouts on a model: what each changes, and what it does not.
# reaches: compiler examples
exec sh tests/filecheck.sh tests/pass/*.mir tests/pass/*.mdl
