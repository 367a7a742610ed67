"""Stages of a pipeline as processes of one core: tokens per second under each schedule, beside one process with as many
threads, beside what the schedule permits, beside torch.distributed.pipelining; and beside the timeline of the schedule.

    python3 bench/pipelines.py                  GPT-2 124M, the tables of `make bench`
    python3 bench/pipelines.py --micros 4,8     with so many micro-batches (default: 2,4,8,16)
    python3 bench/pipelines.py --small          a model of a few seconds, to see that it works
    python3 bench/pipelines.py --peers none     without PyTorch
    python3 bench/pipelines.py --rounds 1       each trainer once
    python3 bench/pipelines.py --steps 10       so many steps each time (default: 8 to 3, the fewer the longer they take)

All trainers of a number of micro-batches take turns, twice by default, so that what else the machine does meets all of them.  mpc and
PyTorch begin with the same weights and read the same sequences: the tables are of runs whose losses were the same.
"""

import json
import os
import re
import socket
import statistics
import subprocess

import ranks
from layouts import ROOT, model_text
from ranks import CORES, Trainer

MICROS = "2,4,8,16"
SCHEDULES = {"gpipe": ("gpipe", 1), "1f1b": ("1f1b", 1), "interleaved": ("interleaved", 2), "zb-h1": ("zb", 1),
             "zb-v": ("zb", 2)}  # as ir/schedule/schedule.def calls them: as the language does, and stages of a rank
PEERS = {"ScheduleGPipe": "gpipe", "Schedule1F1B": "1f1b", "ScheduleInterleaved1F1B": "interleaved",
         "ScheduleZBVZeroBubble": "zb-v"}
TOLERANCE = 1e-4  # of losses
COMPARED = 3  # steps: a wrong gradient shows in the second; later, AdamW has made differences of rounding larger


class Staged(Trainer):
    """With `micros` micro-batches of one sequence; schedule None: in one process."""

    def __init__(self, out, sizes, micros, schedule):
        self.out, self.ranks, self.schedule, self.micros, self.entries = out, CORES if schedule else 1, schedule, micros, []
        self.logs, self.clocks = [], []
        self.name, self.chunks = SCHEDULES.get(schedule, (None, 1))
        settings = f"train {{\n    batch = {micros}\n    microbatch = 1\n    precision = fp32\n}}\n"
        text = model_text(dict(dp=1), False, settings)
        if schedule:
            line = f"pipeline h over pp, schedule = {self.name}, chunks = {self.chunks}"
            text = text.replace("mesh dp = 1", f"mesh dp = 1, pp = {CORES}\n    {line}")
        out.mkdir(parents=True, exist_ok=True)
        self.source, self.dims = out / "model.mdl", [f"-D{name}={size}" for name, size in sizes.items()]
        self.source.write_text(text)
        clock = [f"--cflags=-Wl,--wrap=rt_pipeline {out.parent / 'stage_clock.o'}"] if schedule else []
        ranks.run([ROOT / "build" / "mpc", "compile", self.source, "-o", out, *self.dims, *clock], 1)

    def options(self):
        return ["--no-shuffle"]

    def steps(self, count, data):
        os.environ["STAGE_CLOCK"] = str(self.out / "clock")
        super().steps(count, data)
        self.logs.append([json.loads(line) for line in (self.out / "log.jsonl").read_text().splitlines()])
        if self.schedule:
            self.clocks.append([self.read_clock(rank) for rank in range(CORES)])

    def tokens(self):
        return self.median("tokens_per_s")

    # --- As the compiler sees it -------------------------------------------------------------------------------------

    def pipeline(self):
        """That part of the report."""
        done = subprocess.run([ROOT / "build" / "mpc", "report", self.source, "--json", *self.dims], capture_output=True, text=True,
                              check=True)
        return json.loads(done.stdout)["pipeline"]

    def share_of_peak(self):
        """What the schedule permits, by FLOPs: the work of all stages over the time of the ranks."""
        pipeline = self.pipeline()
        work = sum(stage[f"{kind}_time"] for stage in pipeline["stages"] for kind in ("forward", "backward", "weight"))
        return work * pipeline["micro_batches"] / (CORES * pipeline["makespan"])

    def copies(self):
        """How many layers each stage has."""
        held = [re.match(r"h\.(\d+)(?: to h\.(\d+))?", stage["holds"]).groups() for stage in self.pipeline()["stages"]]
        return [int(last or first) - int(first) + 1 for first, last in held]

    # --- As it ran -----------------------------------------------------------------------------------------------------

    def stage_of(self, rank, chunk):
        """In a V, the second stages go back from the last rank to the first."""
        return CORES + CORES - 1 - rank if chunk and self.schedule == "zb-v" else chunk * CORES + rank

    def read_clock(self, rank):
        """[{(kind, stage, micro-batch): (begin, end)} of each step]"""
        steps = {}
        for line in (self.out / f"clock.{rank}").read_text().splitlines():
            step, kind, chunk, micro, begin, end = line.split()
            action = kind, self.stage_of(rank, int(chunk)), int(micro)
            steps.setdefault(int(step), {})[action] = float(begin), float(end)
        return list(steps.values())

    def measured_steps(self):
        """Of each but the first two of a run: the actions of each rank."""
        return [rank for run in self.clocks for rank in list(zip(*run))[2:]]

    def span(self):
        """Of the slowest rank, from its first action to the end of its last."""
        return statistics.median(max(max(end for _, end in rank.values()) - min(begin for begin, _ in rank.values())
                                     for rank in step) for step in self.measured_steps())

    def times(self, stage):
        """Of F, B and W, medians; 0 for a kind that there is not."""
        for kind in "FBW":
            taken = [end - begin for step in self.measured_steps() for rank in step
                     for (k, s, _), (begin, end) in rank.items() if (k, s) == (kind, stage)]
            yield statistics.median(taken) if taken else 0

    def message(self):
        """From the end of an action to the beginning of the one that has waited for its result."""
        waits = []
        for step in self.measured_steps():
            for actions in step:
                others = {action: end for rank in step if rank is not actions for action, (_, end) in rank.items()}
                before = None
                for (kind, stage, micro), (begin, end) in sorted(actions.items(), key=lambda action: action[1]):
                    there = others.get((kind, stage + {"F": -1, "B": 1, "W": 0}[kind], micro))
                    if there is not None and before is not None and before < there < begin:
                        waits.append(begin - there)
                    before = end
        return statistics.median(waits) if waits else 0

    def timeline(self, program):
        """What the simulation makes of these times, in seconds."""
        times = [f"{time:.9f}" for stage in range(self.chunks * CORES) for time in self.times(stage)]
        counts = map(str, (CORES, self.chunks, self.micros))
        done = subprocess.run([program, self.schedule, *counts, f"{self.message():.9f}", *times], capture_output=True, text=True,
                              check=True)
        return float(done.stdout)


# --- PyTorch ---------------------------------------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


class Peer:
    """torch.distributed.pipelining with the same stages; two on each rank for schedules that have them."""

    def __init__(self, python, schedule, sizes, micros, counts, weights):
        self.python, self.schedule, self.runs = python, schedule, []
        self.said = dict(schedule=schedule, sizes=sizes, micros=micros, counts=counts, weights=str(weights))

    def steps(self, count, data):
        said = json.dumps(dict(self.said, steps=count, data=str(data)))
        world = {"WORLD_SIZE": str(CORES), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "OMP_NUM_THREADS": "1"}
        processes = [subprocess.Popen([self.python, ROOT / "bench" / "pytorch_stages.py", said], stdout=subprocess.PIPE, text=True,
                                      stderr=subprocess.PIPE, env={**os.environ, **world, "RANK": str(rank)}) for rank in range(CORES)]
        texts = [process.communicate(timeout=900) for process in processes]
        if any(process.returncode for process in processes):
            raise RuntimeError(f"{self.schedule}: " + texts[0][1][-2000:] + texts[-1][1][-2000:])
        self.runs.append(json.loads(texts[0][0].splitlines()[-1]))

    def tokens(self):
        return self.said["micros"] * self.said["sizes"]["seq"] * 1e3 / statistics.median(run["ms"] for run in self.runs)


def check_losses(trainers, peers):
    """Of the first run of each, its first steps: those of one process."""
    expected = [entry["loss"] for entry in trainers[0].logs[0]][:COMPARED]
    found = {trainer.schedule: [entry["loss"] for entry in trainer.logs[0]] for trainer in trainers[1:]}
    for name, losses in (found | {peer.schedule: peer.runs[0]["losses"] for peer in peers}).items():
        if not all(abs(a - b) <= TOLERANCE * b for a, b in zip(losses, expected)):
            raise RuntimeError(f"{name}: losses {losses}, of one process {expected}")


# --- Tables ------------------------------------------------------------------------------------------------------------

def line_of(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def row(trainer, alone):
    tokens = trainer.tokens()
    name = trainer.schedule or f"1 process, {CORES} threads"
    cells = [trainer.micros, name, f"{trainer.median('step_ms'):.0f}", f"{tokens:.0f}", f"{tokens / alone:.2f}"]
    used = f"{trainer.median('peak_bytes') / 1e6:.0f}"
    if trainer.ranks == 1:
        return line_of([*cells, "", "", "", used])
    equal, planned = trainer.micros / (trainer.micros + CORES - 1), trainer.share_of_peak()
    return line_of([*cells, f"{tokens / alone / equal:.2f}", f"{planned:.3f}", f"{tokens / alone / planned:.2f}", used])


def timeline_row(trainer, program):
    span, planned = trainer.span(), trainer.timeline(program)
    times = [", ".join(f"{1e3 * time:.1f}" for time in trainer.times(stage) if time)
             for stage in range(trainer.chunks * CORES)]
    return line_of([trainer.micros, trainer.schedule, "; ".join(times), f"{1e3 * trainer.message():.2f}", f"{trainer.median('step_ms'):.1f}",
                    f"{1e3 * span:.1f}", f"{1e3 * planned:.1f}", f"{100 * (planned / span - 1):+.1f}"])


def peer_row(peer, trainers):
    ours = next(trainer for trainer in trainers if trainer.schedule == PEERS[peer.schedule])
    return line_of([ours.micros, peer.schedule, ", ".join(map(str, peer.said["counts"])), f"{peer.tokens():.0f}", ours.schedule,
                    f"{ours.tokens():.0f}", f"{ours.tokens() / peer.tokens():.2f}"])


def build(folder):
    """The clock of trainers, and the simulation."""
    run = lambda *words: ranks.run(["cc", "-std=gnu17", "-D_POSIX_C_SOURCE=200809L", "-O2", *words], 1)  # noqa: E731
    run("-I", ROOT / "runtime", "-c", ROOT / "bench" / "stage_clock.c", "-o", folder / "stage_clock.o")
    library = sorted((ROOT / "build" / "ir").rglob("*.o"))
    run("-I", ROOT / "ir", ROOT / "bench" / "timeline.c", *library, "-lm", "-o", folder / "timeline")
    return folder / "timeline"


def find_peers(say, sizes, micros, trainers, weights):
    from run import find_pytorch
    python, version = find_pytorch()
    if not version:
        say("   no PyTorch with torch.distributed.pipelining")
        return []
    alike = {trainer.schedule: trainer for trainer in trainers}
    return [Peer(python, schedule, sizes, micros, alike[ours].copies(), weights) for schedule, ours in PEERS.items()]


def table(say, folder, data, steps=None, small=False, micros="", peers="", rounds=""):
    """Markdown: three tables of the same runs."""
    sizes, rows = (dict(ranks.SMALL, layers=4) if small else ranks.FULL), ([], [], [])
    version, program, weights = "", build(folder), folder / "stages.safetensors"
    for count in map(int, (micros or MICROS).split(",")):
        trainers = [Staged(folder / "stages-1", sizes, count, None)]
        trainers += [Staged(folder / f"stages-{schedule}", sizes, count, schedule) for schedule in SCHEDULES]
        ranks.run([folder / "stages-1" / "trainer", "--steps", 0, "--save", weights, "--overwrite"], 1)
        others = find_peers(say, sizes, count, trainers, weights) if peers != "none" else []
        for _ in range(int(rounds or 2)):
            for one in (*trainers, *others):
                one.steps(steps or max(COMPARED, 16 // count), data)
        check_losses(trainers, others)
        alone, version = trainers[0].tokens(), others[0].runs[0]["version"] if others else ""
        added = ([row(trainer, alone) for trainer in trainers], [timeline_row(trainer, program) for trainer in trainers[1:]],
                 [peer_row(peer, trainers) for peer in others])
        for of_all, lines in zip(rows, added):
            of_all += lines
            say("\n".join(f"   {line}" for line in lines))
    return text_of(rows, sizes, version)


def text_of(rows, sizes, version):
    shape = f"GPT-2, {sizes['layers']} layers of {sizes['embed']}, micro-batches of 1 x {sizes['seq']}, fp32; medians."
    lines = [f"## {CORES} stages of one core beside one process of {CORES} threads", "", f"{shape} Ratio: of tokens a second,",
             "to one process. `of m / (m + p - 1)`: that ratio, over what a pipeline of p equal stages permits with m micro-batches;",
             "`permitted`: what this one permits, from the FLOPs of its stages (`mpc report`); then the ratio over that. MB of one process.", "",
             "| m | schedule | step ms | tokens/s | ratio | of m / (m + p - 1) | permitted | of permitted | MB used |",
             "|" + " --- |" * 9, *rows[0], "", "## Pipelines beside their timeline", "",
             "Of the same runs: F, B (and W) of each stage as measured, ms; `message`: from the end of an action to the beginning of one that",
             "has waited for its result; the pipeline's part of a step as measured, and as `mpc report` would draw it with these times.", "",
             "| m | schedule | F, B, W of each stage | message | step ms | pipeline ms | timeline ms | off, % |", "|" + " --- |" * 8, *rows[1], ""]
    if rows[2]:
        lines += [f"## Pipelines beside torch.distributed.pipelining (PyTorch {version}, gloo)", "",
                  "The same weights, sequences, losses and layers of each stage, in the same run; AdamW. Ratio: mpc's tokens a second over",
                  "PyTorch's.", "",
                  "| m | PyTorch | layers | tokens/s | mpc | tokens/s | ratio |", "|" + " --- |" * 7, *rows[2], ""]
    return lines


if __name__ == "__main__":
    ranks.stand_alone(__doc__, table, "micros", "peers", "rounds")
