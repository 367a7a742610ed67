"""score.py FOLDER MUTANTS -- plants mistakes in compiled programs; every one has to be noticed by some check.

Prints one row a kind of mistake: mutants, how many the verifier of types, reals and residues notice, how many nobody.
Each program after the passes that know the mesh, and after memory.
"""
import collections
import concurrent.futures
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "verify"))
import layouts  # noqa: E402

PROGRAMS = [("gpt2", dict(dp=2, cp=1, tp=2, zero=2)), ("bert", dict(dp=2, cp=2, tp=1, zero=1)),
            ("llama", dict(dp=1, cp=2, tp=2, zero=0)), ("llama", dict(dp=2, cp=1, tp=2, zero=3))]
KINDS = "abcdefghijkl"


def score(folder, most, number, stage):
    model, mesh = PROGRAMS[number]
    layout = dict(mesh, otherwise=True, accumulation=4, recompute="selective", precision="fp32", over="dp")
    source, ir = folder / f"{model}-{number}-{stage}.mdl", folder / f"{model}-{number}-{stage}.mir"
    source.write_text(layouts.model_text(model, layout))
    said = layouts.settings(model, layout)
    for command in ([layouts.MPC, "compile", source, *said, f"--compile-to={stage}", "-o", ir],
                    [folder / "mutate", ir, most]):
        done = layouts.run(command)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
    return done.stdout


def main(folder, most):
    rows, missed = collections.defaultdict(lambda: [0] * 5), []
    jobs = [(number, stage) for number in range(len(PROGRAMS)) for stage in ("padding", "memory")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text in pool.map(lambda job: score(folder, most, *job), jobs):
            missed += re.findall(r"^missed: .*", text, re.M)
            for row in re.finditer(r"^(\w) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)  (.*)", text, re.M):
                counts = rows[f"{row[1]}  {row[7]}"]
                rows[f"{row[1]}  {row[7]}"] = [sum(pair) for pair in zip(counts, map(int, row.groups()[1:6]))]
    print("mutants types reals residues nobody")
    for name, counts in sorted(rows.items()):
        print(f"{counts[0]:7} {counts[1]:5} {counts[2]:5} {counts[3]:8} {counts[4]:6}  {name}")
    total, typed, real, exact, nobody = (sum(column) for column in zip(*rows.values()))
    print("\n".join(missed))
    absent = [kind for kind in KINDS if not any(name.startswith(kind) for name in rows)]
    if absent:
        print("no mistake was planted of the kinds " + ", ".join(absent))
    print(f"{total} mistakes planted: types notice {typed / total:.0%}, reals {real / total:.0%}, residues "
          f"{exact / total:.0%}, nobody {nobody}")
    return 1 if nobody or absent else 0


sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
