#!/bin/sh
# mpi_flags.sh FOLDER [MPICC] -- writes FOLDER/mpi.compile and FOLDER/mpi.flags: what the C compiler and the linker need
# for MPI, as the wrapper MPICC tells.  -show of OpenMPI, MPICH and Intel MPI prints the command that it would run.
# Without MPICC both are empty.  A file that would not change is not written.
set -eu
folder=$1 mpicc=${2:-}
shown=
[ -z "$mpicc" ] || shown=$($mpicc -show 2>/dev/null) || shown=$($mpicc -compile-info 2>/dev/null) || {
    echo "error: '$mpicc' does not tell MPI's flags: install an MPI, name its compiler (make MPICC=...), or leave MPI out (make MPI=no)" >&2
    exit 1
}
write() # FILE FLAG...
{
    path=$folder/$1
    shift
    printf '%s\n' "$*" >"$path.new"
    cmp -s "$path.new" "$path" && rm "$path.new" || mv "$path.new" "$path"
}
compile= link= option=
for word in $shown; do
    case $option$word in
    -I | -isystem | -L | -Xlinker) option="$word " && continue ;;
    -I* | -isystem* | -D*) compile="$compile $option$word" ;;
    -L* | -l* | -Wl,* | -Xlinker* | /*.a | /*.so) link="$link $option$word" ;;
    -pthread) compile="$compile $word" link="$link $word" ;;
    esac
    option=
done
# shellcheck disable=SC2086
write mpi.compile $compile
# shellcheck disable=SC2086
write mpi.flags $link
