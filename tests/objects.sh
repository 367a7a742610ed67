#!/bin/sh
# objects.sh FOLDER|FILE... -- names the objects in $BUILD that `make` has built of these sources of mpc.
find "$@" -name '*.c' ! -path '*/templates/*' | sed "s|\(.*\)c$|${BUILD:-build}/\1o|"
