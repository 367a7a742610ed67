#!/bin/sh
# Models and their IR after lowering.
# reaches: compiler -codegen
exec sh tests/filecheck.sh tests/lower/*.mdl
