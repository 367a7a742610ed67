#!/usr/bin/env python3
"""What mpc's trainers cost on one GPU, beside PyTorch, in one run.

    make bench-gpu                         everything; writes bench/results/DATE-gpu-NAME.md, row by row
    python3 bench/gpu.py --only 124M       the rows with these words (as in "GPT-2 124M, 32 x 1024"), into a file of their own
    python3 bench/gpu.py --quick           the smallest shape alone, nothing written
    python3 bench/gpu.py --list            the rows, and what each would run; needs no GPU
    python3 gpu.py --trainers DIR          with trainers compiled elsewhere, in folders as --list names them, on the tokens in
                                           DIR/tokens.u16; results go to DIR (tests/gpu/bundle/)
    python3 gpu.py --alone                 without PyTorch

Per shape and sequence length, in bf16 (and one in fp8, without a peer): tokens/s and model FLOPs utilisation (of the best product that was measured in the
same run, and of the data sheet's dense bf16), peak memory, each beside PyTorch's (torch.compile, fused AdamW, its own
fused attention: bench/pytorch.py) as a ratio; then where mpc's step goes, by kind of kernel, how fast products and
attention are (causal: half of the products of all queries and keys), and which share of the measured copy bandwidth the
kernels reach that are bound by memory, together and each.  Both pad the vocabulary to a multiple of 128.  A step's time is the median of those
after the first five.  PyTorch must see the GPU: any torch of the python3 that runs this will do; without one, mpc is
measured alone.
"""

import argparse
import collections
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "bench-gpu"  # of trainers, by the names of folder_of
RESULTS = ROOT / "bench" / "results"
IS_COMPILED = False  # all trainers are there
MPC = ROOT / "build" / "mpc"
STEPS, WARM = 20, 5
PATIENCE = 1800  # seconds for one command
MOST = 20  # kernels of one table

# Name, shape (pytorch.py reads the same), batch at 1024 tokens; llama 8B-shaped with as many layers as one GPU holds.
GPT2 = dict(model="gpt2", vocab=50257)
LLAMA = dict(model="llama", vocab=128256, head=128)
ROWS = [
    ("GPT-2 124M", dict(GPT2, layers=12, embed=768, heads=12, ff=3072), 32),
    ("GPT-2 1.5B", dict(GPT2, layers=48, embed=1600, heads=25, ff=6400), 16),
    ("Llama 1B", dict(LLAMA, layers=16, embed=2048, kv_heads=8, group=4, head=64, ff=8192), 16),
    ("Llama 8B, 8 of 32 layers", dict(LLAMA, layers=8, embed=4096, kv_heads=8, group=4, ff=14336), 8),
    ("Llama 8B, 8 of 32 layers, fp8", dict(LLAMA, layers=8, embed=4096, kv_heads=8, group=4, ff=14336, precision="fp8"), 8),
]
# Kinds of kernels that are bound by arithmetic, and how much of what the model counts they have to do: causal attention half.
COMPUTING = {"product": 1, "attend": 0.5, "attend_grad": 0.5}
# Dense bf16 FLOP/s of the data sheets.
DATA_SHEET = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}


def say(text):
    print(text, flush=True)


def gpu_name():
    """What nvidia-smi calls the first GPU; None where there is none."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


class Failed(Exception):
    """What a command has said."""


def run(command):
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}\nstill runs after {PATIENCE} s") from None
    if done.returncode:
        raise Failed(f"{' '.join(command)}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")
    return done


def make_text():
    """Random tokens: the work does not depend on what they are."""
    import random
    path = OUT / "tokens.u16"
    if not path.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        generator = random.Random(1)
        path.write_bytes(b"".join(generator.randrange(30000).to_bytes(2, "little") for _ in range(1_000_000)))
    return path


def precision_of(shape):
    return shape.get("precision", "bf16")


def compile_command(shape, batch, seq, folder):
    derived = ("model", "precision", "ff") if shape["model"] == "gpt2" else ("model", "precision")  # gpt2.mdl: ff = 4 * embed
    dims = [word for key, value in shape.items() if key not in derived for word in ("-D", f"{key}={value}")]
    return [MPC, "compile", ROOT / "examples" / f"{shape['model']}.mdl", "--target=cuda", "-o", folder, *dims,
            "-D", f"seq={seq}", "--set", f"train.batch={batch}", "--set", f"train.microbatch={batch}",
            "--set", f"train.precision={precision_of(shape)}", "--recompute", "none"]


def folder_of(shape, batch, seq):
    return OUT / f"{shape['model']}-{shape['layers']}x{shape['embed']}-{batch}x{seq}-{precision_of(shape)}"


def steps_of(trace):
    """The kernels of a trace's steps: (kind, name with its place in the model, seconds of a step, bytes, FLOPs)."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    steps = sum(event["cat"] == "step" for event in events)
    for event in events:
        if event["cat"] != "step":
            said, seconds = event["args"], event["dur"] / 1e6 / steps
            yield (event["cat"], f"{said['kernel']} ({said['where']})", seconds,
                   said.get("gbytes_per_s", 0) * 1e9 * seconds, said.get("gflops_per_s", 0) * 1e9 * seconds)


def is_moving(kind):
    """Is a kernel of this kind bound by memory?"""
    return kind not in COMPUTING and kind != "collective"


def rates(trace, bandwidth):
    """Two lists, the longest first: (kind of kernel, its milliseconds of a step, TFLOP/s of those bound by arithmetic, share of
    the copy bandwidth of those bound by memory); and of each kernel bound by memory (name, milliseconds, share)."""
    kinds, kernels = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
    for kind, name, *amounts in steps_of(trace):
        for total in [kinds[kind]] + [kernels[name]] * is_moving(kind):
            total.update(dict(zip(("seconds", "bytes", "flops"), amounts)))

    def longest(totals):
        return sorted((item for item in totals.items() if item[1]["seconds"] > 0), key=lambda item: -item[1]["seconds"])

    def share(total):
        return f"{100 * total['bytes'] / total['seconds'] / bandwidth:.0f} %" if bandwidth else ""

    by_kind = [(kind, f"{total['seconds'] * 1e3:.3f}",
                f"{total['flops'] * COMPUTING[kind] / total['seconds'] / 1e12:.0f}" if kind in COMPUTING else "",
                share(total) if is_moving(kind) else "") for kind, total in longest(kinds)]
    return by_kind, [(name, f"{total['seconds'] * 1e3:.3f}", share(total)) for name, total in longest(kernels)]


def measure_steps(folder, text, *options):
    """The log's lines, and what the trainer says of attention."""
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    done = run([folder / "trainer", "--data", text, "--steps", STEPS, "--log", log, *options])
    notes = [line for line in done.stderr.splitlines() if line.startswith(("attention:", "products:"))]
    return [json.loads(line) for line in log.read_text().splitlines()], notes


def step_ms(entries):
    return statistics.median(entry["step_ms"] for entry in entries[WARM:])


def measure_mpc(shape, batch, seq, text, bandwidth):
    folder = folder_of(shape, batch, seq)
    if not IS_COMPILED:
        run(compile_command(shape, batch, seq, folder))
    trace = folder / "trace.json"
    entries, said = measure_steps(folder, text)
    without, _ = measure_steps(folder, text, "--no-cudnn")
    run([folder / "trainer", "--data", text, "--steps", 4, "--trace", trace, "--trace-steps", 2, "--overwrite"])
    facts = json.loads((folder / "plan.json").read_text())
    kinds, kernels = rates(trace, bandwidth)
    return dict(ms=step_ms(entries), own_ms=step_ms(without), said=said, bytes=entries[-1]["peak_bytes"],
                mfu=statistics.median(entry["mfu"] for entry in entries[WARM:]), kinds=kinds, kernels=kernels, plan=facts)


def has_pytorch():
    try:
        import torch
        return torch.cuda.is_available()
    except ImportError:
        return False


def measure_pytorch(shape, batch, seq):
    padded = dict(shape, vocab=-(-shape["vocab"] // 128) * 128)
    command = [sys.executable, Path(__file__).with_name("pytorch.py"), json.dumps(padded), batch, seq, "bf16", "compile", STEPS, 1,
               "cuda"]
    return json.loads(run(command).stdout.splitlines()[-1])


def copy_bandwidth():
    """Bytes read and written a second by the best copy of 1 GB, by PyTorch."""
    import torch
    a = torch.empty(1 << 28, dtype=torch.float32, device="cuda")
    b = torch.empty_like(a)
    best = 0.0
    for _ in range(20):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        b.copy_(a)
        end.record()
        end.synchronize()
        best = max(best, 2 * a.numel() * 4 / (start.elapsed_time(end) * 1e-3))
    return best


HEAD = ("| model | batch | tokens/s | MFU of the measured peak | of the data sheet | GB | PyTorch tokens/s | GB | "
        "speed / PyTorch's | memory / PyTorch's |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")


def row_text(name, batch, seq, ours, theirs, sheet):
    tokens = batch * seq
    flops = ours["plan"]["work"]["flops_per_step"] / (ours["ms"] / 1e3)
    cells = [name, f"{batch} x {seq}", f"{tokens / ours['ms'] * 1e3:,.0f}", f"{100 * ours['mfu']:.1f} %",
             f"{100 * flops / sheet:.1f} %", f"{ours['bytes'] / 1e9:.2f}"]
    cells += ["", "", "", ""] if not theirs else [
        f"{tokens / theirs['ms'] * 1e3:,.0f}", f"{theirs['bytes'] / 1e9:.2f}", f"{theirs['ms'] / ours['ms']:.2f}",
        f"{ours['bytes'] / theirs['bytes']:.2f}"]
    return "| " + " | ".join(cells) + " |"


def details_of(name, batch, seq, ours):
    own = f"{batch * seq / ours['own_ms'] * 1e3:,.0f}"
    return ["", f"## {name}, {batch} x {seq}: where the step goes", "", *(f"- {line}" for line in ours["said"]),
            f"- without cuDNN: {own} tokens/s", "", "| kind | ms | TFLOP/s | of copy bandwidth |",
            "| --- | --- | --- | --- |", *("| " + " | ".join(row) + " |" for row in ours["kinds"]),
            "", "| kernel bound by memory | ms | of copy bandwidth |", "| --- | --- | --- |",
            *("| " + " | ".join(row) + " |" for row in ours["kernels"][:MOST])]


def write(name, head, table, details):
    """All that is measured so far, aside and renamed: a run that is cut leaves what it has."""
    path = RESULTS / f"{datetime.date.today()}-gpu-{re.sub('[^A-Za-z0-9]+', '-', name)}.md"
    aside = path.with_suffix(".tmp")
    aside.write_text("\n".join([*head, HEAD, *table, *details]) + "\n")
    aside.rename(path)
    return os.path.relpath(path)


def all_rows(words=""):
    rows = [(name, shape, max(1, batch * 1024 // seq), seq) for name, shape, batch in ROWS for seq in (1024, 4096)]
    return [row for row in rows if words in "{0}, {2} x {3}".format(*row)]


def measure(name, shape, batch, seq, text, bandwidth, sheet, peer):
    """The row, its details, and what has failed, or None: of mpc nothing is known then, of PyTorch that is left out."""
    try:
        ours = measure_mpc(shape, batch, seq, text, bandwidth)
    except Failed as failure:
        return f"| {name} | {batch} x {seq} | failed |" + " |" * 7, [], str(failure)
    theirs = failure = None
    try:
        theirs = measure_pytorch(shape, batch, seq) if peer and precision_of(shape) == "bf16" else None
    except Failed as reason:
        failure = str(reason)
    return row_text(name, batch, seq, ours, theirs, sheet), details_of(name, batch, seq, ours), failure


def main():
    global OUT, RESULTS, IS_COMPILED, PATIENCE
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", metavar="WORDS")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--trainers", type=Path, metavar="DIR")
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    if options.trainers:
        OUT = RESULTS = options.trainers
        IS_COMPILED = True
        PATIENCE = 200  # a device may be lent for minutes
    rows = all_rows(options.only)
    if not rows:
        parser.error(f"--only {options.only}: no row has this: {', '.join(name for name, *_ in ROWS)}")
    if options.list:
        for name, shape, batch, seq in rows:
            say(f"{name}, {batch} x {seq}: {' '.join(map(str, compile_command(shape, batch, seq, folder_of(shape, batch, seq))))}")
        return 0
    gpu = gpu_name()
    if not gpu:
        say("make bench-gpu: there is no GPU on this machine (nvidia-smi lists none); --list says what would run")
        return 1
    sheet = next((flops for key, flops in DATA_SHEET.items() if key in gpu), float("nan"))
    peer = has_pytorch() and not options.alone
    if not peer and not options.alone:
        say(f"no PyTorch of {sys.executable} sees the GPU: mpc is measured alone, and no bandwidth")
    text, bandwidth = make_text(), copy_bandwidth() if peer else 0
    head = [f"# {gpu}, {datetime.date.today()}", "",
            (f"Copy: {bandwidth / 1e12:.2f} TB/s. " if peer else "No PyTorch that sees the GPU. ") + "bf16 where no other is named, one GPU.", ""]
    table, details, status = [], [], 0
    say("\n".join([*head, HEAD]))
    for name, shape, batch, seq in rows[:1] if options.quick else rows:
        row, said, failure = measure(name, shape, batch, seq, text, bandwidth, sheet, peer)
        say(row)
        table.append(row)
        details += said
        if failure:
            say(f"failed: {failure}")
            status = 1
        if not options.quick:
            path = write(f"{gpu} {options.only}".strip(), head, table, details)
    say("\n".join(details) if options.quick else f"written to {path}")
    return status


if __name__ == "__main__":
    sys.exit(main())
