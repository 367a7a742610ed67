"""What mpc itself takes, of examples whose figures are recorded here: memory, and work.  Both are counted, not timed: memory by
malloc's calls (counts.c), work by the pieces of code that valgrind sees executed.  They are the same in each run.  Memory is
that of each compiler; clang 14 needs 10 to 18 % less work than gcc 12, of which the figures are.  With sanitizers, red zones or
other flags they are those of another program.

A change that needs more than MORE of a figure is seen here, and either is mended or raises it; one that needs less than LESS
lowers it, so that what it has saved is not lost unseen.
"""
import os
import re
import subprocess

import pytest

from conftest import HERE, MPC, ROOT

MORE, LESS = {"bytes": 1.05, "pieces of code": 1.1}, {"bytes": 0.85, "pieces of code": 0.75}
FIGURES = {  # command: bytes that it has at most at a time, pieces of code; 0: not counted, it takes too long
    ("report", "examples/gpt2.mdl"): (12_393_600, 9_356_041),
    ("check", "examples/llama.mdl", "--mesh", "dp=2,tp=2"): (15_219_120, 15_269_190),
    ("compile", "examples/gemma3.mdl", "--no-cc", "-o", "OUT"): (102_408_248, 107_375_876),
    ("report", "examples/deepseek.mdl", "--machine", "h100"): (79_257_184, 0),
}
pytestmark = pytest.mark.skipif(any(os.environ.get(name) for name in ("CFLAGS", "EXTRA_CFLAGS")),
                                reason="figures of mpc as it is made")


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    library = tmp_path_factory.mktemp("counts") / "counts.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", HERE / "counts.c", "-o", library], check=True)
    return library


def said_by(command, **environment):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **{name: str(value) for name, value in environment.items()}})
    assert done.returncode == 0, done.stderr
    return done.stderr


def compare(words, what, count, recorded):
    told = f"mpc {' '.join(words)}: {count:,} {what}, {count / recorded - 1:+.1%} beside the {recorded:,} recorded in {__file__}"
    assert LESS[what] * recorded <= count <= MORE[what] * recorded, told


@pytest.mark.parametrize("words", FIGURES, ids=" ".join)
def test_resources(words, counts, tmp_path):
    command = [MPC, *(str(tmp_path / "out") if word == "OUT" else word for word in words)]
    memory, work = FIGURES[words]
    said_by(command, LD_PRELOAD=counts, COUNTS=tmp_path / "counts")
    compare(words, "bytes", max(map(int, (tmp_path / "counts").read_text().split())), memory)
    if work:
        said = said_by(["valgrind", "--tool=none", "--stats=yes", *command])
        compare(words, "pieces of code", int(re.search(r"scheduler: ([\d,]+) event checks", said)[1].replace(",", "")), work)
