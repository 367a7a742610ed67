"""Whole trainings against PyTorch: the same weights, text and settings give the same losses and gradient norms."""

import numpy as np
import pytest
from common import (Reference, batches, compile_model, initial_weights, largest_difference, learning_rate,
                    read_safetensors, train, write_text)
import models

STEPS = 12
SEQ = 24
# Odd sizes on purpose: nothing is a multiple of a vector.
MODELS = {
    "gpt2": (models.gpt2(3), ["-D", "layers=3", "-D", "embed=40", "-D", "heads=5", "-D", "vocab=256"],
             dict(lr=6e-3, min_lr=6e-4), dict(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)),
    "llama": (models.llama(2), ["-D", "layers=2", "-D", "embed=36", "-D", "kv_heads=2", "-D", "group=3", "-D",
                                "head=10", "-D", "ff=52", "-D", "vocab=256"],
              dict(lr=4e-3, min_lr=4e-4), dict(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)),
    "mixtral": (models.mixtral(2, 2, 1.25, 0.001),
                ["-D", "layers=2", "-D", "embed=36", "-D", "kv_heads=2", "-D", "group=3", "-D", "head=10", "-D", "ff=20",
                 "-D", "experts=5", "-D", "vocab=256"],
                dict(lr=4e-3, min_lr=4e-4), dict(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)),
    "bert": (models.bert(2), ["-D", "layers=2", "-D", "embed=40", "-D", "heads=5", "-D", "drop=0", "-D", "vocab=256"],
             dict(lr=3e-3, min_lr=3e-4), dict(betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01)),
}


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("data") / "text", 4000)


def settings(rates, **more):
    values = {"train.optimizer.lr": rates["lr"], "train.schedule": f"cosine(warmup = 4, steps = 20, min_lr = {rates['min_lr']})",
              "train.clip": 0.5, "train.batch": 6, "train.microbatch": 6, "train.precision": "fp32", **more}
    return [word for key, value in values.items() if value is not None for word in ("--set", f"{key}={value}")]


def reference_run(loss, weights, rates, options, text):
    reference = Reference(weights, loss, lambda name: name.split(".")[-1] in ("bq", "bk", "bv"), **options)
    feed = batches(text, 6, SEQ)
    run = [reference.step(*next(feed), learning_rate(step, rates["lr"], 4, 20, rates["min_lr"]), 0.5)
           for step in range(STEPS)]
    return run, reference


@pytest.fixture(scope="session")
def runs(tmp_path_factory, text):
    """Each model once: its trainer, its initial weights, PyTorch's losses and norms, PyTorch's final weights."""
    done = {}

    def run(name):
        if name not in done:
            loss, dims, rates, options = MODELS[name]
            out = compile_model(name, tmp_path_factory.mktemp(name), "-D", f"seq={SEQ}", *dims, *settings(rates), cflags="-O1")
            weights = initial_weights(out, text)
            done[name] = (out, weights, *reference_run(loss, weights, rates, options, text))
        return done[name]

    return run


@pytest.mark.parametrize("name", MODELS)
def test_fp32_follows_pytorch(name, runs, text):
    """Tolerance 2e-5: twelve steps of a few thousand roundings of 6e-8 each; a wrong term shows at 1e-3 and above."""
    out, weights, expected, reference = runs(name)
    log = train(out, "--data", text, "--no-shuffle", "--steps", STEPS, "--save", out / "end.safetensors")
    losses, norms = largest_difference(log, expected)
    assert len(log) == STEPS and losses < 2e-5 and norms < 2e-4, (losses, norms)
    assert expected[-1][0] < expected[0][0], "it should have learned something"
    end = read_safetensors(out / "end.safetensors")
    for key, value in reference.weights.items():
        if key.endswith(".bk"):  # softmax does not see it: its gradient is rounding, which Adam makes large
            continue
        moved = np.abs(value.detach().numpy() - weights[key]).max()
        assert np.abs(end[key] - value.detach().numpy()).max() < 2e-2 * moved + 1e-6, (key, moved)


@pytest.mark.parametrize("name", MODELS)
def test_bf16_stays_near(name, runs, text, tmp_path):
    """bf16 keeps 8 bits: each rounding is off by up to 2^-9 = 0.002, at random; the loss averages over 144 tokens
    and stays within half a rounding, the norm within some; a wrong scale or a missing term is far outside."""
    loss, dims, rates, options = MODELS[name]
    _, weights, expected, _ = runs(name)
    out = compile_model(name, tmp_path, "-D", f"seq={SEQ}", *dims, *settings(rates, **{"train.precision": "bf16"}), cflags="-O1")
    log = train(out, "--data", text, "--no-shuffle", "--steps", STEPS)
    losses, norms = largest_difference(log, expected)
    assert losses < 4e-3 and norms < 0.06, (losses, norms)
    assert losses > 1e-7, "this cannot have been bf16"


@pytest.mark.parametrize("microbatch", [2, 3])
def test_accumulation_changes_nothing(microbatch, runs, text, tmp_path):
    loss, dims, rates, options = MODELS["bert"]
    _, _, expected, _ = runs("bert")
    out = compile_model("bert", tmp_path, "-D", f"seq={SEQ}", *dims, *settings(rates, **{"train.microbatch": microbatch}))
    losses, norms = largest_difference(train(out, "--data", text, "--no-shuffle", "--steps", STEPS), expected)
    assert losses < 2e-5 and norms < 2e-4, (losses, norms)


@pytest.mark.parametrize("policy", ["none", "selective", "full"])
def test_recomputation_changes_nothing(policy, runs, text, tmp_path):
    loss, dims, rates, options = MODELS["gpt2"]
    _, _, expected, _ = runs("gpt2")
    out = compile_model("gpt2", tmp_path, "-D", f"seq={SEQ}", *dims, *settings(rates), "--recompute", policy)
    losses, norms = largest_difference(train(out, "--data", text, "--no-shuffle", "--steps", STEPS), expected)
    assert losses < 2e-5 and norms < 2e-4, (losses, norms)


@pytest.mark.parametrize("kind", ["constant(warmup = 3)", "linear(warmup = 2, steps = 9, min_lr = 1e-4)",
                                  "wsd(warmup = 2, steps = 10, decay = 4, min_lr = 1e-4)"])
def test_schedules_and_sgd(kind, runs, text, tmp_path):
    loss, dims, rates, _ = MODELS["llama"]
    _, weights, _, _ = runs("llama")
    out = compile_model("llama", tmp_path, "-D", f"seq={SEQ}", *dims, *settings(rates, **{
        "train.schedule": kind, "train.optimizer.lr": None, "train.optimizer": "sgd(lr = 0.3, momentum = 0.9, weight_decay = 0.01)"}))
    log = train(out, "--data", text, "--no-shuffle", "--steps", STEPS)
    reference = Reference(weights, loss, lambda name: False, optimizer="sgd", weight_decay=0.01, momentum=0.9)
    name, given = kind.split("(")
    given = {key.strip(): float(value) for key, value in (word.split("=") for word in given[:-1].split(","))}
    feed = batches(text, 6, SEQ)
    expected = []
    for step in range(STEPS):
        lr = learning_rate(step, 0.3, given["warmup"], given.get("steps", 0), given.get("min_lr", 0), name,
                           given.get("decay", 0))
        assert abs(log[step]["lr"] - lr) < 1e-6 * lr
        expected.append(reference.step(*next(feed), lr, 0.5))
    losses, norms = largest_difference(log, expected)
    assert losses < 2e-5 and norms < 2e-4, (losses, norms)


def test_same_bits_again_and_after_a_break(runs, text):
    out, _, _, _ = runs("gpt2")
    whole = train(out, "--data", text, "--steps", 8, "--save", out / "whole.safetensors")
    again = train(out, "--data", text, "--steps", 8, "--save", out / "again.safetensors")
    assert [entry["loss"] for entry in whole] == [entry["loss"] for entry in again]
    train(out, "--data", text, "--steps", 5, "--save", out / "part.safetensors")
    train(out, "--data", text, "--steps", 8, "--load", out / "part.safetensors", "--save", out / "rest.safetensors")
    ends = [read_safetensors(out / f"{name}.safetensors") for name in ("whole", "again", "rest")]
    for key in ends[0]:
        assert all(np.array_equal(ends[0][key], end[key]) for end in ends[1:]), key


def test_padded_vocabulary_is_invisible(runs, text, tmp_path):
    """256 tokens stored as 384: the same losses, and the checkpoint has 256 rows."""
    source = (__import__("common").ROOT / "examples" / "gpt2.mdl").read_text().replace("padded 128", "padded 384")
    loss, dims, rates, _ = MODELS["gpt2"]
    _, _, expected, _ = runs("gpt2")
    out = compile_model(source, tmp_path, "-D", f"seq={SEQ}", *dims, *settings(rates))
    log = train(out, "--data", text, "--no-shuffle", "--steps", STEPS, "--save", out / "end.safetensors")
    losses, norms = largest_difference(log, expected)
    assert losses < 2e-5 and norms < 2e-4, (losses, norms)
    assert read_safetensors(out / "end.safetensors")["wte"].shape == (256, 40)
