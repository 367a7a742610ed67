#!/bin/sh
# quick_cc.sh ARGUMENT... -- the C compiler of tests ($CC of mpc).  Trainers for a few small steps, which are compiled with -O0,
# are made by tcc, in a thirtieth of gcc's time; by gcc where tcc gives up (assembler of trainers for GPUs, deep expressions),
# and for several threads ($OMP_NUM_THREADS), for tcc has no OpenMP.
case " $* " in
*" -fsanitize"*) exec cc "$@" ;;
*" -O0 "*) [ "${OMP_NUM_THREADS:-}" != 1 ] || ! command -v tcc >/dev/null || ! tcc "$@" 2>/dev/null || exit 0 ;;
esac
# shellcheck disable=SC2046
exec cc "$@" $(! command -v ld.gold >/dev/null || echo -fuse-ld=gold) # links in a third of the time
