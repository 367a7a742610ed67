#!/bin/sh
# quick_cc.sh ARGUMENT... -- the C compiler of tests ($CC of mpc).  Trainers for a few small steps, which are compiled with -O0,
# are made by tcc, in a thirtieth of gcc's time; by gcc where tcc gives up (deep expressions), and for several threads
# ($OMP_NUM_THREADS), for tcc has no OpenMP.
gold=$(! command -v ld.gold >/dev/null || echo -fuse-ld=gold) # links in a third of the time

# A trainer for GPUs: tcc, which has no .incbin, makes the object of its code, `as` that of its kernels, which lie in the last
# folder of -I; gcc links them, with the symbols that the emulated device gives to kernels.  What has words that may change the
# code, such as -D and -include, is left to gcc.
make_for_gpu() # ARGUMENT...
(
    work=$(mktemp -d) source='' runtime='' folder=''
    trap 'rm -rf "$work"' EXIT
    for word; do
        shift
        case $word in
        -I*) folder=${word#-I} runtime=${runtime:-$folder} ;;
        *.c) source=$word word=$work/trainer.o ;;
        -std=* | -O* | -f* | -march=* | -rdynamic | -o | -l*) ;;
        -*) exit 1 ;;
        esac
        set -- "$@" "$word"
    done
    sed 's/^RT_EMBED(kernels_text, "kernels.cu");$/extern const char kernels_text[];/' "$source" >"$work/trainer.c" &&
        tcc -c "-I$runtime" "-I$folder" -o "$work/trainer.o" "$work/trainer.c" 2>/dev/null &&
        printf '.section %s\n.globl kernels_text\nkernels_text: .incbin "%s"\n.byte 0\n.section .note.GNU-stack,"",@progbits\n' \
            .rodata "$folder/kernels.cu" | as -o "$work/kernels.o" - && cc "$@" "$work/kernels.o" $gold
)

may_be_tcc() { [ "${OMP_NUM_THREADS:-}" = 1 ] && command -v tcc >/dev/null; }

case " $* " in
*" -fsanitize"*) exec cc "$@" ;;
*" -O0 -rdynamic "*) ! may_be_tcc || ! make_for_gpu "$@" || exit 0 ;;
*" -O0 "*) ! may_be_tcc || ! tcc "$@" 2>/dev/null || exit 0 ;;
esac
exec cc "$@" $gold
