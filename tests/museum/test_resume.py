"""A resumed run draws the numbers that the unbroken one would have drawn.

https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5255: a checkpoint restored the state of the random generators, then a
warm-up of the data pipeline drew from them before the first step.  Dropout went on elsewhere in the stream.

Here there is no state: the numbers of a step are a function of seed and step, whatever was evaluated or saved before.
Planted: numbers that depend on how often some were drawn in this process; a checkpoint with another seed.
"""
import pytest
from conftest import STEPS, is_same, read_checkpoint, write_checkpoint

BEFORE = 3
DRAWN = "train.c", r"""1i static unsigned drawn;
s/(RT_STREAM_DROPOUT, )\(uint32_t\)step/\1drawn++/"""


def exact(log):
    return [(line["step"], line["loss"], line["grad_norm"]) for line in log]


@pytest.mark.parametrize("name", ["one", "tp2-seq"])
def test_right(compiled, train, text, name):
    trainer = compiled(name)
    unbroken = train(trainer, STEPS)
    train(trainer, BEFORE, "--save", "saved")
    train(trainer, 0, "--load", "saved", "--eval-data", text, "--data-format", "bytes", "--save", "saved")
    assert exact(train(trainer, STEPS, "--load", "saved")) == exact(unbroken)


def test_planted_stream(compiled, train, alone):
    """Nobody sees it in a run that is not broken."""
    trainer = compiled("one", DRAWN)
    assert exact(train(trainer, STEPS)) == exact(alone)
    train(trainer, BEFORE, "--save", "saved")
    assert not is_same(train(trainer, STEPS, "--load", "saved")[BEFORE:], alone[BEFORE:])


def test_planted_seed(compiled, train, alone, tmp_path):
    train(compiled("one"), BEFORE, "--save", "saved")
    header, data = read_checkpoint(tmp_path / "saved")
    assert header["__metadata__"]["seed"] == "0"
    header["__metadata__"]["seed"] = "1"
    write_checkpoint(tmp_path / "saved", header, data)
    assert not is_same(train(compiled("one"), STEPS, "--load", "saved")[BEFORE:], alone[BEFORE:])
