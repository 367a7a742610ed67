"""A stack of layers with experts: milliseconds a step, with a capacity and without, without leaving out empty rows, and of
transformers' own Mixtral of the same sizes.

    python3 bench/experts.py                          layers of a few seconds
    python3 bench/experts.py --small --peers none     to see that it works

The model is examples/mixtral.mdl.  All trainers take turns, twice, so that what else the machine does meets all of them.
`every row` is the same program, but its products compute rows that no token fills.  `to two experts`: all tokens choose the
same two, as an untrained router may.
"""

import json
import os
import random
import re
import shlex

import peers as pypi
import ranks
from layouts import ROOT
from ranks import Trainer

FULL = dict(layers=2, embed=512, kv_heads=4, group=2, head=64, ff=1536, seq=512, vocab=256)
SMALL = dict(layers=2, embed=64, kv_heads=2, group=2, head=16, ff=96, seq=64, vocab=256)
BATCH = 4
SAID = "capacity = capacity, within = batch"
ROUTER = "softmax(dot(x, w, embed), experts)"
SKEWED = "softmax(0.01 * dot(x, w, embed) - cast(iota(experts), f32), experts)"

# name, capacity, are empty rows left out, do all tokens choose the same experts
CASES = [("capacity = none", "capacity = none", True, False), ("capacity = none, every row", "capacity = none", False, False),
         ("capacity = 1.25", "capacity = 1.25", True, False), ("capacity = 1.25, every row", "capacity = 1.25", False, False),
         ("capacity = none, to two experts", "capacity = none", True, True)]


class Experts(Trainer):
    def __init__(self, out, sizes, capacity, leaves_out, skewed):
        self.out, self.ranks, self.entries = out, 1, []
        text = (ROOT / "examples" / "mixtral.mdl").read_text().split("train {")[0].replace(SAID, capacity)
        text = text.replace(ROUTER, SKEWED) if skewed else text
        out.mkdir(parents=True, exist_ok=True)
        (out / "model.mdl").write_text(f"{text}train {{\n    batch = {BATCH}\n    microbatch = {BATCH}\n    precision = fp32\n}}\n")
        self.compile([f"-D{name}={size}" for name, size in sizes.items()], leaves_out)

    def compile(self, dims, leaves_out):
        command = [ROOT / "build" / "mpc", "compile", self.out / "model.mdl", "-o", self.out, "--verbose", *dims]
        said = ranks.run(command, 1)
        trainer = self.out / "trainer.c"
        counted = re.subn(r",\s*\.counted = \w+", "", trainer.read_text())
        if not counted[1]:
            raise RuntimeError("no product counts rows")
        if not leaves_out:
            trainer.write_text(counted[0])
            ranks.run(shlex.split(next(line for line in said.splitlines() if " -o " in line)), 1)
            os.replace(self.out / "trainer.tmp", self.out / "trainer")


class Peer:
    """transformers' own model, each time in a process of its own."""

    def __init__(self, python, sizes, experts):
        self.python, self.sizes, self.experts, self.runs = python, sizes, experts, []

    def steps(self, count, data):
        command = [self.python, ROOT / "bench" / "mixtral.py", json.dumps(self.sizes), BATCH, self.experts, count, ranks.CORES]
        self.runs.append(json.loads(ranks.run(command, ranks.CORES).splitlines()[-1]))

    def median(self, field):
        return min(run["ms"] for run in self.runs) if field == "step_ms" else self.runs[-1]["bytes"]


def find_peers(say, sizes):
    from run import find_pytorch
    python, version = find_pytorch()
    if version and not pypi.version_of(python, "transformers"):
        pypi.install(say, python, ["transformers"])
    if not pypi.version_of(python, "transformers"):
        say("   no transformers")
        return []
    return [(f"transformers, {experts}", Peer(python, sizes, experts)) for experts in ("grouped_mm", "eager")]


def table(say, folder, data, steps=ranks.STEPS, small=False, only="", peers=""):
    """Markdown."""
    sizes, text = SMALL if small else FULL, folder / "bytes"
    text.write_bytes(random.Random(1).randbytes(100_000))
    trainers = [(name, Experts(folder / f"experts-{number}", sizes, *case)) for number, (name, *case) in enumerate(CASES)
                if only in name]
    others = find_peers(say, sizes) if peers != "none" else []
    for _ in range(2):
        for name, trainer in trainers + others:
            trainer.steps(steps, text)
            say(f"   {name}: {trainer.median('step_ms'):.0f} ms a step")
    first = trainers[0][1]
    lines = [f"## Experts, {ranks.CORES} threads", "", f"{sizes['layers']} layers of {sizes['embed']}, 8 experts of {sizes['ff']}, of which a token takes 2; batch",
             f"{BATCH} x {sizes['seq']}, fp32; medians. Ratio: of step times, to the first. Load: choices of the most chosen expert over the mean.", "",
             "| experts | step ms | ratio | load | dropped | MB used |", "|" + " --- |" * 6]
    for name, trainer in trainers:
        load, dropped = (max(trainer.entries[-1].get(field, [0])) for field in ("expert_load", "dropped"))
        lines.append(f"| {name} | {trainer.median('step_ms'):.1f} | {trainer.median('step_ms') / first.median('step_ms'):.2f} | "
                     f"{load:.2f} | {dropped:.3f} | {trainer.median('peak_bytes') / 1e6:.0f} |")
    for name, peer in others:
        lines.append(f"| {name} | {peer.median('step_ms'):.1f} | {peer.median('step_ms') / first.median('step_ms'):.2f} | - | 0.000 | "
                     f"{peer.median('peak_bytes') / 1e6:.0f} |")
    return [*lines, *([f"{others[0][1].runs[0]['versions']}; fp32, sdpa, fused AdamW."] if others else []), ""]


if __name__ == "__main__":
    ranks.stand_alone(__doc__, table, "only", "peers")
