#!/bin/sh
# Models and the IR that they become.
exec sh tests/filecheck.sh tests/lower/*.mdl
