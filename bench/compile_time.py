"""Milliseconds of `mpc compile` at Llama-405B's sizes, for one rank and for 1024, without the C compiler.

    python3 bench/compile_time.py               the table of `make bench`
    python3 bench/compile_time.py --runs N      of each (9)
"""

import argparse
import os
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIZES = dict(embed=16384, kv_heads=8, group=16, head=128, ff=53248, vocab=128256, seq=8192)
MESH, STAGES = "dp=64,cp=2,tp=8", "dp=4,cp=2,tp=8,pp=16"  # 1024 ranks each
DEPTHS = (12, 48, 96, 126)
RUNS = 9


def compile_once(layers, mesh):
    """Milliseconds of the whole process, and of processor time."""
    command = [ROOT / "build" / "mpc", "compile", ROOT / "examples" / "llama.mdl", "-o", ROOT / "out" / "bench" / "405b", "--no-cc",
               f"-Dlayers={layers}", *[f"-D{name}={size}" for name, size in SIZES.items()], *([f"--mesh={mesh}"] if mesh else [])]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return (time.monotonic() - start) * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3


def row(layers, runs):
    """One rank and the meshes take turns, so that what else the machine does meets all.  16 stages need as many layers."""
    meshes = ["", MESH] + [STAGES] * (layers >= 16)
    for mesh in meshes:
        compile_once(layers, mesh)
    turns = [[compile_once(layers, mesh) for mesh in meshes] for _ in range(runs)]
    cells = [layers]
    for which, of in ((0, statistics.median), (1, min)):
        times = [of([turn[i][which] for turn in turns]) for i in range(len(meshes))]
        cells += [f"{times[0]:.1f}", f"{times[1]:.1f}", f"{times[1] / times[0]:.2f}"]
        cells += [f"{times[2]:.1f}", f"{times[2] / times[1]:.2f}"] if len(times) > 2 else ["", ""]
    return "| " + " | ".join(map(str, cells)) + " |"


def table(say, runs=RUNS):
    """Markdown."""
    lines = ["## Compile time at Llama-405B's sizes", "",
             f"`mpc compile --no-cc` of {runs} runs, whole process with every check after every pass: the median, and the least",
             f"processor time, which other work on the machine disturbs less. ms; ratios: of the mesh to 1 rank, and of the",
             f"pipeline, `{STAGES}`, to the mesh.", "",
             f"| layers | 1 rank | `{MESH}` | ratio | pipeline | ratio | processor: 1 rank | `{MESH}` | ratio | pipeline | ratio |",
             "|" + " --- |" * 11]
    for layers in DEPTHS:
        lines.append(row(layers, runs))
        say("   " + lines[-1])
    return [*lines, ""]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    table(lambda text: print(text, flush=True), parser.parse_args().runs)
