"""Models without their layouts, the layouts that mpc derives for them, and files with another layout."""
import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.mdl"))
PARALLEL = re.compile(r"^parallel \{.*?^\}\n", re.M | re.S)


def run(*words, status=0):
    done = subprocess.run(list(map(str, words)), capture_output=True, timeout=300)
    assert done.returncode == status, f"status {done.returncode}, not {status}\n{done.stdout.decode()}\n{done.stderr.decode()}"
    return done.stdout.decode()


def mpc(*words):
    return run(BUILD / "mpc", *words)


def example(name):
    return (ROOT / "examples" / f"{name}.mdl").read_text()


def without_layout(text):
    return PARALLEL.sub("", text)


def derived(path, *sizes):
    return run(BUILD / "plan_layout", "derive", path, *sizes)


def written(path, block, comment="", microbatch=0, abreast=0):
    return run(BUILD / "plan_layout", "write", path, block, comment, microbatch, abreast)


def with_derived(path, text, *sizes):
    """The file, of a model without a layout, with the one that mpc derives; and that."""
    path.write_text(text)
    block = derived(path, *sizes)
    path.write_text(f"{text}\n{block}")
    return block


def axes_of(block):
    """The axes in the order of the mesh."""
    return re.findall(r"(\w+) *= *\d+", re.search(r"^ *mesh (.*)", block, re.M)[1].split("#")[0])


def split_over(block, axis):
    """What `shard` names: dims, and pairs in parentheses; and what is behind `else`, or None."""
    items, otherwise = [], None
    for dims, after in re.findall(rf"^ *shard (.*?) over {axis}\b([^#\n]*)", block, re.M):
        items += re.findall(r"\([^)]*\)|\w+", dims)
        otherwise = after.split()[1] if " else " in f"{after} " else otherwise
    return items, otherwise


def report(path, *options):
    return json.loads(mpc("report", path, "--json", *options))
