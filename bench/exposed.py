"""Messages that hide behind computation, and those that do not, as `mpc report --machine` predicts them.

    python3 bench/exposed.py                the table of bench/results/2026-11-30-exposed.md
    python3 bench/exposed.py --small        the same layouts of a model with few layers
    python3 bench/exposed.py --lines 4      below it, the lines of each model that wait longest

Nothing is measured: steps are simulated with the laws and figures of the machine (docs/report.md).  Each layout is compiled
with messages of `zero` that wait for each other (overlap_grads = false, overlap_params = false), as it is by default, and with
both.
"""
import argparse
import json
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODES = {"off": " (overlap_grads = false, overlap_params = false)", "default": "", "on": " (overlap_grads, overlap_params)"}
LLAMA = dict(seq=8192, vocab=128256, kv_heads=8, head=128)
B8 = dict(LLAMA, layers=32, embed=4096, group=4, ff=14336)
B70 = dict(LLAMA, layers=80, embed=8192, group=8, ff=28672)

# name, example, sizes, mesh, stage of zero, sequences in a step
LAYOUTS = [("Llama 8B", "llama", B8, "dp=1,tp=8", 1, 8), ("Llama 8B", "llama", B8, "dp=8,tp=8", 1, 512),
           ("Llama 70B", "llama", B70, "dp=2,pp=8,tp=8", 1, 64), ("Mixtral 8x7B", "mixtral", {}, "dp=8,ep=8", 1, 64),
           ("Mixtral 8x7B", "mixtral", {}, "dp=8,ep=8", 3, 64), ("Llama 8B", "llama", B8, "dp=64", 1, 64),
           ("Llama 8B", "llama", B8, "dp=64", 3, 64), ("Llama 8B", "llama", B8, "dp=64", 3, 256),
           ("Llama 8B", "llama", B8, "dp=8,cp=8", 3, 64)]


def report(example, sizes, mesh, zero, batch, mode, machine, edits=(), settings=()):
    """The JSON of a layout; `edits`: (old, new) text of the example; `settings`: "train.NAME=VALUE"."""
    text, changed = re.subn(r"^( *zero 1 over [^\n(]*[^\s(])$", rf"\1{MODES[mode]}", (ROOT / f"examples/{example}.mdl").read_text(), flags=re.M)
    assert changed == 1, f"examples/{example}.mdl has no line of zero to change"
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    words = [word for name, value in sizes.items() for word in ("-D", f"{name}={value}")]
    words += [word for setting in settings for word in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, f"{example}.mdl")
        model.write_text(text)
        done = subprocess.run([ROOT / "build/mpc", "report", model, *words, f"--mesh={mesh}", f"--zero={zero}", "--set",
                               f"train.batch={batch}", "--target=cuda", f"--machine={machine}", "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def row_of(said):
    """Seconds of a step, seconds that its messages take, those of which that nothing hides, GB."""
    time = said["time"]
    return (time["seconds"], sum(row["seconds"] for row in time["axes"]), time["parts"]["messages"], time["memory_bytes"] / 1e9)


def longest(said, count):
    """The lines that wait longest for messages."""
    lines = sorted((row for row in said["time"]["lines"] if row.get("messages")), key=lambda row: -row["messages"])
    return [f"{1e3 * row['messages']:.0f} ms at `{row['op']} {row['where']}`" for row in lines[:count]]


def parser_of(description):
    """Of the options that all tables of simulated steps have; `description`: the script's, whose first line is shown."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--machine", default="h100")
    parser.add_argument("--small", action="store_true", help="two layers a stage")
    return parser


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--lines", type=int, default=0, help="so many lines of each model")
    options = parser.parse_args()
    print("| model | mesh | zero | sequences | messages take, s | not hidden, s: off | default | on | a step, s: off | default | on "
          "| GB: off | default | on |")
    print("| --- | --- | --- | ---: |" + 10 * " ---: |")
    notes = []
    for name, example, sizes, mesh, zero, batch in LAYOUTS:
        sizes = dict(sizes, layers=16 if "pp" in mesh else 2) if options.small else sizes
        said = {mode: report(example, sizes, mesh, zero, batch, mode, options.machine) for mode in MODES}
        rows = {mode: row_of(said[mode]) for mode in MODES}
        cells = [f"{rows['off'][1]:.3f}", *(f"{rows[mode][at]:.{digits}f}" for at, digits in ((2, 3), (0, 3), (3, 1)) for mode in MODES)]
        print(f"| {name} | {mesh} | {zero} | {batch} | {' | '.join(cells)} |", flush=True)
        notes.append(f"* {name}, {mesh}, zero {zero}, {batch} sequences: " + ", ".join(longest(said["default"], options.lines)))
    if options.lines:
        print("\n" + "\n".join(notes))


if __name__ == "__main__":
    main()
