#!/usr/bin/env python3
"""What mpc's trainers and mpc itself cost on this machine, beside others, in one run.

    make bench                      everything; writes bench/results/DATE-cpu-N-threads.md
    python3 bench/run.py --quick    one shape beside PyTorch, few steps, nothing written
    python3 bench/run.py --only compile|xla|ranks|pipelines|ring|experts|saving|pytorch       one part; nothing written
    python3 bench/run.py --only "GPT-2 124M 1 x 1024 bf16"      PyTorch's rows whose name holds the text; nothing written

compile_time.py, trainer_time.py (with the C compiler), layouts.py (collectives, beside XLA's), ranks.py (processes beside
threads), pipelines.py (stages, beside torch.distributed.pipelining and beside their timeline), ring.py (a long sequence),
experts.py and saving.py (checkpoints beside training) are parts; the one here is step time and memory beside PyTorch. Per shape and precision: mpc's trainer, PyTorch eager
and torch.compile take turns, each in a process of its own with the same number of threads, until their ratios are settled.
FLOPs are the model's: 6 for each weight of a product and token, and 12 L H S for attention, causal or not. The peak is the best
square oneDNN product of the same run. PyTorch is the newest that installs from PyPI into build/torch.
"""

import argparse
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import compile_time
import experts
import layouts
import peers
import pipelines
import ranks
import ring
import saving
import trainer_time

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "bench"
GPT2 = dict(model="gpt2", layers=12, embed=768, heads=12, ff=3072, vocab=50257)
LLAMA = dict(model="llama", layers=12, embed=768, kv_heads=4, group=3, head=64, ff=2048, vocab=32000)


def say(text):
    print(text, flush=True)


def environment(threads):
    return {**os.environ, "OMP_NUM_THREADS": str(threads)}


def run(command, threads, timeout=900):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout,
                          env=environment(threads))
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


def make_text():
    """Random tokens of the smallest vocabulary here: the work does not depend on what they are."""
    path = OUT / "tokens-2000.u16"
    if not path.exists():
        import random
        generator = random.Random(1)
        path.write_bytes(b"".join(generator.randrange(2000).to_bytes(2, "little") for _ in range(100_000)))
    return path


def mpc(shape, batch, seq, precision, steps, threads, text):
    out = OUT / f"{shape['model']}-{batch}x{seq}-{precision}"
    derived = ("model", "ff") if shape["model"] == "gpt2" else ("model",)  # gpt2.mdl: ff = 4 * embed
    dims = [word for key, value in shape.items() if key not in derived for word in ("-D", f"{key}={value}")]
    if not (out / "trainer").exists():
        run([ROOT / "build" / "mpc", "compile", ROOT / "examples" / f"{shape['model']}.mdl", "-o", out, *dims,
             "-D", f"seq={seq}", "--set", f"train.batch={batch}", "--set", f"train.microbatch={batch}",
             "--set", f"train.precision={precision}", "--recompute", "none"], threads)
    log = out / "log.jsonl"
    log.unlink(missing_ok=True)
    run([out / "trainer", "--data", text, "--steps", steps, "--log", log], threads)
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    facts = json.loads((out / "plan.json").read_text())
    milliseconds = [entry["step_ms"] for entry in entries[2:]]
    return dict(ms=statistics.median(milliseconds), bytes=entries[-1]["peak_bytes"], flops=flops_of(facts),
                share=statistics.median(entry["mfu"] for entry in entries[2:]))


def flops_of(facts):
    """FLOPs a step, as plan.json states them."""
    return float(re.search(r'"flops_per_step":\s*([0-9.e+]+)', json.dumps(facts)).group(1))


def pytorch(python, shape, batch, seq, precision, mode, steps, threads):
    command = [python, ROOT / "bench" / "pytorch.py", json.dumps(shape), batch, seq, precision, mode, steps, threads]
    try:
        return json.loads(run(command, threads).splitlines()[-1])
    except (RuntimeError, subprocess.TimeoutExpired, IndexError, json.JSONDecodeError) as error:
        say(f"   PyTorch {mode} {precision}: {str(error).strip().splitlines()[-1][:150]}")
        return None


def find_pytorch():
    """(interpreter, version) of a venv with the newest PyTorch from PyPI, without the CUDA libraries that a CPU does not need;
    version: None if it cannot be had."""
    packages = "numpy typing_extensions filelock sympy networkx jinja2 fsspec setuptools"
    newest = peers.find(say, "torch", ["--no-deps", "torch"], packages.split())
    if not peers.version_of(newest, "torch"):
        peers.install(say, newest, ["torch"])  # it is linked with them
    return newest, peers.version_of(newest, "torch")


def against_pytorch(args, text):
    """Markdown: a row for each shape and precision."""
    python, version = find_pytorch()
    say(f"PyTorch {version or 'not found'}, {args.threads} threads")
    modes = ["eager", "compile"] if version else []
    head = ["model", "batch x seq", "precision", "mpc ms", "GFLOP/s", "of peak",
            *[cell for mode in modes for cell in (f"{mode} ms", "ratio")], "mpc MB", "eager MB", "turns"]
    lines = ["## Training steps, beside PyTorch", "",
             f"PyTorch {version or 'not found'}; gcc {run(['gcc', '-dumpfullversion'], 1).strip()}; trainers take",
             f"turns, {LEAST_TURNS} to {MOST_TURNS}, until the standard error of each ratio is at most {ENOUGH:.0%}. ms: median step after two to warm up, and of all",
             "turns; ratio: PyTorch's time over mpc's (above 1: mpc is faster) ± standard error. mpc with `--recompute none`.",
             "`of peak`: model FLOPs over the best square oneDNN product of the precision, measured when the trainer starts.", "",
             "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    shapes = [("GPT-2 124M", GPT2, 4, 64), ("GPT-2 124M", GPT2, 4, 256), ("GPT-2 124M", GPT2, 1, 1024),
              ("Llama-like 125M", LLAMA, 4, 256)]
    for label, shape, batch, seq in (shapes[1:2] if args.quick else shapes):
        for precision in (("fp32",) if args.quick else ("fp32", "bf16")):
            name = f"{label} {batch} x {seq} {precision}"
            if args.only in (*SECTIONS, "") or args.only in name:
                say(name)
                lines.append(row(label, shape, batch, seq, precision, python, modes, args, text))
                say("   " + lines[-1])
    return [*lines, ""]


LEAST_TURNS, MOST_TURNS, ENOUGH = 3, 6, 0.02


def ratio(ours, theirs):
    """Of the times in turns, theirs over ours: its geometric mean, and the standard error of that, a share of it."""
    logs = [math.log(their / our) for our, their in zip(ours, theirs)]
    return math.exp(statistics.mean(logs)), statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf


def is_settled(turns):
    """Has each ratio a standard error that is small enough?"""
    ours, *theirs = zip(*turns)
    return len(turns) >= LEAST_TURNS and all(None in times or ratio(ours, times)[1] <= ENOUGH for times in theirs)


def row(label, shape, batch, seq, precision, python, modes, args, text):
    """mpc and its peers take turns, until the ratios are settled or there have been MOST_TURNS."""
    steps, turns = args.steps or (4 if args.quick else ranks.STEPS), []
    while not turns or not (args.quick or is_settled(turns) or len(turns) == MOST_TURNS):
        ours = mpc(shape, batch, seq, precision, steps, args.threads, text)
        theirs = [pytorch(python, shape, batch, seq, precision, mode, steps, args.threads) for mode in modes]
        turns.append([ours["ms"], *(their and their["ms"] for their in theirs)])
    own, *others = zip(*turns)
    ms = statistics.median(own)
    cells = [label, f"{batch} x {seq}", precision, f"{ms:.0f}", f"{ours['flops'] / ms / 1e6:.0f}", f"{ours['share']:.0%}"]
    for times in others:
        if None in times:
            cells += ["-", "-"]
        else:
            mean, error = ratio(own, times)
            cells += [f"{statistics.median(times):.0f}", f"{mean:.2f}" + (f" ± {mean * error:.2f}" if len(turns) > 1 else "")]
    cells += [f"{ours['bytes'] / 1e6:.0f}", f"{theirs[0]['bytes'] / 1e6:.0f}" if theirs and theirs[0] else "-", str(len(turns))]
    return "| " + " | ".join(cells) + " |"


def steps_of(args):
    """What --steps says to a part, if anything."""
    return {"steps": args.steps} if args.steps else {}


SECTIONS = {"pytorch": against_pytorch,
            "compile": lambda args, text: compile_time.table(say) + trainer_time.table(say),
            "xla": lambda args, text: layouts.table(say),
            "ranks": lambda args, text: ranks.table(say, OUT, text, **steps_of(args)),
            "pipelines": lambda args, text: pipelines.table(say, OUT, text, **steps_of(args)),
            "ring": lambda args, text: ring.table(say, OUT, text, **steps_of(args)),
            "experts": lambda args, text: experts.table(say, OUT, text, **steps_of(args)),
            "saving": lambda args, text: saving.table(say, OUT, text, **steps_of(args))}


def chosen_sections(args):
    """Those that --only names; a text that names none is one of PyTorch's rows."""
    if args.quick:
        return ["pytorch"]
    return [args.only] if args.only in SECTIONS else ["pytorch"] if args.only else list(SECTIONS)


def measured(section, args, text):
    """Markdown; of a part that fails, why: the others go on."""
    begin = time.monotonic()
    say(section)
    try:
        lines = SECTIONS[section](args, text)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        say(f"   {error}")
        lines = [f"## {section}: not measured", "", str(error).strip().splitlines()[0], ""]
    say(f"   {section}: {(time.monotonic() - begin) / 60:.0f} min")
    return lines


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one shape, few steps, nothing written")
    parser.add_argument("--only", default="", help="one part (%s), or PyTorch's rows whose name holds this text; nothing written"
                        % ", ".join(SECTIONS))
    parser.add_argument("--steps", type=int, help="of each turn of a trainer (default: as its part has it)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    text = make_text()
    date = datetime.date.today().isoformat()
    path = ROOT / "bench" / "results" / f"{date}-cpu-{args.threads}-threads.md"
    lines = [f"# {date}, {processor()}, {args.threads} threads", "", "`make bench`, one run.", ""]
    for section in chosen_sections(args):
        lines += measured(section, args, text)
        if not args.quick and not args.only:
            path.write_text("\n".join(lines))
            say(f"{section}: written to {path.relative_to(ROOT)}")
    print("\n".join(lines))
    return any(line.endswith(": not measured") for line in lines)


if __name__ == "__main__":
    sys.exit(main())
