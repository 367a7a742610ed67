#compdef mpc
# Completion of mpc for zsh, made by 'mpc help --as=zsh' from driver/options.def.
local -a commands=(
    'new:write a model with comments to start from'
    'compile:compile a model into a trainer'
    'run:compile a model and train it on this machine'
    'check:check a model and print its size'
    'report:report what a training step costs each rank'
    'plan:find the fastest layout of a model on a machine'
    'explain:follow one tensor through the compiler'
    'fmt:format a .mdl file'
    'opt:run passes on IR'
    'print:parse IR and print it'
    'trace:merge the traces of all ranks of a run'
    'import:make a checkpoint of a Hugging Face model'
    'export:make a Hugging Face model of a checkpoint'
    'plot:draw the curves of training runs'
    'lsp:answer an editor'\''s requests about models'
    'help:explain a command and its options'
)
if ((CURRENT == 2)); then
    _describe -t commands command commands
    _arguments '--help[list the commands]' '--version[print the version]'
    return
fi
local command=$words[2]
shift words
((CURRENT--))
case $command in
    new)
        _arguments -s '--help[explain the command]'
        ;;
    compile)
        _arguments -s '--help[explain the command]' \
            {-o+,--output=}'[the folder of the trainer]:OUT:_files' \
            '*'{-D+,--define=}'[override a const or dim of the file]:NAME=VALUE:' \
            '*''--set=''[override a setting: train.batch=64, train.optimizer.lr=1e-4]:KEY=VALUE:' \
            '--mesh=''[sizes of the mesh axes]:AXIS=N,...:' \
            '--zero=''[what to split over the data axis]:0|1|2|3:(0 1 2 3)' \
            '--recompute=''[what the backward pass recomputes]:POLICY:' \
            '--offload=''[what to keep on the host or on disk, as in parallel { }]:POLICY:' \
            '--schedule=''[schedule of the pipeline]:NAME:' \
            '--stages=''[copies of the repeat that each stage of the pipeline runs, in order]:N,...:' \
            '--chunks=''[stages of each rank of the pipeline, for interleaved, gpipe, naive, and zb, which is then ZB-V]:N:' \
            '--target=''[the target of the trainer]:c|cuda:(c cuda)' \
            '--comm=''[the transport between ranks]:mpi|tcp:(mpi tcp)' \
            '--nvrtc=''[with --target=cuda: compile the kernels ahead for this architecture, and report registers, shared memory, spills]:sm_NN:' \
            '--dump-ir=''[write the IR after each pass to DIR/NN-PASS.mir, and the changes to DIR/NN-PASS.diff]:DIR:_files' \
            '--compile-to=''[stop after a pass (or '\''lower'\'', before the first) and write the IR to OUT]:PASS:_values -s , pass simplify precision chunk autodiff quantize recompute layout collectives padding accumulate pipeline defer fuse abreast offload stacks join ahead overlap memory' \
            '--compile-from=''[continue from the IR of --dump-ir or --compile-to instead of FILE.mdl]:FILE.mir:_files' \
            '--verify-passes=-''[run a small instance of the program before and after each pass, and compare the results]::exact:(exact)' \
            '--remarks=''[print the decisions of a pass and their reasons]:PASS|all:_values -s , pass simplify precision chunk autodiff quantize recompute layout collectives padding accumulate pipeline defer fuse abreast offload stacks join ahead overlap memory' \
            '--time''[print the time of each pass]' \
            '--no-cc''[write trainer.c, and do not run the C compiler]' \
            '--cc=''[the C compiler and its options, quoted as for a shell]:CC:' \
            '--march=''[the processors that the trainer is for, as the C compiler'\''s -march names them]:CPU:' \
            '--cflags=''[flags for the C compiler, after mpc'\''s own, quoted as for a shell]:FLAGS:' \
            {-v+,--verbose}'[print every effective setting, its origin, and the C compiler'\''s command]' \
            '*:file:_files -g "*.mdl"'
        ;;
    run)
        _arguments -s '--help[explain the command]' \
            '--elastic=''[compile ahead for these meshes of fewer ranks]:MESH[\:MESH]...:' \
            '--restarts=''[after a fault, start the trainer again from its newest undamaged checkpoint, up to N times]:N:' \
            {-o+,--output=}'[the folder of the trainer]:OUT:_files' \
            '*'{-D+,--define=}'[override a const or dim of the file]:NAME=VALUE:' \
            '*''--set=''[override a setting: train.batch=64, train.optimizer.lr=1e-4]:KEY=VALUE:' \
            '--mesh=''[sizes of the mesh axes]:AXIS=N,...:' \
            '--zero=''[what to split over the data axis]:0|1|2|3:(0 1 2 3)' \
            '--recompute=''[what the backward pass recomputes]:POLICY:' \
            '--offload=''[what to keep on the host or on disk, as in parallel { }]:POLICY:' \
            '--schedule=''[schedule of the pipeline]:NAME:' \
            '--stages=''[copies of the repeat that each stage of the pipeline runs, in order]:N,...:' \
            '--chunks=''[stages of each rank of the pipeline, for interleaved, gpipe, naive, and zb, which is then ZB-V]:N:' \
            '--target=''[the target of the trainer]:c|cuda:(c cuda)' \
            '--comm=''[the transport between ranks]:mpi|tcp:(mpi tcp)' \
            '--cc=''[the C compiler and its options, quoted as for a shell]:CC:' \
            '--march=''[the processors that the trainer is for, as the C compiler'\''s -march names them]:CPU:' \
            '--cflags=''[flags for the C compiler, after mpc'\''s own, quoted as for a shell]:FLAGS:' \
            {-v+,--verbose}'[print every effective setting, its origin, and the C compiler'\''s command]' \
            '--data=''[the tokens to train on, in files or folders of files]:[INPUT=]FILE[\:WEIGHT]:_files' \
            '--data-format=''[format of the files of --data and --eval-data]:bytes|u16|u32|llmc|megatron|npy:(bytes u16 u32 llmc megatron npy)' \
            '--no-shuffle''[read the sequences in the order of the file]' \
            '--eval-data=''[evaluate on this, after the last step and every --eval-every]:[INPUT=]FILE:_files' \
            '--eval-fraction=''[hold out this share of --data, and evaluate on it]:F:' \
            '--eval-every=''[also evaluate every N steps]:N:' \
            '--eval-batches=''[evaluate on the first N batches]:N:' \
            '--patience=''[end the run when N evaluations in a row have not lowered the lowest loss of an evaluation]:N:' \
            '--steps=''[train up to step N, counted from the start of training]:N:' \
            '--seed=''[initial weights, dropout, data order, samples]:N:' \
            '--peak-flops=''[the peak of a rank in a second, by a data sheet for instance, of which mfu is the share]:FLOPS:' \
            '--replay=''[run every Nth step twice from the same state, and compare the results bit for bit before they count]:N:' \
            '--replay-retries=''[after a difference, run that step up to N times more, until two results are the same]:N:' \
            '--threads=''[processor threads (default]:N:' \
            '--offload-folder=''[folder on disk for the tensors that the layout offloads, in a file without a name that ends with the trainer]:DIR:_files' \
            '--save=''[write a checkpoint (safetensors) at the end, and when interrupted]:FILE:_files' \
            '--save-every=''[also write a checkpoint every N steps]:N:' \
            '--save-wait''[stop training while checkpoints are written, which takes no memory for a copy]' \
            '--save-files=''[write a checkpoint with an index in about N files]:N:' \
            '--keep=''[keep the last N checkpoints of --save-every, each with its step in its name, beside that of --save, which is the newest]:N:' \
            '--keep-best''[also save where the loss of an evaluation is the lowest so far, and keep that checkpoint beside that of --save, with '\''best'\'' in its name]' \
            '--load=''[resume from a checkpoint, or start from weights alone]:FILE:_files' \
            '--resume''[go on from the newest undamaged checkpoint of --save or --keep]' \
            '--weights-only''[take only the weights of --load, and begin a new run at step 0]' \
            '--load-missing=''[what --load does about tensors that the file lacks]:fail|init:(fail init)' \
            '--load-part=''[begin with the weights of a checkpoint in one instance of the model, tensor x of the file as INSTANCE.x]:INSTANCE=FILE:_files' \
            '--ema''[evaluate, sample and write outputs with the mean of weights that train.ema keeps]' \
            '--outputs=''[after the last step, write what each '\''output'\'' of the model is for every record of --eval-data, or else of --data, as DIR/NAME.npy]:DIR:_files' \
            '--sample=''[print N predicted tokens after the last step]:N:' \
            '--prompt=''[the text before them]:TEXT:' \
            '--temperature=''[flatten (above 1) or sharpen the distribution]:X:' \
            '--top-k=''[choose only among the N most likely tokens]:N:' \
            '--top-p=''[choose only among the fewest most likely tokens that together have the share P of the probability]:P:' \
            '--timeout=''[abort all ranks if one waits longer than this for another]:SECONDS:' \
            '--print-mesh''[print a table of the ranks]' \
            '--print-traffic''[print the bytes sent and the time of each collective at the end]' \
            '--kernel-cache=''[folder for compiled kernels]:DIR:_files' \
            '--no-graph''[launch each kernel of a step separately, instead of as one CUDA graph]' \
            '--no-cudnn''[compute attention by the program'\''s own kernels, even where cuDNN is faster]' \
            '--no-hopper''[compute attention without the kernels for Hopper, even where they are faster]' \
            '--no-fp8''[multiply numbers of 8 bits in 16 bits, even where 8 bits are faster]' \
            '--share-gpu''[let ranks share a GPU if a machine has fewer GPUs than ranks]' \
            '--nccl-memory''[let NCCL allocate the tensors and read and write them in place]' \
            '--log=''[write one line of JSON per step]:FILE:_files' \
            '--print-every=''[print a line every N steps, besides the first and the last]:N:' \
            '--trace=''[write a Chrome trace]:FILE:_files' \
            '--trace-steps=''[number of traced steps, from the second step of the run on]:N:' \
            '--overwrite''[let --save, --outputs, --log, --trace and --probe replace existing files]' \
            '--probe=''[train nothing: measure this machine with the trainer'\''s own functions, and write it as a machine file, for mpc report --machine]:FILE:_files' \
            '--probe-seconds=''[about how long to measure]:S:' \
            '--plan''[print the compiler'\''s plan of this trainer]' \
            '--version''[print the model, its source and the version of mpc, and exit]' \
            '*:file:_files -g "*.mdl"'
        ;;
    check)
        _arguments -s '--help[explain the command]' \
            '*'{-D+,--define=}'[override a const or dim of the file]:NAME=VALUE:' \
            '*''--set=''[override a setting: train.batch=64, train.optimizer.lr=1e-4]:KEY=VALUE:' \
            '--mesh=''[sizes of the mesh axes]:AXIS=N,...:' \
            '--zero=''[what to split over the data axis]:0|1|2|3:(0 1 2 3)' \
            '--recompute=''[what the backward pass recomputes]:POLICY:' \
            '--offload=''[what to keep on the host or on disk, as in parallel { }]:POLICY:' \
            '--schedule=''[schedule of the pipeline]:NAME:' \
            '--stages=''[copies of the repeat that each stage of the pipeline runs, in order]:N,...:' \
            '--chunks=''[stages of each rank of the pipeline, for interleaved, gpipe, naive, and zb, which is then ZB-V]:N:' \
            '--target=''[the target of the trainer]:c|cuda:(c cuda)' \
            {-v+,--verbose}'[also list the parameters, and which of them decay]' \
            '*:file:_files -g "*.mdl"'
        ;;
    report)
        _arguments -s '--help[explain the command]' \
            '--memory=''[the memory that a rank may use]:BYTES:' \
            '*'{-D+,--define=}'[override a const or dim of the file]:NAME=VALUE:' \
            '*''--set=''[override a setting: train.batch=64, train.optimizer.lr=1e-4]:KEY=VALUE:' \
            '--mesh=''[sizes of the mesh axes]:AXIS=N,...:' \
            '--zero=''[what to split over the data axis]:0|1|2|3:(0 1 2 3)' \
            '--recompute=''[what the backward pass recomputes]:POLICY:' \
            '--offload=''[what to keep on the host or on disk, as in parallel { }]:POLICY:' \
            '--schedule=''[schedule of the pipeline]:NAME:' \
            '--stages=''[copies of the repeat that each stage of the pipeline runs, in order]:N,...:' \
            '--chunks=''[stages of each rank of the pipeline, for interleaved, gpipe, naive, and zb, which is then ZB-V]:N:' \
            '--target=''[the target of the trainer]:c|cuda:(c cuda)' \
            '--json''[print JSON instead of tables]' \
            '--html=''[also write a page: memory over the step, what its peak is made of, layers with their types, messages by axis, beside the text of the model]:FILE.html:_files' \
            '--svg=''[write a picture of the schedule of the pipeline, or with --machine of the step, for other pages]:FILE.svg:_files' \
            '--memory-svg=''[write a picture of the memory over the step, by line of the model, for other pages]:FILE.svg:_files' \
            '--gpu-flops=''[with a pipeline: the FLOPs that a rank computes in a second, 4e14 or a measured speed, for times in seconds]:FLOPS:' \
            '--link=''[with --gpu-flops: bytes that a stage sends to the next one in a second]:BYTES:' \
            '--model-explorer=''[also write the program for Google'\''s Model Explorer]:FILE.json:_files' \
            '--no-remedies''[do not search for options that make the model fit or, if a step waits for offloaded tensors, make it faster]' \
            '--machine=''[the machines of the mesh, h100 or a file]:NAME|FILE:_files' \
            '--costs=''[also write the step as a list of what each kind of rank computes and sends, in order]:FILE.json:_files' \
            '--actions''[with --json and a pipeline]' \
            '*:file:_files -g "*.mdl"'
        ;;
    plan)
        _arguments -s '--help[explain the command]' \
            '--ranks=''[the ranks of the mesh]:N:' \
            '--memory=''[the memory that a rank may use]:BYTES:' \
            '*''--keep=''[search only layouts with this size of an axis]:NAME=VALUE:' \
            '--top=''[list so many layouts, each the best one of its mesh]:N:' \
            '--elastic=''[machines of --ranks were lost]:N:' \
            '--exhaustive''[compile every layout of the space, without bounds]' \
            '--refine''[compile the listed layouts also with messages in 2 and 4 pieces and 2 and 4 micro-batches abreast, and list what is fastest]' \
            '*'{-D+,--define=}'[override a const or dim of the file]:NAME=VALUE:' \
            '*''--set=''[override a setting: train.batch=64, train.optimizer.lr=1e-4]:KEY=VALUE:' \
            '--offload=''[what to keep on the host or on disk, as in parallel { }]:POLICY:' \
            '--target=''[the target of the trainer]:c|cuda:(c cuda)' \
            '--json''[print JSON instead of tables]' \
            '--html=''[also write a page: the memory and time of all layouts that were compiled, with their reasons]:FILE.html:_files' \
            '--machine=''[the machines of the ranks]:NAME|FILE:_files' \
            '--write''[write the first layout into the file, in place of its parallel block]' \
            '*:file:_files -g "*.mdl"'
        ;;
    explain)
        _arguments -s '--help[explain the command]' \
            '*'{-D+,--define=}'[override a const or dim of the file]:NAME=VALUE:' \
            '*''--set=''[override a setting: train.batch=64, train.optimizer.lr=1e-4]:KEY=VALUE:' \
            '--mesh=''[sizes of the mesh axes]:AXIS=N,...:' \
            '--zero=''[what to split over the data axis]:0|1|2|3:(0 1 2 3)' \
            '--recompute=''[what the backward pass recomputes]:POLICY:' \
            '--offload=''[what to keep on the host or on disk, as in parallel { }]:POLICY:' \
            '--schedule=''[schedule of the pipeline]:NAME:' \
            '--stages=''[copies of the repeat that each stage of the pipeline runs, in order]:N,...:' \
            '--chunks=''[stages of each rank of the pipeline, for interleaved, gpipe, naive, and zb, which is then ZB-V]:N:' \
            '*:file:_files -g "*.mdl"'
        ;;
    fmt)
        _arguments -s '--help[explain the command]' \
            '--check''[print nothing; exit with status 1 if the file is not formatted]' \
            '--write''[write the file back instead of printing it]' \
            '*:file:_files -g "*.mdl"'
        ;;
    opt)
        _arguments -s '--help[explain the command]' \
            {-o+,--output=}'[the file of the IR; a file of another kind is not replaced]:FILE.mir:_files' \
            '--target=''[the target of the trainer]:c|cuda:(c cuda)' \
            '--pass=''[the passes to run, in the compiler'\''s order]:PASS,...:_values -s , pass simplify precision chunk autodiff quantize recompute layout collectives padding accumulate pipeline defer fuse abreast offload stacks join ahead overlap memory' \
            '--dump-ir=''[write the IR after each pass to DIR/NN-PASS.mir, and the changes to DIR/NN-PASS.diff]:DIR:_files' \
            '--verify-passes=-''[run a small instance of the program before and after each pass, and compare the results]::exact:(exact)' \
            '--remarks=''[print the decisions of a pass and their reasons]:PASS|all:_values -s , pass simplify precision chunk autodiff quantize recompute layout collectives padding accumulate pipeline defer fuse abreast offload stacks join ahead overlap memory' \
            '--time''[print the time of each pass]' \
            '*:file:_files -g "*.mir"'
        ;;
    print)
        _arguments -s '--help[explain the command]' \
            {-o+,--output=}'[the file of the IR; a file of another kind is not replaced]:FILE.mir:_files' \
            '--model-explorer=''[also write the program for Google'\''s Model Explorer]:FILE.json:_files' \
            '*:file:_files -g "*.mir"'
        ;;
    trace)
        _arguments -s '--help[explain the command]' \
            {-o+,--output=}'[the file of the merged trace]:FILE.json:_files' \
            '--partial''[merge even if ranks have no file]' \
            ':word:(merge)' \
            '*:file:_files -g "*.json"'
        ;;
    import)
        _arguments -s '--help[explain the command]' \
            {-o+,--output=}'[the checkpoint; a file of another kind is not replaced]:FILE.safetensors:_files' \
            '*'{-D+,--define=}'[override a const or dim of the file]:NAME=VALUE:' \
            '--model=''[the model whose parameters they are]:FILE.mdl:_files' \
            '--map=''[the map of tensors to parameters]:FILE.map:_files' \
            ':folder:_files -/'
        ;;
    export)
        _arguments -s '--help[explain the command]' \
            {-o+,--output=}'[the folder of the model]:OUT:_files' \
            '*'{-D+,--define=}'[override a const or dim of the file]:NAME=VALUE:' \
            '--model=''[the model whose parameters they are]:FILE.mdl:_files' \
            '--map=''[the map of tensors to parameters]:FILE.map:_files' \
            '--like=''[the folder that the weights came from]:DIR:_files' \
            '--adapter''[export only the adapters of low rank, as a folder of peft]' \
            '--ema''[export the mean of weights that train.ema keeps, in place of the weights]' \
            '--overwrite''[replace the folder OUT if it exists]' \
            '*:file:_files -g "*.safetensors"'
        ;;
    plot)
        _arguments -s '--help[explain the command]' \
            {-o+,--output=}'[the page; a file of another kind is not replaced]:FILE.html:_files' \
            '--svg=''[write a picture of the loss, for other pages]:FILE.svg:_files' \
            '--smooth=''[draw strong lines as centred means over this number of steps]:STEPS:' \
            '--title=''[the title of the page]:TEXT:' \
            '--tensorboard=''[write the numbers of the logs as event files of TensorBoard, to DIR/NAME for each run]:DIR:_files' \
            '*:file:_files -g "*.jsonl"'
        ;;
    lsp)
        _arguments -s '--help[explain the command]' \
            '*'{-D+,--define=}'[override a const or dim of the file]:NAME=VALUE:' \
            '*''--set=''[override a setting: train.batch=64, train.optimizer.lr=1e-4]:KEY=VALUE:' \
            '--mesh=''[sizes of the mesh axes]:AXIS=N,...:' \
            '--zero=''[what to split over the data axis]:0|1|2|3:(0 1 2 3)' \
            '--recompute=''[what the backward pass recomputes]:POLICY:' \
            '--offload=''[what to keep on the host or on disk, as in parallel { }]:POLICY:' \
            '--schedule=''[schedule of the pipeline]:NAME:' \
            '--stages=''[copies of the repeat that each stage of the pipeline runs, in order]:N,...:' \
            '--chunks=''[stages of each rank of the pipeline, for interleaved, gpipe, naive, and zb, which is then ZB-V]:N:' \
            '--target=''[the target of the trainer]:c|cuda:(c cuda)' \
            '--stdio''[talk over standard input and output]'
        ;;
    help)
        _arguments -s '--help[explain the command]' \
            '--as=''[print the whole help as a manual page, or as completion for a shell]:man|bash|zsh|fish:(man bash zsh fish)' \
            ':command:(new compile run check report plan explain fmt opt print trace import export plot lsp help)'
        ;;
esac
