"""What a checkpoint beside training costs: how long training stands still, and how much slower the ten steps after it are.

    python3 bench/saving.py             GPT-2 124M on 1, 2 and 4 ranks (ZeRO 1), the table of `make bench`
    python3 bench/saving.py --small     a model of a few seconds, to see that it works
    python3 bench/saving.py --only 2    so many ranks

Ranks talk over TCP, which wakes who waits: over MPI each looks again and again, with processors that the writing needs.  Three
minutes for each number of ranks on a machine that does nothing else.

A run saves every four steps, six times: within seconds a machine is as fast before a save as after it, and over minutes it is not.
The four steps behind a save (medians over the saves, with what training waits for) are compared with four times the later two of
them; what they take more is the share of ten steps that `after` has.  `stands still` is what the trainer logs: between steps, and in
the next one, which waits for the copy.  `writing` has what the threads that write took of the processors in ten steps: what a save
costs if nothing else differs.
"""

import json
import os
import statistics
import threading
from pathlib import Path

from layouts import ROOT, model_text
from ranks import BATCH, CORES, FULL, SMALL, run, stand_alone

RANKS = (1, 2, 4)
AFTER, EVERY = 10, 4


class Writers:
    """The processor seconds of all threads that write: those of low priority in processes of that program, looked at again and again."""
    NICE, USER, SYSTEM = 18, 13, 14  # of what /proc has of a thread, from 0

    def __init__(self, program):
        self.program, self.ticks, self.ended = program.resolve(), {}, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ended.set()
        self.thread.join()

    def processes(self):
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "exe").resolve() == self.program:
                    yield process
            except OSError:
                pass

    def watch(self):
        while not self.ended.wait(0.1):
            for process in self.processes():
                self.look(process)

    def look(self, process):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        for stat in process.glob("task/*/stat"):
            try:
                word = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            at = 2  # the words before
            if int(word[self.NICE - at]) > own:
                self.ticks[stat] = int(word[self.USER - at]) + int(word[self.SYSTEM - at])

    def seconds(self):
        return sum(self.ticks.values()) / os.sysconf("SC_CLK_TCK")


class Saving:
    """A compiled layout, whose runs save beside training or stop it."""

    def __init__(self, out, sizes, ranks):
        self.out, self.ranks, self.before = out, ranks, []
        settings = f"train {{\n    batch = {BATCH}\n    microbatch = {BATCH // ranks}\n    precision = fp32\n}}\n"
        out.mkdir(parents=True, exist_ok=True)
        (out / "model.mdl").write_text(model_text(dict(dp=ranks), False, settings, f"zero {1 if ranks > 1 else 0} over dp"))
        run([ROOT / "build" / "mpc", "compile", out / "model.mdl", "-o", out, *(["--comm=tcp"] if ranks > 1 else []),
             *(f"-D{name}={size}" for name, size in sizes.items())], 1)
        self.stood = {False: [], True: []}
        self.slower = {False: [], True: []}
        self.wrote = []

    def turn(self, data, steps, waits):
        log = self.out / "log.jsonl"
        launch = [] if self.ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", self.ranks]
        with Writers(self.out / "trainer") as writers:
            run([*launch, self.out / "trainer", "--data", data, "--steps", steps, "--log", log, "--overwrite", "--save",
                 self.out / "saved.safetensors", "--save-every", EVERY, *(["--save-wait"] if waits else [])], max(1, CORES // self.ranks))
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        behind = [lines[at:at + EVERY] for at in range(EVERY, steps - EVERY + 1, EVERY)]
        took = [statistics.median(of[i]["step_ms"] + of[i]["save_ms"] for of in behind) for i in range(EVERY)]
        usual = statistics.median(line["step_ms"] for of in behind for line in of[EVERY // 2:])
        self.before.append(usual)
        self.stood[waits].append(statistics.median(sum(line["save_ms"] + line["save_wait_ms"] for line in of) for of in behind))
        self.slower[waits].append((sum(took) - EVERY * usual) / (AFTER * usual))
        if not waits:
            self.wrote.append(1000 * writers.seconds() / CORES / (AFTER * usual) / len(behind))

    def row(self):
        step = statistics.median(self.before)
        cells = [str(self.ranks), f"{step:.0f}"]
        for waits in (False, True):
            stood = statistics.median(self.stood[waits])
            cells += [f"{stood:.0f}", f"{stood / step:.1%}", f"{statistics.median(self.slower[waits]):.1%}"]
            if not waits:
                cells.append(f"{statistics.median(self.wrote):.1%}")
        return "| " + " | ".join(cells) + " |"


def table(say, folder, data, steps=7 * EVERY, small=False, only=""):
    """Markdown."""
    sizes = SMALL if small else FULL
    savings = [Saving(folder / f"saving-{ranks}", sizes, ranks) for ranks in RANKS if only in str(ranks)]
    for saving in savings:
        for waits in (False, True):
            saving.turn(data, 2 * EVERY if small else steps, waits)
        say(f"   {saving.ranks} ranks: {saving.row()}")
    return ["## A checkpoint while training", "",
            f"GPT-2, {sizes['layers']} layers of {sizes['embed']}, batch {BATCH} x {sizes['seq']} over all ranks, fp32, on {CORES} cores; {steps // EVERY - 1} saves.",
            f"`stands still`: milliseconds, and the share of a step; `after`: how much longer the {AFTER} steps behind a save took;",
            "`writing`: the processors' time of the threads that wrote, of these steps.", "",
            "| ranks | step ms | stands still | of a step | after | writing | with --save-wait | of a step | after |", "|" + " --- |" * 9,
            *[saving.row() for saving in savings], ""]


if __name__ == "__main__":
    stand_alone(__doc__, table, "only")
