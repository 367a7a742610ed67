"""BLOOM's sweep over layouts, 384 A100 of 80 GB: what ran, what ran out of memory, seconds of a step.

bloom-a100-3d-sweep.csv     bigscience-workshop/bigscience@9e64ede: train/tr11-176B-ml/chronicles-prequel.md, by line there;
                            of lines 658-660 the batch, of 891 and 892 the sizes are those of the headings above them

Megatron-DeepSpeed with activation checkpointing, 1f1b and ZeRO 1, without sequence parallelism; dropout is left out.
Gradients are added up in f16 until DeepSpeed's BF16_Optimizer came, on 02-28, which has them in f32.

Where the allocations differ: beside its sums in f32, BF16_Optimizer keeps the gradients in bf16; CUDA and its kernels have
about 2 GB (the chronicle).  PyTorch's allocator loses some, and messages are gathered in buffers; how much is not published:
it is what is missing, a tenth in the middle.
Zero splits dims, DeepSpeed a flat list of elements: where dp does not divide the width, it is padded here.
"""
from reports import HERE, quantile, reports, rows, settings, sizes

GB = 1.048576e9       # 1000 MiB: nvidia-smi prints MiB; with 1024, predictions are 2.4 % less of the published memory
KERNELS = 2e9         # of CUDA, on each GPU
UNEXPLAINED = "957"   # with as many parameters on a rank, and the same layout, line 939 ran in 67 GB


def width_of(row):
    """The first table says that all have the same; it is that of its row in the next one."""
    return int(row["hidden"] or 14400)


def layers_of(row):
    """As published; or, of the first tables, from their TFLOP/s: 8 FLOPs of a token for each parameter of the layers."""
    if row["layers"]:
        return int(row["layers"])
    flops = 1e12 * float(row["tflops_reported"]) * float(row["sec_per_it"]) * int(row["gpus"])
    layers = flops / (8 * int(row["gbs"]) * 2048 * (12 * width_of(row) ** 2 + 13 * width_of(row)))
    assert abs(layers - round(layers)) < 0.05, row
    return round(layers)


def heads_of(row):
    """As published; else 64, as "Final round comparison" says of those above too; the width 14400 has 96."""
    return int(row["heads"] or (96 if width_of(row) == 14400 else 64))


def stages_of(row):
    """As many layers for each but the last; from line 891 on, embedding and head count as a layer each."""
    layers, pp, ends = layers_of(row), int(row["pp"]), int(row["line"]) >= 891
    left, stages = layers + 2 * ends, []
    for stage in range(pp):
        stages.append(min(-(-(layers + 2 * ends) // pp), left))
        left -= stages[-1]
    stages[0] -= ends
    stages[-1] -= ends
    return stages


def in_bf16(row):
    return row["date"] >= "02-28"


def words_of(row):
    width, dp = width_of(row), int(row["dp"])
    words = sizes(layers=layers_of(row), embed=width, heads=heads_of(row), grain=8 * dp if width % dp else 1)
    words += settings(batch=row["gbs"], microbatch=row["mbs"], precision="bf16" if in_bf16(row) else "fp16",
                      grad_storage="f32" if in_bf16(row) else "bf16")
    if int(row["pp"]) > 1:
        words += ["--stages=" + ",".join(map(str, stages_of(row)))]
    return [HERE / "gpt.mdl", *words, f"--mesh=pp={row['pp']},dp={dp},tp={row['tp']}", f"--zero={row['zero']}",
            "--recompute=full"]


def sweep():
    """(row, report) of the rows that ran or ran out of memory, and have as many ranks as their layout."""
    table = [row for row in rows("bloom-a100-3d-sweep.csv") if row["mem_gb"] or row["sec_per_it"]]
    table = [row for row in table if int(row["dp"]) * int(row["tp"]) * int(row["pp"]) == int(row["gpus"])]
    return list(zip(table, reports(map(words_of, table), "a100")))


def out_of_memory(row):
    return row["mem_gb"] == "OOM"


def as_deepspeed(row, report):
    """Bytes, with what DeepSpeed and CUDA have beside."""
    gradients = 0.5 if in_bf16(row) else 0
    return KERNELS + max(kind["arena"] + kind["messages"] + gradients * kind["gradients"]
                         for kind in report["memory"]["kinds"])


def needed(row, report):
    """The share of a rank's memory, with that."""
    return as_deepspeed(row, report) / report["time"]["memory_room_bytes"]


def memory_ratios(found):
    """as_deepspeed() over the published memory."""
    return [as_deepspeed(row, report) / (GB * float(row["mem_gb"])) for row, report in found if row["mem_gb"].isdigit()]


def time_ratios(found):
    """Published seconds over predicted ones."""
    return [float(row["sec_per_it"]) / report["time"]["seconds"] for row, report in found if row["sec_per_it"]]


def choices(found):
    """Of each set of layouts of one model on one day: the published time of the one that is predicted to be the fastest,
    over the shortest."""
    sets = {}
    for row, report in found:
        if row["sec_per_it"]:
            model = row["date"][:5], row["gpus"], width_of(row), layers_of(row), heads_of(row), row["gbs"]
            sets.setdefault(model, []).append((report["time"]["seconds"], float(row["sec_per_it"])))
    return [min(pairs)[1] / min(seconds for _, seconds in pairs) for pairs in sets.values() if len(pairs) > 1]


def print_sweep():
    found = sweep()
    for row, report in found:
        published = f"{row['mem_gb']:>3} GB" if row["mem_gb"].isdigit() else row["mem_gb"] or "ran"
        print(f"{row['line']} {layers_of(row)} x {width_of(row)}, {heads_of(row)} heads: "
              f"pp {row['pp']} dp {row['dp']} tp {row['tp']}, {row['mbs']} of {row['gbs']}: {published}, "
              f"predicted {report['time']['memory_bytes'] / 1e9:.1f}, as DeepSpeed {as_deepspeed(row, report) / 1e9:.1f}; "
              f"{row['sec_per_it']} s, predicted {report['time']['seconds']:.1f}" +
              (f" ({100 * (report['time']['seconds'] / float(row['sec_per_it']) - 1):+.0f} %)" if row["sec_per_it"] else ""))
    memory, times, chosen = memory_ratios(found), time_ratios(found), choices(found)
    print(f"{len(memory)} with memory: predicted, as DeepSpeed, over published {quantile(memory, 0.5):.3f}, nine of ten "
          f"{quantile(memory, 0.05):.2f} to {quantile(memory, 0.95):.2f}")
    refused = [row["line"] for row, report in found if not out_of_memory(row) and needed(row, report) > 1]
    print(f"{sum(not out_of_memory(row) for row, _ in found)} ran, refused: {', '.join(refused)}; out of memory: " +
          ", ".join(f"{row['line']} {100 * needed(row, report):.0f} %" for row, report in found if out_of_memory(row)))
    print(f"{len(times)} with seconds: published over predicted {quantile(times, 0.5):.2f}, {min(times):.2f} to "
          f"{max(times):.2f}; {len(chosen)} choices: mean {sum(chosen) / len(chosen):.3f}, at most {max(chosen):.3f}")
