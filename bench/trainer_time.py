"""Seconds from a model to its trainer, for each example, and what an edit costs; steps beside those of another mpc.

    python3 bench/trainer_time.py                   the table of `make bench`
    python3 bench/trainer_time.py --beside MPC      also compile and train some with another build of mpc, in turn
    python3 bench/trainer_time.py --only NAME,...   these examples
    python3 bench/trainer_time.py --runs N          of each (3)

Objects of trainers are kept in a folder of their own, empty at first.  "again": nothing changed; "edit": another learning
rate.  `mpc`: without the C compiler.  The least of several runs counts: other work on the machine only adds.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "bench" / "trainers"
KEPT = OUT / "objects"
MPC = ROOT / "build" / "mpc"
RUNS = 3
EDIT = ["--set", "train.optimizer.lr=0.00123"]
# Shapes whose steps take about a second on two cores.
STEPS = {"gpt2": ["-D", "seq=64", "--set", "train.batch=4", "--set", "train.microbatch=4", "--set", "train.precision=fp32"],
         "llama": ["-D", "layers=4", "-D", "seq=128", "--set", "train.batch=4", "--set", "train.microbatch=4", "--set", "train.precision=fp32"],
         "chars": []}


def seconds(*words, mpc=MPC):
    """Of one `mpc compile`."""
    start = time.monotonic()
    subprocess.run([mpc, "compile", *words], check=True, capture_output=True, env={**os.environ, "MPC_CACHE": str(KEPT)})
    return time.monotonic() - start


def row(model, runs):
    words, cold, again, edit, alone = [model, "-o", OUT / model.stem], [], [], [], []
    for _ in range(runs):
        shutil.rmtree(KEPT, ignore_errors=True)
        alone.append(seconds(*words, "--no-cc"))
        cold.append(seconds(*words))
        again.append(seconds(*words))
        edit.append(seconds(*words, *EDIT))
    lines = len((OUT / model.stem / "trainer.c").read_text().splitlines())
    return "| " + " | ".join([model.stem, f"{lines:,}", *(f"{min(times):.2f}" for times in (alone, cold, again, edit))]) + " |"


def table(say, only=(), runs=RUNS):
    """Markdown."""
    OUT.mkdir(parents=True, exist_ok=True)
    lines = ["## From a model to its trainer", "",
             f"Wall seconds of `mpc compile` with {os.cpu_count()} processors, the least of {runs}; `again`: nothing changed; `edit`:",
             "another learning rate; `mpc`: with `--no-cc`.", "",
             "| example | lines of trainer.c | mpc | first | again | edit |", "|" + " --- |" * 6]
    for model in sorted((ROOT / "examples").glob("*.mdl")):
        if not only or model.stem in only:
            lines.append(row(model, runs))
            say("   " + lines[-1])
    return [*lines, ""]


def step_ms(trainer, steps):
    log = OUT / "log.jsonl"
    subprocess.run([trainer, "--data", OUT / "text", "--data-format", "bytes", "--steps", str(steps), "--log", log, "--overwrite"], check=True,
                   capture_output=True)
    return statistics.median(json.loads(line)["step_ms"] for line in log.read_text().splitlines()[2:])


def beside(say, other, turns=5, steps=12):
    """Markdown: this mpc's trainers and those of another one take turns."""
    generator = __import__("random").Random(1)
    (OUT / "text").write_bytes(bytes(generator.randrange(250) for _ in range(100_000)))
    lines = ["## Beside another build of mpc", "", "Compile times with no object kept; ratio: the other over this one, of the medians of turns.", "",
             "| model | compile s | other s | ratio | step ms | other ms | ratio |", "|" + " --- |" * 7]
    for name, words in STEPS.items():
        compiled = {}
        for label, mpc in (("own", MPC), ("other", other)):
            shutil.rmtree(KEPT, ignore_errors=True)
            compiled[label] = seconds(ROOT / "examples" / f"{name}.mdl", "-o", OUT / label / name, *words, mpc=mpc)
        pairs = [(step_ms(OUT / "own" / name / "trainer", steps), step_ms(OUT / "other" / name / "trainer", steps)) for _ in range(turns)]
        own, others = (statistics.median(times) for times in zip(*pairs))
        lines.append(f"| {name} {' '.join(words)} | {compiled['own']:.2f} | {compiled['other']:.2f} | {compiled['other'] / compiled['own']:.2f} "
                     f"| {own:.1f} | {others:.1f} | {others / own:.3f} |")
        say("   " + lines[-1])
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--beside", type=lambda path: Path(path).resolve())
    args = parser.parse_args()
    table(lambda text: print(text, flush=True), tuple(filter(None, args.only.split(","))), args.runs)
    if args.beside:
        beside(lambda text: print(text, flush=True), args.beside)


if __name__ == "__main__":
    sys.exit(main())
