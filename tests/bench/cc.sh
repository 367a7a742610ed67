#!/bin/sh
# cc.sh -- a C compiler that does not optimize, whatever it is told: CC="sh tests/bench/cc.sh".
exec cc "$@" -O0
