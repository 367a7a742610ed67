#!/usr/bin/python3
"""Programs that once were wrong, crashed or were refused without need: each has to be right now, or refused by mpc check
itself with reason and remedy.

    found.py [--mpc PATH] [--seen]

--seen: on the compiler that had these mistakes, each has to show its kind (kinds.py)."""
import argparse
import multiprocessing
import os
import re
import sys
import tempfile
from pathlib import Path

import torch

import variants
from judge import Judge, read_case
from kinds import KINDS
from machine import ROOT, Tools

FOLDER = Path(__file__).resolve().parent / "found"


def fixtures(seen):
    """(path, kind) of each, from its first line; `seen`: of those that the old compiler has to fail."""
    for path in sorted(FOLDER.glob("*.mdl")):
        kind = re.match(r"# kind (\w+)", path.read_text())[1]
        if not (seen and KINDS[kind].later):
            yield path, kind


def is_mended(found):
    return found.status == "ok" or (found.status == "refused" and "= help:" in found.detail)


def judge_one(job):
    """What is not as it should be of one program, or None; each process has a folder of its own."""
    path, kind, tools, seen = job
    judge = Judge(tools, tools.shared.parent / f"work{os.getpid()}")
    torch.set_num_threads(1)
    case, variant = read_case(path)
    found = judge.judge(variants.apply(variant, case, tools))
    if re.search(KINDS[kind].signature, found.signature) if seen else is_mended(found):
        return None
    return f"{path.name} ({variant}; {KINDS[kind].what}): {found.signature}\n" + "\n".join(found.detail.splitlines()[:3])


def judge_all(mpc, folder, seen):
    """What is not as it should be, a text each."""
    tools = Tools(mpc, Path(folder) / "shared")
    variants.prepare([read_case(path)[1] for path, _ in fixtures(seen)], tools)
    with multiprocessing.Pool(2) as pool:
        jobs = [(path, kind, tools, seen) for path, kind in fixtures(seen)]
        yield from filter(None, pool.imap(judge_one, jobs))


def main():
    arguments = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    arguments.add_argument("--mpc", default=ROOT / os.environ.get("BUILD", "build") / "mpc")
    arguments.add_argument("--seen", action="store_true")
    said = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        failures = []
        for failure in judge_all(said.mpc, folder, said.seen):
            failures.append(failure)
            print(failure, flush=True)
    count = len(list(fixtures(said.seen)))
    print(f"{count - len(failures)} of {count} programs that once failed are {'seen to fail' if said.seen else 'right'}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
