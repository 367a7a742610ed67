"""A long sequence on two processes: attention that gathers all keys beside a ring of them; milliseconds a step and memory.

    python3 bench/ring.py            a sequence of 4096
    python3 bench/ring.py --small    to see that it works

The model is examples/llama.mdl.  Both trainers take turns, twice, so that what else the machine does meets both, and so does
one process with as many threads, which has no messages.
"""

import random

import ranks
from layouts import ROOT
from ranks import CORES, Trainer

FULL = dict(layers=2, embed=512, kv_heads=4, group=2, head=64, ff=1024, seq=4096, vocab=256)
SMALL = dict(FULL, embed=64, head=16, group=1, ff=96, seq=256)
ATTEND = {"1 process": None, "gather": "attend = gather", "ring": "attend = ring"}


class Sequence(Trainer):
    def __init__(self, out, sizes, attend):
        self.out, self.ranks, self.entries = out, CORES if attend else 1, []
        text = (ROOT / "examples" / "llama.mdl").read_text().split("train {")[0]
        rule = f"mesh cp = {CORES}\n    shard seq over cp ({attend})" if attend else "mesh cp = 1\n    shard seq over cp"
        out.mkdir(parents=True, exist_ok=True)
        (out / "model.mdl").write_text(f"{text}train {{\n    batch = 1\n    microbatch = 1\n    precision = fp32\n}}\n"
                                       f"parallel {{\n    {rule}\n    recompute none\n}}\n")
        ranks.run([ROOT / "build" / "mpc", "compile", out / "model.mdl", "-o", out, *[f"-D{name}={size}" for name, size in sizes.items()]], 1)


def table(say, folder, data, steps=ranks.STEPS, small=False):
    """Markdown."""
    sizes, text = SMALL if small else FULL, folder / "bytes"
    text.write_bytes(random.Random(1).randbytes(100_000))
    trainers = [(name, Sequence(folder / f"ring-{name.replace(' ', '-')}", sizes, attend)) for name, attend in ATTEND.items()]
    for _ in range(2):
        for name, trainer in trainers:
            trainer.steps(steps, text)
            say(f"   {name}: {trainer.median('step_ms'):.0f} ms a step")
    gather = dict(trainers)["gather"]
    lines = [f"## A sequence of {sizes['seq']} on {CORES} processes", "", f"Llama, {sizes['layers']} layers of {sizes['embed']}, causal, zig-zag, fp32; medians. Ratio: of step",
             "times, to gather's. MB of one process.", "",
             "| attention | step ms | ratio | collectives ms | waited ms | MB used |", "|" + " --- |" * 6]
    for name, trainer in trainers:
        lines.append(f"| {name} | {trainer.median('step_ms'):.0f} | {trainer.median('step_ms') / gather.median('step_ms'):.2f} | "
                     f"{trainer.median('comm_ms'):.0f} | {trainer.median('comm_wait_ms'):.0f} | {trainer.median('peak_bytes') / 1e6:.1f} |")
    return [*lines, ""]


if __name__ == "__main__":
    ranks.stand_alone(__doc__, table)
