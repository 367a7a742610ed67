#!/bin/sh
# plant.sh -- g++ with a fault: the sed command PLANT is applied to the kernels that it compiles.  Fails if that changes
# nothing.
set -eu
for arg; do
    shift
    case $arg in *kernels.cpp)
        sed "$PLANT" "$arg" > "${arg%.cpp}_planted.cpp"
        ! cmp -s "$arg" "${arg%.cpp}_planted.cpp" || exit 1
        arg=${arg%.cpp}_planted.cpp ;;
    esac
    set -- "$@" "$arg"
done
exec g++ "$@"
