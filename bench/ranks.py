"""One model on all cores, as one process with threads and as processes with a core each: tokens per second, and how much
of the communication is hidden behind computation.

    python3 bench/ranks.py              GPT-2 124M, the table of `make bench`
    python3 bench/ranks.py --small      a model of a few seconds, to see that it works
    python3 bench/ranks.py --only ZeRO  layouts whose name holds the text
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

from layouts import ROOT, model_text

BATCH = 4
FULL = dict(layers=12, embed=768, heads=12, seq=256, vocab=50257)
SMALL = dict(layers=2, embed=64, heads=4, seq=64, vocab=2000)
CORES = 2
STEPS = 6  # of each turn; the first two warm up

# name, mesh, sequence (`else seq` over tp), zero
LAYOUTS = [("data", dict(dp=CORES), False, "zero 0 over dp"),
           ("data, overlap", dict(dp=CORES), False, "zero 0 over dp (overlap_grads)"),
           ("data, ZeRO 1", dict(dp=CORES), False, "zero 1 over dp"),
           ("data, ZeRO 1, overlap", dict(dp=CORES), False, "zero 1 over dp (overlap_grads)"),
           ("data, ZeRO 3", dict(dp=CORES), False, "zero 3 over dp"),
           ("data, ZeRO 3, overlap", dict(dp=CORES), False, "zero 3 over dp (overlap_grads, overlap_params)"),
           ("tensor", dict(tp=CORES), False, ""), ("tensor, sequence", dict(tp=CORES), True, ""),
           ("context", dict(cp=CORES), False, "")]


def environment(threads):
    """For processes in a container, where one may not read another's memory, and for root."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def run(command, threads, text=None):
    done = subprocess.run([str(word) for word in command], input=text, capture_output=True, text=True, timeout=900,
                          env=environment(threads))
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


class Trainer:
    """A compiled layout, to be run in turns with others."""

    def __init__(self, out, sizes, mesh, sequence, zero):
        self.out, self.ranks = out, CORES if mesh else 1
        settings = f"train {{\n    batch = {BATCH}\n    microbatch = {BATCH // mesh.get('dp', 1)}\n    precision = fp32\n}}\n"
        dims = [f"-D{name}={size}" for name, size in sizes.items()]
        out.mkdir(parents=True, exist_ok=True)
        source = out / "model.mdl"
        source.write_text(model_text(mesh or dict(dp=1), sequence, settings, zero))
        run([ROOT / "build" / "mpc", "compile", source, "-o", out, *dims], 1)
        self.entries = []

    def options(self):
        return []

    def steps(self, count, data):
        log = self.out / "log.jsonl"
        log.unlink(missing_ok=True)
        launch = [] if self.ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", self.ranks]
        run([*launch, self.out / "trainer", "--data", data, "--steps", count, "--log", log, *self.options()], CORES // self.ranks)
        self.entries += [json.loads(line) for line in log.read_text().splitlines()][2:]

    def median(self, field):
        return statistics.median(entry.get(field, 0) for entry in self.entries)


def row(name, trainer, alone):
    tokens, sent = trainer.median("tokens_per_s"), trainer.median("sent_bytes")
    spent, waited = trainer.median("comm_ms"), trainer.median("comm_wait_ms")
    hidden = f"{max(0, 1 - waited / spent):.0%}" if spent else "-"
    cells = [name, f"{trainer.median('step_ms'):.0f}", f"{tokens:.0f}", f"{tokens / alone:.2f}", f"{sent / 1e6:.0f}",
             f"{spent:.0f}", f"{waited:.0f}", hidden, f"{trainer.median('peak_bytes') / 1e6:.0f}"]
    return "| " + " | ".join(cells) + " |"


def table(say, folder, data, steps=STEPS, small=False, only=""):
    """Markdown.  Trainers take turns, twice, so that what else the machine does meets all of them."""
    sizes = SMALL if small else FULL
    one = Trainer(folder / "ranks-1", sizes, {}, False, "zero 0 over dp")
    trainers = [(f"1 process, {CORES} threads", one)]
    trainers += [(f"{CORES} processes: {name}", Trainer(folder / f"ranks-{number}-of-{CORES}", sizes, *layout))
                 for number, (name, *layout) in enumerate(LAYOUTS) if only in name]
    for _ in range(2):
        for name, trainer in trainers:
            trainer.steps(steps, data)
            say(f"   {name}: {trainer.median('step_ms'):.0f} ms a step")
    alone = one.median("tokens_per_s")
    return [f"## {CORES} processes of one core beside one of {CORES} threads", "",
            f"GPT-2, {sizes['layers']} layers of {sizes['embed']}, batch {BATCH} x {sizes['seq']} over all processes, fp32; medians. Ratio: of tokens a",
            "second, to one process. `overlap`: with overlap_grads, and overlap_params for ZeRO 3. `hidden`: the share of the time of",
            "collectives in which the computation did not wait for them; both processes copy what they send with the cores that",
            "compute. MB of one process.", "",
            "| layout | step ms | tokens/s | ratio | MB sent | collectives ms | waited ms | hidden | MB used |", "|" + " --- |" * 9,
            *[row(name, trainer, alone) for name, trainer in trainers], ""]


def stand_alone(description, table, *texts):
    """Prints a table of `make bench`; `texts`: names of its options besides --small and --steps, all of which have defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", type=int, default=argparse.SUPPRESS)
    for text in texts:
        parser.add_argument(f"--{text}", default="")
    args = parser.parse_args()
    folder = ROOT / "out" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    from run import make_text
    say = lambda text: print(text, flush=True)  # noqa: E731
    say("\n".join(table(say, folder, make_text(), **vars(args))))


if __name__ == "__main__":
    stand_alone(__doc__, table, "only")
