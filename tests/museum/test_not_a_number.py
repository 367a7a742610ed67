"""A gradient that is no number ends the run of every rank, and is not saved.

https://github.com/Lightning-AI/pytorch-lightning/pull/21929: with FSDP, `error_if_nonfinite` was taken and not looked at: a norm
of NaN went into the factor that clips, from there into every weight, and training went on.

Here huge weights of a product that is multiplied by zeros make a good loss and an infinite norm; on two ranks it is the
part of one of them.  Planted: nobody looks at the norm.
"""
import json
import struct

import numpy as np
import pytest
from conftest import ranks

NOT_LOOKED_AT = "train.c", r"s/!isfinite\(report->grad_norm\)/false/"


def spoil(path):
    """In the second layer: the last column of `up` is huge, and `down` is zero."""
    raw = bytearray(path.read_bytes())
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    numbers = np.frombuffer(raw, np.float32, offset=8 + length)
    first, last = (place // 4 for place in header["mlp.1.up"]["data_offsets"])
    numbers[first:last].reshape(header["mlp.1.up"]["shape"])[:, -1] = 1e25
    first, last = (place // 4 for place in header["mlp.1.down"]["data_offsets"])
    numbers[first:last] = 0
    for name in ("mlp.1.up", "mlp.1.down"):  # changed on purpose
        del header["__metadata__"][f"checksum.{name}"]
    path.write_bytes(raw[:8] + json.dumps(header, separators=(",", ":")).encode().ljust(length) + raw[8 + length:])


@pytest.fixture
def go_on(text, tmp_path):
    """go_on(trainer, status): how it ends that goes on from spoilt weights."""
    def run(trainer, status):
        ranks.start(trainer.command("--steps", 0, "--save", "saved"), tmp_path)
        spoil(tmp_path / "saved")
        return ranks.start(trainer.command("--data", text, "--data-format", "bytes", "--steps", 3, "--load", "saved",
                                           "--save", "after"), tmp_path, status)
    return run


@pytest.mark.parametrize("name", ["one", "tp2-seq"])
def test_right(compiled, go_on, tmp_path, name):
    assert "step 1: the gradient norm is inf" in ranks.error_of(go_on(compiled(name), 3).stderr)
    assert not (tmp_path / "after").exists()


def test_planted(compiled, go_on, tmp_path):
    """The infinite norm makes the factor zero that clips: nothing is learnt, and nothing says so."""
    go_on(compiled("one", NOT_LOOKED_AT), 0)
    assert (tmp_path / "after").exists()
