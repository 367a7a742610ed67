# Completion of mpc for bash, made by 'mpc help --as=bash' from driver/options.def.
_mpc()
{
    local word=${COMP_WORDS[COMP_CWORD]} words files=
    case ${COMP_WORDS[COMP_CWORD - 1]} in =) COMPREPLY=($(compgen -f -- "$word")) && return ;; esac
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "new compile run check report plan explain fmt opt print trace import export plot lsp help --help --version" -- "$word"))
        return
    fi
    case ${COMP_WORDS[1]} in
    new)
        words="--help"
        files=''
        ;;
    compile)
        words="--help --output= --define= --set= --mesh= --zero= --recompute= --offload= --schedule= --stages= --chunks= --target= --comm= --nvrtc= --dump-ir= --compile-to= --compile-from= --verify-passes --remarks= --time --no-cc --cc= --march= --cflags= --verbose"
        files='*.mdl'
        ;;
    run)
        words="--help --elastic= --restarts= --output= --define= --set= --mesh= --zero= --recompute= --offload= --schedule= --stages= --chunks= --target= --comm= --cc= --march= --cflags= --verbose --data= --data-format= --no-shuffle --eval-data= --eval-fraction= --eval-every= --eval-batches= --patience= --steps= --seed= --peak-flops= --replay= --replay-retries= --threads= --offload-folder= --save= --save-every= --save-wait --save-files= --keep= --keep-best --load= --resume --weights-only --load-missing= --load-part= --ema --outputs= --sample= --prompt= --temperature= --top-k= --top-p= --timeout= --print-mesh --print-traffic --kernel-cache= --no-graph --no-cudnn --no-hopper --no-fp8 --share-gpu --nccl-memory --log= --print-every= --trace= --trace-steps= --overwrite --probe= --probe-seconds= --plan --version"
        files='*.mdl'
        ;;
    check)
        words="--help --define= --set= --mesh= --zero= --recompute= --offload= --schedule= --stages= --chunks= --target= --verbose"
        files='*.mdl'
        ;;
    report)
        words="--help --memory= --define= --set= --mesh= --zero= --recompute= --offload= --schedule= --stages= --chunks= --target= --json --html= --svg= --memory-svg= --gpu-flops= --link= --model-explorer= --no-remedies --machine= --costs= --actions"
        files='*.mdl'
        ;;
    plan)
        words="--help --ranks= --memory= --keep= --top= --elastic= --exhaustive --refine --define= --set= --offload= --target= --json --html= --machine= --write"
        files='*.mdl'
        ;;
    explain)
        words="--help --define= --set= --mesh= --zero= --recompute= --offload= --schedule= --stages= --chunks="
        files='*.mdl'
        ;;
    fmt)
        words="--help --check --write"
        files='*.mdl'
        ;;
    opt)
        words="--help --output= --target= --pass= --dump-ir= --verify-passes --remarks= --time"
        files='*.mir'
        ;;
    print)
        words="--help --output= --model-explorer="
        files='*.mir'
        ;;
    trace)
        words="--help --output= --partial merge"
        files='*.json'
        ;;
    import)
        words="--help --output= --define= --model= --map="
        files=''
        ;;
    export)
        words="--help --output= --define= --model= --map= --like= --adapter --ema --overwrite"
        files='*.safetensors'
        ;;
    plot)
        words="--help --output= --svg= --smooth= --title= --tensorboard="
        files='*.jsonl'
        ;;
    lsp)
        words="--help --define= --set= --mesh= --zero= --recompute= --offload= --schedule= --stages= --chunks= --target= --stdio"
        files=''
        ;;
    help)
        words="--help --as= new compile run check report plan explain fmt opt print trace import export plot lsp help"
        files=''
        ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [ -z "$files" ] || COMPREPLY+=($(compgen -f -X "!$files" -- "$word") $(compgen -d -S / -- "$word"))
    case ${COMPREPLY[0]} in *[=/]) compopt -o nospace ;; esac
}
complete -o filenames -F _mpc mpc
