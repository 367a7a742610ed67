#!/bin/sh
# Models and their IR after lowering.
exec sh tests/filecheck.sh tests/lower/*.mdl
