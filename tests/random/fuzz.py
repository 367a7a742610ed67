#!/usr/bin/python3
"""Tries random programs in random variants, and says what kinds of failure there are.

    fuzz.py [--seed N] [--count N | --seconds S] [--jobs J] [--variants a,b] [--each N] [--with TEXT] [--large SHARE]
            [--mpc PATH] [--out DIR] [--shrink [N]]

--seed: the first program (the next has the next number); --count: so many programs; --variants: only these, of those
that variants.py lists; --each: N variants of a program besides base (default: 3), 0: one alone; --with: only programs
whose text, with the layout, has this: `--variants stages --with pipeline`; --large: the share of programs with large dims
(default: 0.1).  Each failure is written to DIR as a program
whose first lines say what was seen; with --shrink the first two (or N) of a kind are made as small as they go first, and
five times as many with wrong numbers, which may have different reasons.  Exit status 1 if anything failed."""
import argparse
import collections
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

import generate
import shrink
import variants
from constants import is_large
from judge import Case, Judge
from machine import ROOT, Tools
from outcome import GOOD, STATUSES, Outcome

SHRINKING = 40   # seconds for one failure
EMULATED = 5     # one of so many large programs runs on the emulated GPU, too: it takes a minute


def cases_of(seed, names, tools, each=3, large=generate.LARGE_SHARE):
    """The variants of program number `seed`: (name, case)."""
    program = generate.generate(seed, large)
    for name in variants.drawn(seed, names, each, program):
        if is_large(program) and not variants.has_blocks(program) and seed % EMULATED and not names:
            name = name.replace("+cuda", "").replace("cuda", "base")
        yield name, variants.apply(name, Case(program, seed=seed), tools)


class Worker:
    """Takes numbers of programs and judges them, in a process of its own."""

    def __init__(self, number, arguments, folder):
        torch.set_num_threads(1)
        self.arguments, self.out = arguments, Path(arguments.out)
        self.tools = Tools(arguments.mpc, folder / "shared")
        self.judge = Judge(self.tools, folder / f"work{number}")
        self.shrunk = collections.Counter()

    def run(self, numbers, results, deadline):
        while time.time() < deadline:
            seed = numbers.get()
            if seed is None:
                break
            for name, case in self.cases(seed, results):
                found = self.guarded(case)
                if found.is_failure:
                    self.write(seed, name, case, found)
                results.put((seed, name, found.status, found.kind))
        results.put(None)

    def cases(self, seed, results):
        try:
            for name, case in cases_of(seed, self.arguments.variants, self.tools, self.arguments.each, self.arguments.large):
                if self.arguments.having in case.text():
                    yield name, case
        except Exception:
            results.put((seed, "generate", "crash", "the generator: " + traceback.format_exc().splitlines()[-1]))

    def guarded(self, case):
        """A mistake of the judge itself is a failure too."""
        try:
            return self.judge.judge(case)
        except Exception:
            trace = traceback.format_exc()
            return Outcome("crash", "the judge: " + trace.splitlines()[-1][:100], trace)

    def write(self, seed, name, case, found):
        most = self.arguments.shrink * (5 if found.status == "wrong" else 1)
        if self.shrunk[found.signature] < most:
            self.shrunk[found.signature] += 1
            case, found = shrink.shrink(self.judge, case, found, SHRINKING)
        text = shrink.header(case, name, found) + case.text()
        (self.out / f"{seed}-{name}.mdl").write_text(text)


def start_worker(number, arguments, folder, numbers, results, deadline):
    Worker(number, arguments, folder).run(numbers, results, deadline)


def summary(kinds, examples, statuses):
    for status, meaning in STATUSES.items():
        if statuses[status]:
            print(f"{statuses[status]:6} {status:10} {meaning}")
    print()
    for signature, number in kinds.most_common():
        print(f"{number:6} {signature}   ({', '.join(examples[signature][:3])})")


def collect(results, jobs, began):
    """Reads what workers find until all have ended; gives whether anything failed."""
    kinds, examples, statuses = collections.Counter(), collections.defaultdict(list), collections.Counter()
    shown, programs = began, set()
    while jobs:
        result = results.get()
        if result is None:
            jobs -= 1
            continue
        seed, name, status, kind = result
        statuses[status] += 1
        programs.add(seed)
        if status != "ok":
            signature = f"{status}: {kind}"
            kinds[signature] += 1
            examples[signature].append(f"{seed}-{name}")
        if time.time() - shown > 30:
            shown = time.time()
            print(f"{sum(statuses.values())} tried in {shown - began:.0f} s: {dict(statuses)}", flush=True)
    summary(kinds, examples, statuses)
    tried, seconds = sum(statuses.values()), time.time() - began
    print(f"\n{tried} variants of {len(programs)} programs in {seconds:.0f} s ({tried / max(seconds, 1e-9):.1f} a second)")
    return any(statuses[status] for status in STATUSES if status not in GOOD)


def read_arguments():
    arguments = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--count", type=int)
    arguments.add_argument("--seconds", type=float, default=10**9)
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--variants", type=lambda text: text.split(","), default=None)
    arguments.add_argument("--each", type=int, default=3)
    arguments.add_argument("--with", dest="having", default="")
    arguments.add_argument("--large", type=float, default=generate.LARGE_SHARE)
    arguments.add_argument("--mpc", default=ROOT / os.environ.get("BUILD", "build") / "mpc")
    arguments.add_argument("--out", default=None)
    arguments.add_argument("--shrink", type=int, nargs="?", const=2, default=0)
    said = arguments.parse_args()
    said.out = said.out or str(ROOT / os.environ.get("BUILD", "build") / "random")
    return said


def main():
    arguments, began = read_arguments(), time.time()
    shutil.rmtree(arguments.out, ignore_errors=True)
    Path(arguments.out).mkdir(parents=True)
    numbers, results = multiprocessing.Queue(4 * arguments.jobs), multiprocessing.Queue()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        tools = Tools(arguments.mpc, folder / "shared")
        variants.prepare(arguments.variants, tools)
        deadline = time.time() + arguments.seconds
        workers = [multiprocessing.Process(target=start_worker, args=(n, arguments, folder, numbers, results, deadline))
                   for n in range(arguments.jobs)]
        for worker in workers:
            worker.start()
        feeder = multiprocessing.Process(target=feed, args=(numbers, arguments, deadline))
        feeder.start()
        failed = collect(results, len(workers), began)
        feeder.terminate()
    print(f"failures are in {arguments.out}")
    sys.exit(failed)


def feed(numbers, arguments, deadline):
    count = arguments.count if arguments.count is not None else 10**12
    for seed in range(arguments.seed, arguments.seed + count):
        if time.time() >= deadline:
            break
        numbers.put(seed)
    for _ in range(arguments.jobs):
        numbers.put(None)


if __name__ == "__main__":
    main()
