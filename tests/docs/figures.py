"""Fails if docs/layouts.md shows figures that are off what `mpc report` gives by more than 3 %.  BLESS=1 writes them anew.

A table's rows begin with the options of a layout; the command that they belong to stands above the table, behind
`Each row is `.  Figures are in GB; what is sent, over each axis.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "layouts.md"
MPC = ROOT / os.environ.get("BUILD", "build") / "mpc"
ROW = re.compile(r"^\| `(--mesh [^`]*)` \|.*$", re.M)


def gigabytes(count):
    return f"{count / 1e9:.3g}"


def figures(report):
    memory, sent = report["memory"], {}
    classes = memory["classes"]
    for collective in report["communication"]["collectives"]:
        sent[collective["axes"]] = sent.get(collective["axes"], 0) + collective["sent"]
    over = ", ".join(f"{axes} {gigabytes(count)}" for axes, count in sent.items() if count > 1e6)
    state = sum(classes[name] for name in ("master weights", "weights", "optimizer state"))
    return [gigabytes(memory["arena"]), gigabytes(state), gigabytes(classes["gradients"]),
            gigabytes(classes["activations"] + classes["workspace"]), str(report["micro_batches"]), over or "nothing"]


def row_of(command, options):
    words = [str(MPC), *shlex.split(command)[1:], *shlex.split(options), "--json"]
    result = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=100)
    if result.returncode:
        return f"| `{options}` | {result.stderr.strip()} |"
    return f"| `{options}` | " + " | ".join(figures(json.loads(result.stdout))) + " |"


def agree(shown, now):
    """The same words, and about the same numbers."""
    a, b = (re.split(r"(?<![\w=])(\d+(?:\.\d+)?)\b", line) for line in (shown, now))
    return len(a) == len(b) and all(
        abs(float(x) - float(y)) <= 0.03 * abs(float(y)) if i % 2 else x == y for i, (x, y) in enumerate(zip(a, b)))


def main():
    text = PAGE.read_text()
    parts = re.split(r"Each row is `(mpc report [^`]*)`", text)
    wrong = count = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for i in range(1, len(parts), 2):
            rows = list(ROW.finditer(parts[i + 1]))
            now = list(pool.map(lambda row: row_of(parts[i], row.group(1)), rows))
            for row, line in zip(rows, now):
                count += 1
                if not agree(row.group(0), line):
                    wrong += 1
                    print(f"layouts.md has {row.group(0)}\n     it now is {line}")
                    text = text.replace(row.group(0), line)
    if os.environ.get("BLESS") and wrong:
        PAGE.write_text(text)
    print(f"{count} rows of figures, {wrong} that are not so")
    return wrong > 0 or count == 0


sys.exit(main())
