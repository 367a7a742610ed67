"""What the optimizer's state on disk costs, beside the disk's own time for the same bytes, as fio measures it in the same run.

    python3 bench/offload.py                     GPT-2 124M, bf16: 1, 2, 4 and 8 micro-batches of 4 x 256 tokens a step
    python3 bench/offload.py --small             a model of a few seconds, to see that it works
    python3 bench/offload.py --micros 4          only the rows of so many micro-batches; 1,4: of either
    python3 bench/offload.py --folder /mnt/nvme  the file is there

Trainers without offload, with `offload optimizer to disk`, with `just_in_time` behind it, with `just_in_time` of two and of all
micro-batches where a step has several, and fio take turns.  `bound`: the larger of the step without offload and of the disk's time; a step that hides one of them behind
the other takes that long, one that hides nothing the sum of both.  The table is Markdown.  Needs fio.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from layouts import ROOT
from ranks import CORES, FULL, SMALL, run

MICRO = 4  # sequences
BLOCK = 4 << 20
MICROS = (1, 2, 4, 8)


class Trainer:
    """GPT-2, run in turns with others."""

    def __init__(self, folder, sizes, micros, *options):
        self.folder, self.steps = folder, []
        run([ROOT / "build" / "mpc", "compile", ROOT / "examples" / "gpt2.mdl", "-o", folder, *(f"-D{name}={size}" for name, size in sizes.items()),
             f"--set=train.batch={micros * MICRO}", f"--set=train.microbatch={MICRO}", "--set=train.precision=bf16", *options], CORES)

    def turn(self, data, far, steps):
        """The first step makes pages of memory."""
        log = self.folder / "log"
        run([self.folder / "trainer", "--data", data, "--steps", steps, "--log", log, "--overwrite", *far], CORES)
        self.steps += [json.loads(line) for line in log.read_text().splitlines()][1:]

    def median(self, name):
        return statistics.median(step[name] for step in self.steps)


def bytes_moved(trainer):
    """In a step, from disk and to disk."""
    far = json.loads((trainer.folder / "plan.json").read_text())["memory"]["offloaded"]
    return far["read"], far["written"]


def disk_seconds(folder, read, written):
    """Of the disk alone: so many bytes directly, in large blocks, as many of each kind at a time as there are in all."""
    blocks = max(8, -(-(read + written) // BLOCK))
    command = ["fio", "--name=offload", f"--directory={folder}", "--rw=rw", f"--rwmixread={100 * read / (read + written):.0f}", f"--bs={BLOCK}", "--direct=1",
               f"--size={blocks * BLOCK}", "--ioengine=psync", "--thread", "--unlink=1", "--output-format=json"]
    job = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["jobs"][0]
    moved = job["read"]["io_bytes"] + job["write"]["io_bytes"]
    return job["job_runtime"] / 1e3 * (read + written) / moved


class Far(Trainer):
    """One that moves, and what the disk alone takes for that."""

    def __init__(self, out, when, *words):
        super().__init__(Path(out) / f"far{when}", *words, f"--offload=optimizer to disk{when}")
        self.when, self.disk, self.moved = when, [], bytes_moved(self)

    def cells(self, alone):
        own, step = statistics.median(self.disk), self.median("step_ms")
        return [self.when.strip() or "at once", f"{sum(self.moved) / 1e9:.2f}", f"{alone:.0f}", f"{own:.0f}", f"{step:.0f}", f"{self.median('offload_wait_ms'):.0f}",
                f"{step / max(alone, own):.2f}", f"{step / (alone + own):.2f}"]


def rows(sizes, micros, folder, data, turns, steps):
    with tempfile.TemporaryDirectory(dir=folder) as far, tempfile.TemporaryDirectory() as out:
        plain = Trainer(Path(out) / "plain", sizes, micros, "--offload=none")
        together = sorted({2, micros}) if micros > 1 else []
        trainers = [Far(out, when, sizes, micros) for when in ("", " just_in_time", *(f" just_in_time {count}" for count in together))]
        for _ in range(turns):
            plain.turn(data, [], steps)
            for trainer in trainers:
                trainer.turn(data, ["--offload-folder", far], steps)
                trainer.disk.append(1e3 * disk_seconds(far, *trainer.moved))
    for trainer in trainers:
        yield "| " + " | ".join([f"{micros * MICRO * sizes['seq']:,}", *trainer.cells(plain.median("step_ms"))]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--micros", type=lambda text: [int(count) for count in text.split(",")])
    parser.add_argument("--folder", default=".")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    if not shutil.which("fio"):
        sys.exit("this needs fio: apt-get install fio")
    data = ROOT / "out" / "bench"
    data.mkdir(parents=True, exist_ok=True)
    from run import make_text
    sizes = SMALL if args.small else FULL
    print(f"GPT-2, {sizes['layers']} layers of {sizes['embed']}, bf16, on {CORES} cores; medians of {args.turns} turns.", "",
          "| tokens a step | updates | GB moved | step without, ms | disk alone, ms | step, ms | waited, ms | to the bound | to the sum |", "|" + " --- |" * 9, sep="\n")
    for micros in args.micros or (MICROS[:1] if args.small else MICROS):
        print(*rows(sizes, micros, args.folder, make_text(), args.turns, args.steps), sep="\n", flush=True)


if __name__ == "__main__":
    main()
