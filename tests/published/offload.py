"""Models whose state is on the host of one GPU: what mpc predicts, and what others publish (offload.csv).

Of SuperOffload's 600 TFLOP/s the script counts a forward pass as 2 FLOPs of each parameter and token and 4 of each pair of
tokens, layer and feature, and four such passes with recomputation (DeepSpeedExamples: estimate_transformer_tflops).  It
updates weights on the CPU while the backward pass runs.  mpc updates them on the GPU when the norm of all
gradients is known: nothing hides these transfers.  So the predictions are those of another mechanism with the same purpose.

ZeRO-Infinity (arXiv 2104.07857, section 4): moving optimizer states alone leaves `bandwidth_law` of the speed.  They are 16
bytes of each parameter, read and written.  mpc leaves the gradient on the GPU: 16 bytes read and 12 written, with the cast.

Not compared: ZeRO-Offload's 40 TFLOP/s with 10 billion parameters (arXiv 2101.06840) and ZeRO-3 Offload's 40 billion
parameters are of V100s, for which mpc's trainers have no kernels.
"""
from reports import HERE, report, rows, settings, sizes

LLAMA = HERE / "llama.mdl"
SHAPES = {"Llama 8B": dict(layers=32, embed=4096, kv_heads=8, group=4, head=128, ff=14336, vocab=128256),
          "Qwen3 14B": dict(layers=40, embed=5120, kv_heads=8, group=5, head=128, ff=17408, vocab=151936),
          "Qwen3 32B": dict(layers=64, embed=5120, kv_heads=8, group=8, head=128, ff=25600, vocab=151936),
          "Llama 70B": dict(layers=80, embed=8192, kv_heads=8, group=8, head=128, ff=28672, vocab=128256)}
NARROW = settings(grad_storage="bf16")
NONE, STATE, ALL = [], ["--offload=optimizer to host"], ["--offload=optimizer, params to host"]


def step(machine, options, batch=16, microbatch=4, seq=4096, **shape):
    """All activations are recomputed, and the loss is computed in chunks."""
    return report([LLAMA, *sizes(seq=seq, **shape), *settings(batch=batch, microbatch=microbatch, loss_chunks="auto"),
                   "--recompute=full", *options], machine)


def fits(made, host=float("inf")):
    """The memory of the host is not in machine files."""
    return made["time"]["memory_bytes"] <= made["time"]["memory_room_bytes"] and made["memory"].get("offloaded", {"bytes": 0})["bytes"] <= host


def waited(made):
    """Seconds for transfers."""
    return sum(axes["exposed"] for axes in made["time"]["axes"] if axes["axes"] == "host")


def flops_as_superoffload(parameters, layers, embed, seq, sequences):
    return sequences * (8 * parameters * seq + 16 * layers * embed * seq**2)


def bandwidth_law(tokens, bandwidth, speed, bytes_of_parameter=32):
    """The share of its speed, in FLOP/s with recomputation, that is left: 8 FLOPs of each parameter and token."""
    intensity = 8 * tokens / bytes_of_parameter
    return intensity * bandwidth / (intensity * bandwidth + speed)


def superoffload():
    """(row, report, predicted TFLOP/s as the row counts them)"""
    for row in rows("offload.csv"):
        if row["tflops"]:
            shape = {name: row[name] for name in ("layers", "embed", "kv_heads", "group", "head", "ff", "vocab")}
            made = step(row["gpu"], STATE, batch=row["batch"], microbatch=row["batch"], **shape)
            flops = flops_as_superoffload(made["parameters"], int(row["layers"]), int(row["embed"]), int(row["seq"]), int(row["batch"]))
            yield row, made, flops / made["time"]["seconds"] / 1e12


def largest(machine, options):
    """Parameters of the largest model of Qwen3 14B's layers that fits, with micro-batches of 1,024 tokens and 480 GB of the host."""
    found, low, high = None, 1, 1024
    while high - low > 1:
        layers = (low + high) // 2
        made = step(machine, options, batch=2, microbatch=1, seq=1024, **{**SHAPES["Qwen3 14B"], "layers": layers})
        found, low, high = (made, layers, high) if fits(made, 480e9) else (found, low, layers)
    return found["parameters"]


def fastest(machine, shape):
    """The first that fits, or what needs least: (options, report)."""
    for options in (NONE, STATE, STATE + NARROW, ALL, ALL + NARROW):
        made = step(machine, options, **shape)
        if fits(made):
            break
    return options, made


def print_steps():
    for row, made, tflops in superoffload():
        print(f"{row['system']}, {row['model']}, {row['batch']} x {row['seq']} tokens on one {row['gpu']}: {row['tflops']} TFLOP/s published, "
              f"{tflops:.0f} predicted, of {made['time']['seconds']:.2f} s {waited(made):.2f} s wait for transfers")
    for row in rows("offload.csv"):
        if row["largest"]:
            options = {"SuperOffload": ALL + NARROW, "ZeRO-Offload": STATE, "PyTorch DDP": NONE}[row["system"]]
            print(f"the largest model on one {row['gpu']}: {float(row['largest']) / 1e9:.1f} billion parameters by {row['system']}, "
                  f"{largest(row['gpu'], options) / 1e9:.1f} by mpc with {' '.join(options) or 'nothing offloaded'}")
    for machine in ("h100", "gh200"):
        for name, shape in SHAPES.items():
            options, made = fastest(machine, shape)
            time = made["time"]
            end = f"{time['seconds']:6.2f} s, MFU {100 * time['mfu']:.1f} %, {waited(made):5.2f} s wait" if fits(made) else "does not fit"
            print(f"{name:9} on {machine:5}  {time['memory_bytes'] / 1e9:6.1f} of {time['memory_room_bytes'] / 1e9:.1f} GB  {end:40} {' '.join(options)}".rstrip())
