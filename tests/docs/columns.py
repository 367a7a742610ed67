"""Fails if a snippet in the right column of docs/from-pytorch.md does not compile, or names an option that does not exist.

A row's snippets, in backticks, are lines of one file: of the model, of `train { }` or of `parallel { }`, by the heading
above them.  Names that the page declares in its first table are inputs and parameters of that model if they are used.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/from-pytorch.md"
MPC = ROOT / os.environ.get("BUILD", "build") / "mpc"
ROWS = 40
DIMS = """const layers = 4
dim batch
dim seq = 16
dim key = seq
dim heads = 4
dim head = 8
dim embed = heads * head
dim ff = 4 * embed
dim vocab = 64
"""
LAYER = """block layer(x: [batch, seq, embed]) {
    param inner : [embed, ff] = normal(0.02)
    return x + dot(tanh(dot(x, inner, embed)), inner, ff)
}
"""
NAMES = {
    "tokens": "input tokens : i32[batch, seq]", "labels": "input labels : i32[batch, seq]",
    "x": "input rows : [batch, seq, embed]\n    x = rows", "z": "input z : [batch, seq, embed]",
    "q": "input q : [batch, seq, heads, head]", "k": "input k : [batch, seq, heads, head]",
    "v": "input v : [batch, seq, heads, head]", "logits": "input logits : [batch, seq, vocab]",
    "m": "input m : bool[batch, seq, embed]", "seen": "input seen : bool[batch, seq, key]",
    "w": "param w : [embed, ff] = normal(0.02)", "b": "param b : [embed] = zeros",
    "wte": "param wte : [vocab, embed] = normal(0.02)",
}
TOWER = ["y = wte[vocab = tokens]", "repeat layers { y = layer(y) as h }"]
# What an axis splits besides, so that a row is a whole layout.
SPLITS = {"dp": "shard batch over dp", "tp": "shard ff over tp"}


def model(lines):
    """A model with these lines, whose loss depends on all that they assign."""
    text = "\n".join(lines)
    assigned = {name for line in re.findall(r"^(?:(?!param|state|update|repeat|scan)[a-z, ]+?)(?= :| =)", text, re.M)
                for name in line.split(", ")} | set(re.findall(r"^repeat layers { (\w+)", text, re.M))
    used = set(re.findall(r"\b[a-z]\w*\b", text))
    declared = [NAMES[name] for name in NAMES if name in used]
    if not any(line.startswith("input") for line in declared):
        declared.append(NAMES["x"])
        assigned.add("x")
    loss = " + ".join(["mean(trained)", *(f"mean(cast({name}, f32))" for name in sorted(assigned))])
    inside = "\n    ".join([*declared, "param trained : [embed] = ones", *lines, f"loss {loss}"])
    return f"model row {{\n    {inside}\n}}\n"


def layout(lines):
    text = "\n    ".join(lines)
    axes = re.findall(r"\b(?:dp|tp|cp|pp)\b", text) or ["dp"]
    mesh = [] if text.startswith("mesh") else [f"mesh {', '.join(f'{axis} = 2' for axis in axes)}"]
    bare = re.sub(r"^zero \d over \w+$", "", text)  # zero splits no input
    splits = [SPLITS[axis] for axis in axes if axis in SPLITS and f"over {axis}" not in bare]
    return "parallel {\n    " + "\n    ".join([*mesh, *splits, *lines]) + "\n}\n"


def program(heading, lines):
    """The file that a row is checked in."""
    dims = "".join(line + "\n" for line in lines if line.startswith("dim "))
    lines = [line for line in lines if not line.startswith("dim ")]
    tower = model(TOWER).replace("mean(trained) + mean(cast(y, f32))", "mean(y * trained)")
    if heading == "Training":
        settings = "\n    ".join(lines)
        return DIMS + LAYER + tower + f"train {{\n    {settings}\n}}\n"
    if heading == "Layout":
        return DIMS + LAYER + tower + "train {\n    batch = 16\n    microbatch = 4\n}\n" + layout(lines)
    if heading == "Blocks":
        return DIMS + "\n".join(lines) + model(["y = mlp(x)"])
    return DIMS + dims + (LAYER if "layer(" in "".join(lines) else "") + model(lines)


def check(heading, row, lines, options):
    """What is wrong with a row, or nothing."""
    if heading == "Running":
        unknown = {word for line in lines for word in re.findall(r"--[a-z-]+", line)} - options
        return f"{row}: no option {', '.join(sorted(unknown))}" if unknown else ""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "row.mdl")
        path.write_text(program(heading, lines))
        result = subprocess.run([MPC, "check", path], capture_output=True, text=True, timeout=60)
    return f"{row}\n{result.stderr.replace(folder + '/', '')}" if result.returncode else ""


def rows(page):
    """Heading, PyTorch's column, snippets."""
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        heading = section.split("\n")[0]
        for line in re.findall(r"^\| (.*) \|$", section, re.M)[2:]:
            left, right = line.rsplit(" | ", 1)
            yield heading, left, re.findall(r"`([^`]+)`", right)


def all_options():
    names = ["run", "compile", "report", "import", "export", "plot", "check"]
    helps = [subprocess.run([MPC, "help", name], capture_output=True, text=True).stdout for name in names]
    return {word for text in helps for word in re.findall(r"--[a-z-]+", text)}


def main():
    options = all_options()
    page = PAGE.read_text()
    found = [row for row in rows(page) if row[2]]
    found += [("Blocks", "a module", [text]) for text in re.findall(r"^```mdl\n(.*?)^```$", page, re.M | re.S)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [line for line in pool.map(lambda row: check(*row, options), found) if line]
    print("\n".join([*wrong, f"from-pytorch.md: {len(found)} rows, {len(wrong)} that do not compile"]))
    return wrong != [] or len(found) < ROWS


if __name__ == "__main__":
    sys.exit(main())
