#!/bin/sh
# layout.sh FILE all|collectives [OPTION...] -- the model of models/layer.mdl under the `train` and `parallel` of FILE,
# compiled up to its collectives: of the IR, what it takes to see a layout.  Functions and collectives; with `all` also
# products, attention, embeddings, what a softmax reduces, and loops.
set -eu
file=$1
ops='all_reduce|all_gather|reduce_scatter|all_to_all|rotate|local_slice'
[ "$2" = collectives ] || ops="$ops|dot|attend|attend_grad|lse_add|lse_share|gather|scatter_add|max|sum .*\\{over=vocab\\}|loop"
shift 2
cat "$(dirname "$0")/models/layer.mdl" "$file" | mpc compile /dev/stdin --compile-to=collectives "$@" |
    grep -E "^ +(func|return) | = ($ops) " | sed 's/ loc(.*)$//'
