"""A dim that does not divide is refused, or padded where nobody sees it.

https://github.com/pytorch/pytorch/pull/194457: gathering a tensor of 5 rows, split over two axes of two ranks, put padding
in place of the fourth row and lost the fifth, without an error: blocks of nested splits are not those of a flat one.

Here blocks are equal.  What does not divide is an error that says what would work; what is padded is gathered whole.
The bug itself is planted in gather_of_nested_split.mdl.
"""
import subprocess
import sys

import pytest
from conftest import HERE, ranks

sys.path.insert(0, str(HERE.parent / "verify"))
import layouts  # noqa: E402

MODEL = """dim batch
dim seq = 4
dim rows = 5{padding}
dim embed = 4

model tiny {{
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param table : [rows, embed] = normal(0.3)
    loss mean(cross_entropy(dot(table[rows = tokens], table, embed), labels, rows))
}}

train {{
    optimizer  = adamw(lr = 1e-2)
    clip       = 0.1
    batch      = 2
    microbatch = 2
}}

parallel {{
    mesh a = 2, b = 2
    shard rows over a
    {second}
}}
"""


def test_refused(tmp_path):
    model = tmp_path / "model.mdl"
    model.write_text(MODEL.format(padding="", second="shard rows over b"))
    done = subprocess.run([ranks.MPC, "check", model], capture_output=True, text=True)
    assert done.returncode == 1 and "rows" in done.stderr and "padded" in done.stderr, done.stderr


@pytest.mark.parametrize("second", ["shard rows over b", "zero 3 over b", "shard embed over b"])
def test_padded(tmp_path, second):
    """Exactly, over all passes, with numbers in the padding once there is memory."""
    shard = second if second.startswith("shard") else f"shard batch over b\n    {second}"
    text = MODEL.format(padding=" padded 4", second=shard).replace("microbatch = 2", "microbatch = 1")
    assert layouts.verify(tmp_path, "padded", text, [], "--verify-passes=exact") is None
