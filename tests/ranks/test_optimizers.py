"""Every optimizer trains the same under every layout: matrices of muon and means of adafactor are those of whole
parameters, however these are split; its state is loaded by another layout, and a resumed run is equal bit for bit."""
import itertools
import json

import numpy as np
import pytest
from conftest import TCP, some

OPTIMIZERS = {
    "muon": ["optimizer = muon(lr = 0.02)", 'group "wte, wpe, *.gain, *.bias, *.b*" adamw(lr = 0.003, eps = 1e-4)'],
    "adafactor": ["optimizer = adafactor(lr = 0.03)", "ema = 0.9"],
    "lion": ["optimizer = lion(lr = 0.001)", 'group "*.mlp.*" sgd(lr = 0.1, momentum = 0.9, nesterov = true)',
             'group "*.gain" (weight_decay = 0.1)'],
}
LAYOUTS = {
    "zero1": ["mesh dp = 2", "shard batch over dp", "zero 1 over dp"],
    "zero3": ["mesh dp = 2, tp = 2", "shard batch over dp", "shard heads, ff, vocab over tp else seq", "zero 3 over dp"],
    "stages": ["mesh dp = 2, pp = 2", "shard batch over dp", "pipeline h over pp", "zero 2 over dp"],
}
SIZES = (("layers", 2),)


def tensors_of(path):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    return {name: np.frombuffer(raw[8 + length:][slice(*entry["data_offsets"])], "<f4").astype(np.float64)
            for name, entry in header.items() if name != "__metadata__"}


def trained(compiled, train, tmp_path, optimizer, layout, save, steps, *options):
    lines = "\n    ".join(OPTIMIZERS[optimizer])
    trainer = compiled("chars", tuple(LAYOUTS.get(layout, ())), SIZES, (("microbatch", 4),), *TCP, edit=(r"optimizer *=.*", lines))
    log = train(trainer, steps, "--save", tmp_path / save, *options)
    return log, tensors_of(tmp_path / save)


def distance(a, b):
    """In units of the largest change or value of the tensor, or of a small part of 1."""
    return max(float(np.abs(a[name] - b[name]).max() / max(np.abs(a[name]).max(), 1e-2)) for name in a)


@pytest.mark.parametrize("optimizer, layout", some(itertools.product(OPTIMIZERS, LAYOUTS), 1, 5, 6))  # muon over tp
def test_the_same(compiled, train, tmp_path, optimizer, layout):
    log, whole = trained(compiled, train, tmp_path, optimizer, "one", "one", 4)
    split_log, split = trained(compiled, train, tmp_path, optimizer, layout, "split", 4)
    assert whole.keys() == split.keys()
    assert np.allclose([x["loss"] for x in log], [x["loss"] for x in split_log], rtol=2e-5)
    parameters = {name: value for name, value in whole.items() if not name.startswith("optimizer.")}
    if optimizer != "lion":  # whose signs of tiny means are arbitrary
        assert distance(parameters, split) < 2e-3
    trained(compiled, train, tmp_path, optimizer, layout, "half", 2)
    _, end = trained(compiled, train, tmp_path, optimizer, layout, "end", 4, "--load", tmp_path / "half")
    assert all(np.array_equal(end[name], split[name]) for name in split)
    _, other = trained(compiled, train, tmp_path, optimizer, "one", "other", 4, "--load", tmp_path / "half")
    if optimizer != "lion":
        assert distance(parameters, other) < 2e-3
