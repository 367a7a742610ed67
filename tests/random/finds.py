#!/usr/bin/python3
"""The test of this generator: on the compiler of the commit that had all kinds of mistakes of kinds.py, it has to find each.

    finds.py [--seconds S] [--jobs J] [--seed N] [--table FILE]

It checks that commit out, builds it, sees each program of found/ fail as it did, and tries random programs for S seconds;
of wrong numbers it learns the reason by making programs smaller.  Then it says how often each kind was met and by which first
program.  Exit status 1 if a kind was not.  --table: write that as a table."""
import argparse
import collections
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kinds import COMMIT, KINDS, kind_of
from machine import ROOT

WRONG = [name for name, kind in KINDS.items() if "wrong" in kind.signature]
HERE = Path(__file__).resolve().parent


def build_old(folder):
    """The compiler of that day, and what it was built from."""
    source = folder / "source"
    subprocess.run(["git", "worktree", "add", "--detach", source, COMMIT], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["make", "-s", "-j2"], cwd=source, check=True, capture_output=True)
    return source / "build" / "mpc"


def failures_of(folder):
    """(name, signature, text) of each file that fuzz.py has left."""
    for path in sorted(folder.glob("*.mdl"), key=lambda path: int(path.name.split("-")[0])):
        text = path.read_text()
        program = "".join(line for line in text.splitlines(True) if not line.startswith("#"))
        yield path.stem, text.splitlines()[0][2:], program


def smallest(path, mpc):
    """The signature and the text of a failure that was made smaller."""
    command = [sys.executable, HERE / "shrink.py", path, "--mpc", mpc, "--seconds", "40"]
    lines = subprocess.run([str(word) for word in command], capture_output=True, text=True).stdout.splitlines()
    return lines[0][2:], "\n".join(line for line in lines if not line.startswith("#"))


def sort_out(folder, mpc):
    """({kind: names of programs}, {signature of no kind: how many}).  Wrong numbers may have any reason: each is made smaller,
    until it is clear that the kinds of wrong numbers have been met."""
    met, other = collections.defaultdict(list), collections.Counter()
    for name, signature, text in failures_of(folder):
        if signature.startswith("wrong"):
            unmet = [kind for kind in WRONG if not met[kind]]
            if not unmet:
                met["wrong numbers that were not made smaller"].append(name)
                continue
            signature, text = smallest(folder / f"{name}.mdl", mpc)
        kind = kind_of(signature, text)
        if kind:
            met[kind].append(name)
        else:
            other[signature] += 1
    return met, other


def fuzz(mpc, folder, said):
    command = [sys.executable, HERE / "fuzz.py", "--mpc", mpc, "--out", folder, "--seed", said.seed,
               "--seconds", said.seconds, "--jobs", said.jobs]
    subprocess.run([str(word) for word in command])


def table(met):
    rows = [f"| `{name}` | {kind.what} | {len(met[name])} | {met[name][0] if met[name] else ''} |"
            for name, kind in KINDS.items() if kind.drawn]
    return "\n".join(["| kind | what | met | first by |", "| --- | --- | --- | --- |", *rows])


def main():
    arguments = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    arguments.add_argument("--seconds", type=int, default=3600)
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--table")
    said = arguments.parse_args()
    os.environ["CC"] = "cc"  # the kernels of that day need its vectors
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        try:
            mpc = build_old(folder)
            seen = subprocess.run([sys.executable, HERE / "found.py", "--seen", "--mpc", mpc])
            fuzz(mpc, folder / "out", said)
            met, other = sort_out(folder / "out", mpc)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder / "source"], cwd=ROOT)
    print(table(met))
    print("\nof no kind that is known:")
    print("\n".join(f"{count:5} {signature}" for signature, count in other.most_common()))
    if said.table:
        Path(said.table).write_text(table(met) + "\n")
    missing = [name for name, kind in KINDS.items() if kind.drawn and not met[name]]
    print(f"\nnot met: {', '.join(missing) or 'none'}")
    sys.exit(bool(missing) or seen.returncode)


if __name__ == "__main__":
    main()
