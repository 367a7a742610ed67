"""train.grad_storage: what a step keeps of gradients, to the last bit.

Records are small multiples of powers of two, so that products, sums and means of them are exact in f32, and their factors
in bf16.  Of a trainer's arithmetic only the rounding of what it keeps is left, which NumPy does here again.
"""
import numpy as np
import pytest

from common import compile_model, read_safetensors, train

BATCH, WIDE, OUT, RATE = 16, 24, 40, 2.0**-4
MODEL = f"""
dim batch
dim wide = {WIDE}
dim out  = {OUT}

model product {{
    input x : f32[batch, wide]
    input c : f32[batch, out]
    param w : [wide, out] = zeros
    param b : [out]       = zeros
    loss mean(dot(dot(x, w, wide) + b, c, out))
}}

train {{
    optimizer = sgd(lr = {RATE})
    batch     = {BATCH}
}}
"""


def rounded(x):
    """To the nearest number of bf16, whose mantissa has 8 bits; of two as near, the one whose last bit is 0."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2.0**8), exponent - 8)


def gradients(x, c, microbatch, keep):
    """Of w and b: each micro-batch adds its part of the mean, and what is kept is rounded."""
    w, b = np.zeros((WIDE, OUT)), np.zeros(OUT)
    for at in range(0, BATCH, microbatch):
        own = slice(at, at + microbatch)
        w, b = keep(w + x[own].T @ c[own] / BATCH), keep(b + c[own].sum(0) / BATCH)
    return w, b


@pytest.fixture
def records(tmp_path):
    draw = np.random.default_rng(7)
    x, c = (draw.integers(-15, 16, (BATCH, n)) / 8.0 for n in (WIDE, OUT))
    for name, value in (("x", x), ("c", c)):
        np.save(tmp_path / f"{name}.npy", value.astype(np.float32))
    return x, c


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("microbatch", [2, 4, BATCH])
def test_each_sum_is_rounded_once(precision, microbatch, records, tmp_path):
    options = [f"--set=train.microbatch={microbatch}", f"--set=train.precision={precision}"]
    data = [word for name in "xc" for word in ("--data", f"{name}={tmp_path / name}.npy")]
    for dtype, keep in (("bf16", rounded), ("f32", lambda g: g)):
        out = compile_model(MODEL, tmp_path / dtype, *options, f"--set=train.grad_storage={dtype}", "--verify-passes")
        line, = train(out, *data, "--no-shuffle", "--steps", 1, "--save", out / "end")
        end, (w, b) = read_safetensors(out / "end"), gradients(*records, microbatch, keep)
        assert np.array_equal(end["w"], -RATE * w) and np.array_equal(end["b"], -RATE * b)
        squares = (w * w).sum() + (b * b).sum()  # of f32, one after the other: each addition is off by 2^-24 of them at most
        assert line["grad_norm"] == pytest.approx(np.sqrt(squares), rel=(w.size + b.size) * 2.0**-24 / 2)
    exact, once = (gradients(*records, BATCH, keep)[0] for keep in (lambda g: g, rounded))
    often = gradients(*records, microbatch, rounded)[0]
    assert not np.array_equal(exact, once), "nothing to round"
    assert microbatch == BATCH or not np.array_equal(often, once), "as if only the last sum were rounded"
