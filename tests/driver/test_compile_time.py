"""The work to compile a program grows as its size: little more than four times for four times the size.

Only mpc is measured, by the pieces of code that it executes: valgrind counts them in the half of the time that it takes to
count instructions.  Another process that uses the same caches slows mpc down by any factor.
"""

import re
import subprocess
import sys

import pytest

from conftest import MPC, ROOT

sys.path.insert(0, str(ROOT / "tests"))
from cover import ALL  # noqa: E402

HEAD = "dim batch\ndim d = 8\n"
MODEL = """model m {{
    input x : [batch, d]
    input y : [batch, d]
    param w : [d] = ones
    h = x * w
{}    loss mean((h - y)^2)
}}
"""
LAYOUT = """parallel {
    mesh dp = 1, tp = 1
    shard batch over dp
    shard d over tp
    zero 1 over dp
}
train {
    batch = 2
}
"""
BLOCK = "block b{}(x: [batch, d]) {{\n    param p : [d] = ones\n    return x * p + {}\n}}\n"
TIMES, MOST = 4, 4.1  # 3.89 to 3.94 were measured: what grows as a square may be a sixteenth of the work
MOST_OF_INSTANCES = 4.3
MOST_OF_BLOCKS = 4.75  # names are looked up in tables, which grow by more than their elements: 4.54 were measured


def lines(count):
    """One value after the other, without parameters."""
    return HEAD + MODEL.format("    h = h + h * 0.5\n" * count)


def shared_value(count):
    """The same, each reads one value."""
    return HEAD + MODEL.format("    h = tanh(h + x)\n" * count)


def numbered_copies(count):
    """Copies that compute with their number, each of them a function."""
    return HEAD + MODEL.format("    repeat 256 as i { h = h * (i + 1) }\n" * (count // 256))


def instances(count):
    """Of one block with a parameter."""
    calls = "".join(f"    h = b(h) as q{i}\n" for i in range(count))
    return HEAD + BLOCK.format("", 1) + MODEL.format(calls)


def blocks(count):
    """Each another one, and called once."""
    calls = "".join(f"    h = b{i}(h) as q{i}\n" for i in range(count))
    return HEAD + "".join(BLOCK.format(i, i + 1) for i in range(count)) + MODEL.format(calls)


def repeats(count):
    """All of one name."""
    return HEAD + MODEL.format("    repeat 2 { h = h * 0.9 }\n" * count)


def mistakes(count):
    """Most of which are not shown."""
    return HEAD + MODEL.format("    q = unknown + 1\n" * count)


CASES = [(mistakes, 4096, MOST, []), (shared_value, 1024, MOST, []), (numbered_copies, 1024, MOST, []),
         (instances, 1024, MOST_OF_INSTANCES, []), (repeats, 256, MOST, []),
         (lines, 1024, MOST, ["--recompute=full", "--set=train.precision=bf16"])]
CASES += [(blocks, 1024, MOST_OF_BLOCKS, ["--mesh=dp=2,tp=2", "--zero=1"])] if ALL else []


def pieces(source, out, said, status):
    """Of one compilation without the C compiler."""
    done = subprocess.run(["valgrind", "--tool=none", "--stats=yes", MPC, "compile", "--no-cc", source, "-o", out, *said],
                          capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return int(re.search(r"scheduler: ([\d,]+) event checks", done.stderr)[1].replace(",", ""))


@pytest.mark.parametrize("family,count,most,said", CASES, ids=[case[0].__name__ for case in CASES])
def test_work_grows_as_size(family, count, most, said, tmp_path):
    work = []
    for size in (count // TIMES, count):
        (tmp_path / f"{size}.mdl").write_text(family(size) + LAYOUT)
        work.append(pieces(tmp_path / f"{size}.mdl", tmp_path / str(size), said, int(family is mistakes)))
    assert work[1] <= most * work[0], f"{work[0]:,} for {count // TIMES}, {work[1]:,} for {count}"
