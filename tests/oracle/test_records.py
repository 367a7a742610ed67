"""Records: a vision transformer, a regression with masks, and sequence-to-sequence pairs, each input from an array of its
own, train as PyTorch's own modules do."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from common import compile_model, largest_difference, read_safetensors, train, write_safetensors, Reference

STEPS, BATCH, RECORDS = 10, 6, 48
SMALL_VIT = [f"-D{name}={value}" for name, value in
             {"layers": 2, "classes": 7, "patch": 9, "pixel": 12, "embed": 16, "heads": 2}.items()]


def vit(w, image, label):
    x = image @ w["w_patch"] + w["b_patch"] + w["positions"]
    for i in range(2):
        def own(name):
            return w[f"h.{i}.{name}"]
        y = F.layer_norm(x, x.shape[-1:], own("ln_1.gain"), own("ln_1.bias"), 1e-6)
        q, k, v = (torch.einsum("bpe,ehd->bhpd", y, own(f"attn.w{n}")) + own(f"attn.b{n}")[:, None] for n in "qkv")
        y = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1]**0.5, -1) @ v
        x = x + torch.einsum("bhpd,hde->bpe", y, own("attn.wo")) + own("attn.bo")
        y = F.layer_norm(x, x.shape[-1:], own("ln_2.gain"), own("ln_2.bias"), 1e-6)
        x = x + F.gelu(y @ own("mlp.w_up") + own("mlp.b_up")) @ own("mlp.w_down") + own("mlp.b_down")
    x = F.layer_norm(x, x.shape[-1:], w["ln_f.gain"], w["ln_f.bias"], 1e-6).mean(1)
    return F.cross_entropy(x @ w["w_class"] + w["b_class"], label)


def gives(out, arrays):
    """The options that feed these arrays, written as .npy files."""
    for name, array in arrays.items():
        np.save(out / f"{name}.npy", array)
    return [word for name in arrays for word in ("--data", f"{name}={out / name}.npy")]


def given(out, arrays, file):
    """The same, in files of either format."""
    if file == "npy":
        return gives(out, arrays)
    write_safetensors(out / "data.safetensors", arrays)
    return ["--data", out / "data.safetensors"]


def start(out, data):
    path = out / "init.safetensors"
    train(out, *data, "--steps", 0, "--save", path)
    return {name: value for name, value in read_safetensors(path).items() if not name.startswith("optimizer.")}


def follows_sgd(log, weights, arrays, lr, loss):
    """Are these the losses of SGD in double precision, of loss(weights, *arrays), with the records in their order?"""
    weights = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in weights.items()}
    for step, entry in enumerate(log):
        own = slice(step * BATCH % RECORDS, step * BATCH % RECORDS + BATCH)
        value = loss(weights, *(torch.from_numpy(array[own]) for array in arrays))
        gradients = torch.autograd.grad(value, list(weights.values()))
        assert abs(entry["loss"] - value.item()) < 1e-5 * value.item(), step
        with torch.no_grad():
            for weight, gradient in zip(weights.values(), gradients):
                weight -= lr * gradient
    return len(log) == STEPS


def test_vision_transformer(tmp_path):
    draw = np.random.default_rng(1)
    image = draw.standard_normal((RECORDS, 9, 12)).astype(np.float32)
    label = draw.integers(0, 7, RECORDS).astype(np.uint8)
    out = compile_model("vit", tmp_path, *SMALL_VIT, "--set=train.precision=fp32", f"--set=train.batch={BATCH}",
                        "--set=train.microbatch=2", "--set=train.schedule=constant()")
    data = gives(out, {"image": image, "label": label})
    weights = start(out, data)
    log = train(out, *data, "--no-shuffle", "--steps", STEPS, "--save", out / "end.safetensors")
    plain = ("gain", "bias", ".bq", ".bk", ".bv", ".bo", "positions")
    reference = Reference(weights, vit, lambda name: name.endswith(plain), betas=(0.9, 0.999), eps=1e-8)
    expected = []
    for step in range(STEPS):
        own = slice(step * BATCH % RECORDS, step * BATCH % RECORDS + BATCH)
        expected.append(reference.step(torch.tensor(image[own], dtype=torch.float64),
                                       torch.tensor(label[own].astype(np.int64)), 1e-3, 1.0))
    losses, norms = largest_difference(log, expected)
    assert len(log) == STEPS and losses < 1e-5 and norms < 1e-4, (losses, norms)


REGRESSION = """
dim batch
dim row     = 5
dim feature = 3

model regression {
    input x    : [batch, row, feature]
    input seen : bool[batch, row]
    input y    : [batch]
    param w : [feature] = normal(0.5)
    param b : []        = zeros
    kept = sum(where(seen, dot(x, w, feature), 0.0), row)
    loss mean(square(kept + b - y))
}

train {
    optimizer  = sgd(lr = 0.02)
    batch      = 6
    microbatch = 3
}
"""


@pytest.mark.parametrize("file", ["npy", "safetensors"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int16])
def test_regression_with_a_mask(tmp_path, dtype, file):
    draw = np.random.default_rng(2)
    arrays = {"x": (3 * draw.standard_normal((RECORDS, 5, 3))).astype(dtype), "seen": draw.random((RECORDS, 5)) < 0.5,
              "y": draw.standard_normal(RECORDS).astype(np.float32)}
    out = compile_model(REGRESSION, tmp_path)
    data = given(out, arrays, file)

    def loss(w, x, seen, y):
        return ((torch.where(seen, x @ w["w"], 0.0).sum(1) + w["b"] - y)**2).mean()

    weights = start(out, data)
    log = train(out, *data, "--no-shuffle", "--steps", STEPS)
    assert follows_sgd(log, weights, [arrays["x"].astype(np.float64), arrays["seen"], arrays["y"].astype(np.float64)], 0.02, loss)


@pytest.mark.parametrize("file", ["npy", "safetensors"])
def test_unsigned_numbers_beyond_those_with_a_sign(tmp_path, file):
    """They would be negative as int64."""
    arrays = {"x": np.full((RECORDS, 5, 3), 2**63 + 2**62, np.uint64), "seen": np.ones((RECORDS, 5), bool),
              "y": np.zeros(RECORDS, np.float32)}
    arrays["x"][:, :, 1:] = 0
    out = compile_model(REGRESSION.replace("square(kept + b - y)", "abs(1.0e-19 * kept + b - y - 20.0)"), tmp_path)
    data = given(out, arrays, file)
    w, log = start(out, data)["w"][0], train(out, *data, "--steps", 1)
    expected = abs(5 * 1e-19 * (2.0**63 + 2.0**62) * float(w) - 20)
    assert abs(log[0]["loss"] - expected) < 1e-5 * expected


PAIRS = """
dim batch
dim source = 6
dim target = 4
dim vocab  = 11
dim after  = vocab
dim embed  = 8

model pairs {
    input question : i32[batch, source]
    input answer   : i32[batch, target]
    input expected : i32[batch, target] = next(answer)
    param table : [vocab, embed] = normal(0.5)
    param out   : [embed, after] = normal(0.5)
    x = tanh(mean(table[vocab = question], source) + table[vocab = answer])
    loss mean(cross_entropy(dot(x, out, embed), expected, after))
}

train {
    optimizer = sgd(lr = 0.5)
    batch     = 6
}
"""


def test_pairs_of_sequences(tmp_path):
    """Labels are one token later in the array, and one that is -100 counts in no loss."""
    draw = np.random.default_rng(3)
    question, answer = draw.integers(0, 11, (RECORDS, 6)), draw.integers(0, 11, (RECORDS, 5)).astype(np.int32)
    answer[::3, 4] = -100  # the last: it is expected, and never read
    out = compile_model(PAIRS.replace("= next(answer)", "").replace("batch     = 6", "batch = 6\n microbatch = 2"), tmp_path)
    data = gives(out, {"question": question, "answer": answer[:, :4], "expected": answer[:, 1:]})

    def loss(w, asked, told):
        x = torch.tanh(w["table"][asked].mean(1, keepdim=True) + w["table"][told[:, :4]])
        return F.cross_entropy((x @ w["out"]).flatten(0, 1), told[:, 1:].flatten())

    log = train(out, *data, "--no-shuffle", "--steps", STEPS)
    assert follows_sgd(log, start(out, data), [question, answer.astype(np.int64)], 0.5, loss)


def test_next_is_later_in_the_same_array(tmp_path):
    """The same training, with the labels given by next() or by an array of their own."""
    draw = np.random.default_rng(4)
    question, answer = draw.integers(0, 11, (RECORDS, 6)), draw.integers(0, 11, (RECORDS, 5))
    logs = []
    for folder, text, arrays in (
            ("next", PAIRS, {"question": question, "answer": answer}),
            ("own", PAIRS.replace("= next(answer)", ""), {"question": question, "answer": answer[:, :4], "expected": answer[:, 1:]})):
        out = compile_model(text, tmp_path / folder)
        logs.append(train(out, *gives(out, arrays), "--steps", STEPS))
    assert [entry["loss"] for entry in logs[0]] == [entry["loss"] for entry in logs[1]] and len(logs[0]) == STEPS
