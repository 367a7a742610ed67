"""Stages of a pipeline as processes of one core, beside one process with as many threads: tokens per second under each
schedule, and beside what the schedule permits.

    python3 bench/pipelines.py              GPT-2 124M, the table of `make bench`
    python3 bench/pipelines.py --small      a model of a few seconds, to see that it works
"""

import json
import subprocess

import ranks
from layouts import ROOT, model_text
from ranks import CORES, Trainer

MICROS = (2, 4, 8)
SCHEDULES = ("gpipe", "1f1b", "zb")


class Staged(Trainer):
    """With `micros` micro-batches of one sequence; schedule None: in one process."""

    def __init__(self, out, sizes, micros, schedule):
        self.out, self.ranks, self.entries = out, CORES if schedule else 1, []
        settings = f"train {{\n    batch = {micros}\n    microbatch = 1\n    precision = fp32\n}}\n"
        text = model_text(dict(dp=1), False, settings)
        if schedule:
            text = text.replace("mesh dp = 1", f"mesh dp = 1, pp = {CORES}\n    pipeline h over pp, schedule = {schedule}")
        out.mkdir(parents=True, exist_ok=True)
        self.source, self.dims = out / "model.mdl", [f"-D{name}={size}" for name, size in sizes.items()]
        self.source.write_text(text)
        ranks.run([ROOT / "build" / "mpc", "compile", self.source, "-o", out, *self.dims], 1)

    def share_of_peak(self):
        """What the schedule permits, by FLOPs: the work of all stages over the time of the ranks."""
        done = subprocess.run([ROOT / "build" / "mpc", "report", self.source, "--json", *self.dims], capture_output=True, text=True,
                              check=True)
        pipeline = json.loads(done.stdout)["pipeline"]
        work = sum(stage[f"{kind}_time"] for stage in pipeline["stages"] for kind in ("forward", "backward", "weight"))
        return work * pipeline["micro_batches"] / (CORES * pipeline["makespan"])


def row(micros, name, trainer, alone):
    tokens = trainer.median("tokens_per_s")
    cells = [micros, name, f"{trainer.median('step_ms'):.0f}", f"{tokens:.0f}", f"{tokens / alone:.2f}"]
    if trainer.ranks == 1:
        return "| " + " | ".join(map(str, cells + ["", "", "", f"{trainer.median('peak_bytes') / 1e6:.0f}"])) + " |"
    equal, planned = micros / (micros + CORES - 1), trainer.share_of_peak()
    cells += [f"{tokens / alone / equal:.2f}", f"{planned:.3f}", f"{tokens / alone / planned:.2f}",
              f"{trainer.median('peak_bytes') / 1e6:.0f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def table(say, folder, data, steps, small=False):
    """Markdown.  Trainers take turns, twice, so that what else the machine does meets all of them."""
    sizes, rows = ranks.SMALL if small else ranks.FULL, []
    for micros in MICROS:
        trainers = [(f"1 process, {CORES} threads", Staged(folder / "stages-1", sizes, micros, None))]
        trainers += [(schedule, Staged(folder / f"stages-{schedule}", sizes, micros, schedule)) for schedule in SCHEDULES]
        for _ in range(2):
            for name, trainer in trainers:
                trainer.steps(steps, data)
        alone = trainers[0][1].median("tokens_per_s")
        rows += [row(micros, name, trainer, alone) for name, trainer in trainers]
        say("\n".join(f"   {line}" for line in rows[-len(trainers):]))
    return [f"## {CORES} stages of one core beside one process of {CORES} threads", "",
            f"GPT-2, {sizes['layers']} layers of {sizes['embed']}, micro-batches of 1 x {sizes['seq']}, fp32; medians. Ratio: of tokens a second,",
            "to one process. `of m / (m + p - 1)`: that ratio, over what a pipeline of p equal stages permits with m micro-batches;",
            "`permitted`: what this one permits, from the FLOPs of its stages (`mpc report`); then the ratio over that. MB of one process.", "",
            "| m | schedule | step ms | tokens/s | ratio | of m / (m + p - 1) | permitted | of permitted | MB used |",
            "|" + " --- |" * 9, *rows, ""]


if __name__ == "__main__":
    ranks.stand_alone(__doc__, table, 5)
