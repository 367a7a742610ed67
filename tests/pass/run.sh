#!/bin/sh
# Passes on IR text: what each does, and what it leaves alone.
exec sh tests/filecheck.sh tests/pass/*.mir
