"""A checkpoint holds whole tensors under whole names, so that any layout can go on from it.

https://github.com/NVIDIA/Megatron-LM/issues/7452 (number 12): each pipeline stage called its layers 0, 1, ... in the
checkpoint; loaded under another layout, layers got the weights of others, and the strict loader was content.
https://github.com/NVIDIA/Megatron-LM/pull/6920: after a load each rank kept the shards it had read beside copies of what
was there before; the loss looked normal.

Planted: the two parts of one tensor are swapped in the file; two layers have each other's names.
"""
import pytest
from conftest import STEPS, is_same, read_checkpoint, write_checkpoint

BEFORE = 3


@pytest.mark.parametrize("name, other", [("dp2-zero3", "tp2-seq"), ("tp2-seq", "one")])
def test_right(compiled, train, alone, name, other):
    train(compiled(name), BEFORE, "--save", "saved")
    assert is_same(train(compiled(other), STEPS, "--load", "saved"), alone)


def test_every_tensor_is_there_once(compiled, train, tmp_path):
    for name in ("one", "dp2-zero3", "tp2-seq"):
        train(compiled(name), BEFORE, "--save", "saved")
        header, _ = read_checkpoint(tmp_path / "saved")
        shapes = {key: value["shape"] for key, value in header.items() if key[0] != "_" and "optimizer." not in key}
        assert shapes["table"] == [250, 16] and shapes["attend.1.wq"] == [16, 4, 4] and len(shapes) == 18, shapes


def swap_parts(header, data, name):
    """What a loader makes of shards in the wrong order: halves of the second dim of a matrix."""
    first, last = header[name]["data_offsets"]
    rows, columns = header[name]["shape"]
    row = (last - first) // rows
    half, swapped = row // 2, data[:first]
    for at in range(first, last, row):
        swapped += data[at + half:at + row] + data[at:at + half]
    assert columns % 2 == 0
    return swapped + data[last:]


def test_planted_order_of_shards(compiled, train, alone, tmp_path):
    train(compiled("tp2-seq"), BEFORE, "--save", "saved")
    header, data = read_checkpoint(tmp_path / "saved")
    write_checkpoint(tmp_path / "saved", header, swap_parts(header, data, "mlp.0.up"))
    assert not is_same(train(compiled("one"), STEPS, "--load", "saved")[BEFORE:], alone[BEFORE:])


def test_planted_names_of_other_layers(compiled, train, alone, tmp_path):
    train(compiled("tp2-seq"), BEFORE, "--save", "saved")
    header, data = read_checkpoint(tmp_path / "saved")
    header["mlp.0.up"], header["mlp.1.up"] = header["mlp.1.up"], header["mlp.0.up"]
    write_checkpoint(tmp_path / "saved", header, data)
    assert not is_same(train(compiled("one"), STEPS, "--load", "saved")[BEFORE:], alone[BEFORE:])
