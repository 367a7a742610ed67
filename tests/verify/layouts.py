"""Layouts of the examples, small enough for the interpreter, each compiled and verified pass by pass.

A case is one model under one layout; verify() runs all passes of it, and two steps before and after them, with gradients
clipped, in the reference interpreter on every virtual rank.  Programs that are compared modulo a prime, too, and with ALL
every one, are so after each pass (`mpc opt --verify-passes`); others at the ends alone (ends.c), in a third of the time.
"""
import concurrent.futures
import itertools
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from cover import ALL, covering, product, some  # noqa: E402, F401 (for tests)

BUILD = ROOT / os.environ.get("BUILD", "build")
MPC, ENDS = BUILD / "mpc", BUILD / "verify/ends"
# Of glibc: memory in large pages, and none given back.  First uses of small ones took up to half of the time.
MEMORY = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**30),
          "MALLOC_TOP_PAD_": str(2**22)}

# Sizes that keep every kind of dim apart, and leave something for each rank of a mesh of four.
SIZES = {
    "gpt2": dict(layers=2, embed=8, heads=4, seq=8, vocab=13),
    "llama": dict(layers=2, embed=8, kv_heads=4, group=2, head=2, ff=8, seq=8, vocab=16),
    "bert": dict(layers=2, embed=8, heads=4, seq=8, vocab=110),
}
# Of pipelines, with at most two ranks on any other axis: half of what grows with an axis.
SIZES_OF_PIPELINES = {
    "gpt2": dict(embed=4, heads=2, seq=4),
    "llama": dict(embed=4, kv_heads=2, ff=4, seq=4),
    "bert": dict(embed=4, heads=2, seq=4),
}
HEADS = {"gpt2": "heads, ff, vocab", "llama": "kv_heads, ff, vocab", "bert": "heads, ff, vocab"}

MESHES = [(1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 1, 2), (1, 1, 4), (1, 2, 1), (1, 4, 1), (2, 1, 2), (2, 2, 1),
          (1, 2, 2), (4, 1, 2), (2, 1, 4), (4, 2, 1), (2, 4, 1), (1, 4, 2), (1, 2, 4), (2, 2, 2)]  # dp, cp, tp
ROUNDS = 3  # of all meshes, each with other settings
PIPELINES = [(2, 1, 1, 1), (4, 1, 1, 1), (2, 2, 1, 1), (4, 2, 1, 1), (2, 1, 1, 2), (4, 1, 1, 2), (2, 1, 2, 1),
             (2, 2, 1, 2)]  # pp, dp, cp, tp
SCHEDULES = ["naive", "gpipe", "1f1b", "zb"]
ATTENDS = ["gather", "ring"]
OVER = ["dp", "dp, cp", "dp (overlap_grads = false, overlap_params = false)"]
EARLY = ["dp", "dp, cp (overlap_grads)", "dp (overlap_grads, grad_dtype = bf16)"]
KEPT = ["f32", "bf16"]  # the dtypes of kept gradients, in turn
LOSSES = ["none", "auto"]  # the loss in one piece, or in chunks wherever that can be: so it is in what is verified
OFFLOADS_OF_PIPELINES = ["", "offload optimizer to disk", "offload optimizer, params to disk", "offload params to disk", "offload optimizer to disk just_in_time"]  # in turn
OFFLOADS = [*OFFLOADS_OF_PIPELINES[:4], "offload activations to disk", "offload optimizer, params, activations to disk",
            "offload optimizer to disk just_in_time", "offload optimizer, activations to disk keep 100 just_in_time"]
CHUNKED = some([("interleaved", 2), ("zb", 2), ("gpipe", 3), ("naive", 2)], 0, 1, 2)  # schedules and stages of a rank


CHOICES = dict(model=list(SIZES), dp=[1, 2, 4], cp=[1, 2, 4], tp=[1, 2, 4], zero=[0, 1, 2, 3], otherwise=[False, True],
               accumulation=[1, 4], recompute=["none", "full", "selective"], precision=["fp32", "bf16", "fp16", "fp8"],
               over=OVER, attend=ATTENDS)
CHOICES_OF_PIPELINES = {**CHOICES, "pp": [2, 4], "dp": [1, 2], "cp": [1, 2], "tp": [1, 2], "accumulation": [2, 4], "over": EARLY,
                        "how": [*((schedule, 1) for schedule in SCHEDULES), *CHUNKED]}


def ranks_of(layout):
    return math.prod(layout.get(axis, 1) for axis in ("pp", "dp", "cp", "ep", "tp"))


def is_small(layout):
    """Stages in chunks are on two ranks."""
    return ranks_of(layout) <= 8 and (layout.get("how", ("", 1))[1] == 1 or layout.get("pp") != 4)


def time_of(layout):
    """About, as measured: llama is interpreted twice as fast as the others."""
    return ((2 + ranks_of(layout)) * (2 + layout.get("accumulation", 1)) * layout.get("how", ("", 1))[1]
            * (1 if layout.get("model", "llama") == "llama" else 2))


def together(layout):
    """Updates just in time run with the forward passes of two micro-batches, where these do not come behind all gathers."""
    waits = layout["offload"].endswith("just_in_time") and layout["zero"] in (0, 3) and layout["accumulation"] > 1
    return {**layout, "offload": layout["offload"] + " 2" * waits}


def abreast(layout, number):
    """So many micro-batches beside each other, in layouts that have four; some ways to offload refuse it."""
    count = 2 if "pp" in layout else (2, 4)[number % 2]
    fits = layout["accumulation"] == 4 and not re.search("activations|just_in_time", layout["offload"])
    fits &= layout.get("schedule") != "interleaved" or 4 // count % layout["pp"] == 0
    return {**layout, "abreast": count if fits else 1}


def layouts():
    """Every pair of choices.  With ALL: every mesh three times, each time with another stage of zero and other settings."""
    draw = random.Random(3)
    if not ALL:
        for number, layout in enumerate(covering(CHOICES, is_small, time_of)):
            drawn = {**layout, "kept": KEPT[number % 2], "loss": LOSSES[number // 2 % 2], "offload": OFFLOADS[number % 8]}
            yield abreast(together(drawn), number)
        return
    for number, (dp, cp, tp) in enumerate(MESHES * ROUNDS):
        yield abreast(dict(model=list(SIZES)[(number + number // len(MESHES)) % len(SIZES)], dp=dp, cp=cp, tp=tp, zero=number % 4,
                           otherwise=draw.random() < 0.5, accumulation=draw.choice([1, 4]), recompute=draw.choice(["none", "full", "selective"]),
                           precision=draw.choice(["fp32", "fp32", "bf16", "fp16", "fp8"]), over=draw.choice(OVER),
                           attend=ATTENDS[number // 4 % 2], kept=KEPT[number // 4 % 2], loss=LOSSES[number // 2 % 2],
                           offload=OFFLOADS[number // 3 % 8]), number)


def pipelines():
    """Every pair of choices.  With ALL: each mesh with stages under each schedule, and with two stages a rank under some."""
    draw = random.Random(2)
    if not ALL:
        for number, layout in enumerate(covering(CHOICES_OF_PIPELINES, is_small, time_of)):
            yield abreast({**layout, "schedule": layout["how"][0], "chunks": layout["how"][1], "kept": KEPT[number % 2],
                           "loss": LOSSES[number // 2 % 2], "offload": OFFLOADS_OF_PIPELINES[number // 2 % 5]}, number)
        return
    each = [(*case, 1) for case in itertools.product(PIPELINES, SCHEDULES)]
    each += [(mesh, *CHUNKED[number % 4]) for number, mesh in enumerate(2 * PIPELINES[:-1]) if mesh[0] == 2]
    for number, ((pp, dp, cp, tp), schedule, chunks) in enumerate(each):
        yield abreast(dict(
            model=list(SIZES)[(number + number // 3) % 3],
            pp=pp, dp=dp, cp=cp, tp=tp, schedule=schedule, chunks=chunks, zero=number % 4, otherwise=draw.random() < 0.5,
            accumulation=draw.choice([2, 4, 4]), recompute=draw.choice(["none", "full", "selective"]),
            precision=draw.choice(["fp32", "fp32", "fp32", "bf16", "fp16", "fp8"]), over=EARLY[number // 2 % 3], attend=ATTENDS[number // 2 % 2],
            kept=KEPT[number // 4 % 2], loss=LOSSES[number // 2 % 2], offload=OFFLOADS_OF_PIPELINES[number // 3 % 5]), number)


def parallel_text(model, layout):
    pieces = 4 if layout["zero"] == 3 and layout["tp"] == 2 and "pp" not in layout else 2  # of two sequences, where a rank has them
    pieces = f" (overlap = {pieces})" if layout["cp"] == 1 and layout["zero"] % 2 and layout["tp"] > 1 else ""
    otherwise = f" else seq{pieces}" if layout["otherwise"] else ""
    stages = f", pp = {layout['pp']}\n    pipeline h over pp, schedule = {layout['schedule']}, chunks = {layout['chunks']}" if "pp" in layout else ""
    return f"""parallel {{
    mesh  dp = {layout["dp"]}, cp = {layout["cp"]}, tp = {layout["tp"]}{stages}
    shard batch over dp
    shard seq over cp (attend = {layout.get("attend", "gather")})
    shard {HEADS[model]} over tp{otherwise}
    zero {layout["zero"]} over {layout["over"]}
    recompute {layout["recompute"]}
    {layout.get("offload", "")}
}}
"""


def model_text(model, layout):
    """The example with another layout; gpt2's padding is cut down like its vocabulary."""
    text = (ROOT / "examples" / f"{model}.mdl").read_text().split("parallel {")[0] + parallel_text(model, layout)
    return re.sub(r"padded \d+", "padded 8", text)


def settings(model, layout, **sizes):
    """Options; `sizes`: of dims, in place of those in SIZES."""
    microbatch, precision = 2 if layout["accumulation"] == 1 else 1, layout["precision"]
    batch = microbatch * layout["dp"] * layout["accumulation"]
    said = [f"-D{name}={value}" for name, value in {**SIZES[model], **sizes}.items()]
    for setting in (f"batch={batch}", f"microbatch={microbatch}", f"precision={precision}", f"grad_storage={layout.get('kept', 'f32')}",
                    f"loss_chunks={layout.get('loss', 'none')}", "clip=0.01", f"abreast={layout.get('abreast', 1)}"):
        said += ["--set", f"train.{setting}"]
    return said


def run(command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, env={**os.environ, **MEMORY})


def passes():
    """Of the compiler, in order."""
    text = run([MPC, "help", "opt"]).stdout.split("passes")[-1]
    return re.findall(r"^ +([a-z_]+) {2,}", text, re.M)


def complaint(name, command, is_good):
    """None, or what the command says, and how to see it again."""
    done = run(command)
    return None if done.returncode == 0 and is_good(done) else f"{name}: " + " ".join(map(str, command)) + "\n" + done.stderr[-2000:]


def verify(folder, name, text, said, option="--verify-passes"):
    """None, or what went wrong and how to see it again; of which pass, where that can be said."""
    exactly = ", exactly\n" if option.endswith("exact") else "\n"
    source, ir = folder / f"{name}.mdl", folder / f"{name}.mir"
    source.write_text(text)
    lowered = complaint(name, [MPC, "compile", source, *said, "--compile-to=lower", "-o", ir], lambda done: True)
    if lowered:
        return lowered
    at_the_ends = None
    if option == "--verify-passes" and not ALL:
        at_the_ends = complaint(name, [ENDS, ir], lambda done: re.fullmatch(r"the same in \d+ tensors\n", done.stdout))
        if not at_the_ends:
            return None
    after_each = [MPC, "opt", ir, "--pass=" + ",".join(passes()), option, "-o", os.devnull]
    return complaint(name, after_each, lambda done: done.stderr.endswith(f" tensors{exactly}")) or at_the_ends


def verify_all(folder, cases, option="--verify-passes"):
    """cases: (name, text of the model, options).  Returns what failed."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = pool.map(lambda case: verify(folder, *case, option), cases)
        return [failure for failure in done if failure]


def name_of(model, layout):
    parts = [f"pp{layout['pp']}x{layout['chunks']}-{layout['schedule']}"] if "pp" in layout else []
    parts += [f"{axis}{layout[axis]}" for axis in ("dp", "cp", "tp", "zero")]
    parts += ["else"] * layout["otherwise"] + [f"acc{layout['accumulation']}", layout["recompute"], layout["precision"]]
    parts += [f"abreast{layout.get('abreast')}"] * (layout.get("abreast", 1) > 1)
    return "-".join([model, *parts])


def cases():
    for layout in layouts():
        model = layout["model"]
        yield name_of(model, layout), model_text(model, layout), settings(model, layout)


def pipeline_cases():
    """A layer for each stage, at least; gpt2 and bert have one tensor at both ends, and bert dropout."""
    for layout in pipelines():
        model = layout["model"]
        layers = max(2, layout["pp"] * layout["chunks"] + layout["chunks"] // 2)
        yield name_of(model, layout), model_text(model, layout), settings(model, layout, layers=layers, **SIZES_OF_PIPELINES[model])


def memory(folder, text, said):
    source = folder / "memory.mdl"
    source.write_text(text)
    return json.loads(run([MPC, "report", source, "--json", *said]).stdout)["memory"]["arena"]


def auto_cases(folder):
    """recompute auto: a layout of each model, with a third or two thirds of the memory between `full` and `none`; with ALL
    three, with both."""
    chosen = list(layouts())
    for number, model in enumerate(SIZES):
        for layout in chosen[number + 1::20 if ALL else len(chosen)]:
            text, said = model_text(model, layout), settings(model, layout)
            most, least = (memory(folder, text, [*said, f"--recompute={policy}"]) for policy in ("none", "full"))
            for part in (1, 2) if ALL else (1 + number % 2,):
                budget = min(least, most) + abs(most - least) * part // 3
                yield f"{name_of(model, layout)}-auto{part}", text, [*said, f"--recompute=auto({budget})"]


def pair_cases():
    """More ranks than heads of keys: the pair is split as one dim, and what has heads alone is held by several."""
    for tp, zero in ((4, 0), (4, 2), (4, 3)):
        layout = dict(dp=2, cp=1, tp=tp, zero=zero, otherwise=zero > 0, accumulation=1, recompute="selective",
                      precision="fp32", over="dp")
        text = model_text("llama", layout).replace("shard kv_heads,", "shard (kv_heads, group),").replace(" (overlap = 2)", "")
        yield f"pair-zero{zero}", text, settings("llama", layout, kv_heads=2)


def border_cases():
    """So much is computed in a layer that its messages cross its borders, of an odd number of layers."""
    for abreast, ff in ((1, 2048), (2, 8192)):
        layout = dict(dp=1, cp=1, tp=2, zero=0, otherwise=True, accumulation=2, abreast=abreast, recompute="selective", precision="fp32", over="dp")
        sizes = dict(layers=3, seq=4, embed=2, kv_heads=2, group=1, ff=ff)
        yield f"borders-{abreast}", model_text("llama", layout), settings("llama", layout, **sizes)


def padded_cases():
    """Dims that no axis divides, padded: what lies behind their ends may be any number, and nobody may notice."""
    smaller = {"gpt2": dict(embed=12, heads=3), "llama": dict(kv_heads=3, ff=7), "bert": dict(embed=12, heads=3)}
    # Without ALL each mesh with one of the models, and the largest with another.
    for (model, sizes), (cp, tp, zero) in some(itertools.product(smaller.items(), ((2, 1, 0), (1, 2, 2), (2, 2, 3))), 0, 4, 5, 8):
        layout = dict(dp=2, cp=cp, tp=tp, zero=zero, otherwise=False, accumulation=1, recompute="selective",
                      precision="fp32", over="dp")
        text = re.sub(r"dim (seq|heads|kv_heads|ff|vocab) ( *= [^#\n]*?)( padded \d+)?( *(#.*)?)\n",
                      r"dim \1 \2 padded 4\4\n", model_text(model, layout))
        yield f"padded-{model}-cp{cp}-tp{tp}", text, settings(model, layout, seq=6, **sizes)
