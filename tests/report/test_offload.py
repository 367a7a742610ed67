"""What is offloaded, in memory and in time, against what follows from the number of parameters."""
import json

import pytest
from conftest import ROOT

LLAMA = ROOT / "examples/llama.mdl"
SHAPE = dict(layers=8, vocab=4096, seq=256, embed=512, kv_heads=2, group=4, head=64, ff=1536, batch=4, microbatch=1)
REPEATED = 8 * (2 * 512 * 512 + 2 * 512 * 128 + 3 * 512 * 1536 + 2 * 512)  # of the layers, of which two norms
ALL = REPEATED + 2 * 4096 * 512 + 512  # with embedding, head and the last norm
HOST, DISK = 64e9, 2e9


@pytest.fixture
def predict(report, tmp_path):
    """predict(option, ..., size=N): the report of Llama's shape, with its time on a machine with a disk."""
    (tmp_path / "my.machine").write_text((ROOT / "machines/h100.machine").read_text() + "disk                     2 GB/s           measured    this test\n")

    def run(*options, **sizes):
        return report("--machine", tmp_path / "my.machine", *options, file=LLAMA, **{**SHAPE, **sizes})
    return run


@pytest.mark.parametrize("precision,size", [("fp32", 4), ("bf16", 2)])
@pytest.mark.parametrize("tier,target,rate", [("host", "cuda", HOST), ("disk", "c", DISK)])
def test_activations(precision, size, tier, target, rate, predict):
    """Of full recomputation the inputs of eight layers, written and read once in each of four micro-batches."""
    plain, made = (predict("--target", target, "--set", f"train.precision={precision}", "--recompute=full", "--offload", what)
                   for what in ("none", f"activations to {tier}"))
    far, inputs = made["memory"]["offloaded"], 8 * 256 * 512 * size
    assert (far["tier"], far["bytes"], far["read"], far["written"]) == (tier, inputs, 4 * inputs, 4 * inputs)
    [moved] = [axes for axes in made["time"]["axes"] if axes["axes"] == tier]
    assert moved["seconds"] == pytest.approx(8 * inputs / rate, rel=1e-9)
    assert 0 <= moved["exposed"] <= moved["seconds"]
    assert plain["memory"]["arena"] - made["memory"]["arena"] == pytest.approx(inputs, rel=0.4)  # of two layers they are in memory


def bytes_per_parameter(precision, what):
    """Of weights, and read and written in a step: the update reads and writes two moments and, in bf16, the weights in f32,
    which the cast reads, too.  In f32 the model reads its weights, or in bf16 their casts, forward and backward of each
    of four micro-batches."""
    moments = 8
    if precision == "bf16":
        return {"optimizer": (12, 12 + 4, 12), "params": (2, 4 * 2 * 2, 2)}[what]
    return {"optimizer": (moments, moments, moments), "params": (4, 4 * 2 * 4 + 4, 4)}[what]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("what", ["optimizer", "params"])
@pytest.mark.parametrize("tier,target,rate", [("host", "cuda", HOST), ("disk", "c", DISK)])
def test_transfers(precision, what, tier, target, rate, predict):
    """But for what stays, a 256th of it, and pages that are not full."""
    made = predict("--target", target, "--set", f"train.precision={precision}", "--recompute=full", "--offload", f"{what} to {tier}")
    far, of = made["memory"]["offloaded"], ALL if what == "optimizer" else REPEATED
    kept, read, written = bytes_per_parameter(precision, what)
    if precision == "bf16" and what == "params":  # norms are small
        of -= 2 * 512 * 8
    assert far["tier"] == tier and far["bytes"] == pytest.approx(kept * of, rel=1 / 256 + 1e-3)
    assert far["read"] == pytest.approx(read * of, rel=1 / 256 + 1e-3)
    assert far["written"] == pytest.approx(written * of, rel=1 / 256 + 1e-3)
    [moved] = [axes for axes in made["time"]["axes"] if axes["axes"] == tier]
    assert moved["seconds"] == pytest.approx((far["read"] + far["written"]) / rate, rel=1e-9)
    assert 0 < moved["exposed"] <= moved["seconds"]


def test_hidden(predict):
    """A layer's weights are fetched while the layer before is computed: with enough tokens nothing waits but for the first."""
    few, many = (predict("--target=cuda", "--recompute=full", "--offload=params to host", seq=seq) for seq in (64, 32768))
    shares = [next(axes["exposed"] / axes["seconds"] for axes in made["time"]["axes"] if axes["axes"] == "host") for made in (few, many)]
    assert shares[1] < 0.3 < 0.35 < shares[0]
