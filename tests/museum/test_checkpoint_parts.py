"""A checkpoint holds whole tensors under whole names, so that any layout can go on from it.

https://github.com/NVIDIA/Megatron-LM/issues/7452 (number 12): each pipeline stage called its layers 0, 1, ... in the
checkpoint; loaded under another layout, layers got the weights of others, and the strict loader was content.
https://github.com/NVIDIA/Megatron-LM/pull/6920: after a load each rank kept the shards it had read beside copies of what
was there before; the loss looked normal.

Planted: the two parts of one tensor are swapped in the file; two layers have each other's names.
"""
import json
import struct

import pytest
from conftest import STEPS, is_same

BEFORE = 3


@pytest.fixture
def header_of():
    def read(path):
        raw = path.read_bytes()
        length, = struct.unpack("<Q", raw[:8])
        return raw, 8 + length, json.loads(raw[8:8 + length])
    return read


@pytest.mark.parametrize("name, other", [("dp2-zero3", "tp2-seq"), ("tp2-seq", "one")])
def test_right(compiled, train, alone, name, other):
    train(compiled(name), BEFORE, "--save", "saved")
    assert is_same(train(compiled(other), STEPS, "--load", "saved"), alone)


def test_every_tensor_is_there_once(compiled, train, tmp_path, header_of):
    for name in ("one", "dp2-zero3", "tp2-seq"):
        train(compiled(name), BEFORE, "--save", "saved")
        _, _, header = header_of(tmp_path / "saved")
        shapes = {key: value["shape"] for key, value in header.items() if key[0] != "_" and "optimizer." not in key}
        assert shapes["table"] == [250, 16] and shapes["attend.1.wq"] == [16, 4, 4] and len(shapes) == 18, shapes


def swap_parts(raw, data, header, name):
    """What a loader makes of shards in the wrong order: halves of the second dim of a matrix."""
    first, last = header[name]["data_offsets"]
    rows, columns = header[name]["shape"]
    row = (last - first) // rows
    half, swapped = row // 2, raw[:data + first]
    for at in range(data + first, data + last, row):
        swapped += raw[at + half:at + row] + raw[at:at + half]
    assert columns % 2 == 0
    return swapped + raw[data + last:]


def test_planted_order_of_shards(compiled, train, alone, tmp_path, header_of):
    train(compiled("tp2-seq"), BEFORE, "--save", "saved")
    (tmp_path / "saved").write_bytes(swap_parts(*header_of(tmp_path / "saved"), "mlp.0.up"))
    assert not is_same(train(compiled("one"), STEPS, "--load", "saved")[BEFORE:], alone[BEFORE:])


def test_planted_names_of_other_layers(compiled, train, alone, tmp_path):
    train(compiled("tp2-seq"), BEFORE, "--save", "saved")
    raw = (tmp_path / "saved").read_bytes()
    swapped = raw.replace(b'"mlp.0.up"', b'"mlp.X.up"').replace(b'"mlp.1.up"', b'"mlp.0.up"')
    (tmp_path / "saved").write_bytes(swapped.replace(b'"mlp.X.up"', b'"mlp.1.up"'))
    assert not is_same(train(compiled("one"), STEPS, "--load", "saved")[BEFORE:], alone[BEFORE:])
