"""train.skip_spikes: the rule of docs/optimizers.md written again, on a model whose gradient is the mean of its records."""
import json
import os
import subprocess

import numpy as np
import pytest

from common import compile_model, read_safetensors, train

STEPS, BATCH, FACTOR = 110, 2, 3
MODEL = """
dim batch
dim wide = 4

model spikes {
    input x : f32[batch, wide]
    param w : [wide] = ones
    loss mean(dot(x, w, wide))
}

train {
    optimizer   = adamw(lr = 0.01, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0)
    batch       = 2
    skip_spikes = 3
    ema         = 0.9
    clip        = 0.5
}

parallel {
    mesh dp = 1
    shard batch over dp
    zero 1 over dp
}
"""


@pytest.fixture
def records(tmp_path):
    """Norms near 1; single spikes, one of them too early; from step 70 on, five times as much."""
    random = np.random.default_rng(4)
    x = random.normal(0, 1, (STEPS, 1, 4))
    x *= random.uniform(0.8, 1.25, (STEPS, 1, 1)) / np.sqrt((x * x).sum(-1, keepdims=True))
    for step, factor in {10: 30, 30: 8, 31: 1e4, 50: 2, **{step: 5 for step in range(70, STEPS)}}.items():
        x[step] *= factor
    x = (x + random.normal(0, 0.01, (1, BATCH, 1)) * [[[1, -1, 1, -1]]]).astype(np.float32)
    np.save(tmp_path / "x.npy", x.reshape(-1, 4))
    return x.mean(1).astype(np.float64)  # the gradients


def expected(gradients):
    """(weights, mean of weights, which steps are skipped)"""
    w, mean, m, v = np.ones(4), np.ones(4), np.zeros(4), np.zeros(4)
    usual, count, applied, skipped = 0.0, 0, 0, []
    for g in gradients:
        norm = np.sqrt((g * g).sum())
        limit = FACTOR * usual if count >= 20 else np.inf
        skipped.append(norm > limit)
        count = min(count + 1, 100)
        usual += (min(norm, limit) - usual) / count
        if skipped[-1]:
            continue
        applied += 1
        g = g * min(1, 0.5 / (norm + 1e-6))
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        w = w - 0.01 * (m / (1 - 0.9**applied)) / (np.sqrt(v / (1 - 0.95**applied)) + 1e-8)
        mean = 0.9 * mean + 0.1 * w
    return w, mean, usual, skipped


def data(tmp_path):
    return ["--data", f"x={tmp_path / 'x.npy'}", "--no-shuffle"]


def test_like_the_second_writing(records, tmp_path):
    out = compile_model(MODEL, tmp_path / "out", "--verify-passes")
    log = train(out, *data(tmp_path), "--steps", STEPS, "--save", tmp_path / "end")
    w, mean, usual, skipped = expected(records)
    assert np.flatnonzero(skipped)[:3].tolist() == [30, 31, 70] and 5 < sum(skipped[70:]) < 35
    assert [line["skipped_steps"] for line in log] == np.cumsum(skipped).tolist()
    found = read_safetensors(tmp_path / "end")
    np.testing.assert_allclose(found["w"], w, atol=2e-6)
    np.testing.assert_allclose(found["optimizer.ema.w"], mean, atol=2e-6)
    np.testing.assert_allclose(found["optimizer.usual_norm"], usual, rtol=1e-5)
    assert found["optimizer.applied_steps"] == STEPS - sum(skipped)
    assert found["optimizer.skipped_steps"] == sum(skipped) and found["optimizer.norm_steps"] == 100


def test_a_skipped_step_changes_nothing_else(records, tmp_path):
    out = compile_model(MODEL, tmp_path / "out")
    for steps in (30, 31):
        train(out, *data(tmp_path), "--steps", steps, "--save", tmp_path / str(steps))
    before, after = (read_safetensors(tmp_path / str(steps)) for steps in (30, 31))
    assert {name for name in before if not np.array_equal(before[name], after[name])} == \
        {f"optimizer.{name}" for name in ("usual_norm", "norm_steps", "skipped_steps")}


def test_resumes_bit_for_bit(records, tmp_path):
    out = compile_model(MODEL, tmp_path / "out")
    train(out, *data(tmp_path), "--steps", STEPS, "--save", tmp_path / "whole")
    for step in (15, 31, 75, STEPS):
        last = train(out, *data(tmp_path), "--steps", step, "--save", tmp_path / "part", "--print-every", 1,
                     *(["--load", tmp_path / "part"] if step > 15 else []))
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "part").read_bytes()
    assert last[-1]["skipped_steps"] == sum(expected(records)[3])


def test_a_run_goes_on_with_what_it_had_not(records, tmp_path):
    """--load-missing=init: the mean begins as the weights of the checkpoint are, and the bias correction counts its steps."""
    plain, out = (compile_model(text, tmp_path / name) for name, text in [
        ("plain", MODEL.replace("    skip_spikes = 3\n", "").replace("    ema         = 0.9\n", "")), ("out", MODEL)])
    train(plain, *data(tmp_path), "--steps", 4, "--save", tmp_path / "4")
    train(plain, *data(tmp_path), "--steps", 5, "--load", tmp_path / "4", "--save", tmp_path / "5")
    train(out, *data(tmp_path), "--steps", 5, "--load", tmp_path / "4", "--load-missing=init", "--save", tmp_path / "new")
    before, after, found = (read_safetensors(tmp_path / name) for name in ("4", "5", "new"))
    np.testing.assert_array_equal(found["w"], after["w"])
    np.testing.assert_allclose(found["optimizer.ema.w"], 0.9 * before["w"] + 0.1 * after["w"], atol=1e-6)
    assert found["optimizer.applied_steps"] == 5


def test_says_so(records, tmp_path):
    out = compile_model(MODEL, tmp_path / "out")
    done = subprocess.run([out / "trainer", *map(str, data(tmp_path)), "--steps", "33", "--print-every", "1"], check=True,
                          capture_output=True, text=True)
    assert [line.split()[1] for line in done.stdout.splitlines() if "(skipped)" in line] == ["31/33", "32/33"]


@pytest.mark.parametrize("precision, skipped_by_overflow", [("bf16", 0), ("fp16", 1)])
def test_short_floats(records, tmp_path, precision, skipped_by_overflow):
    """In fp16, the first step's scale of 65536 overflows where gradients are large: skipped, but no spike."""
    out = compile_model(MODEL, tmp_path / "out", "--set", f"train.precision={precision}", "--verify-passes")
    log = train(out, *data(tmp_path), "--steps", STEPS, "--save", tmp_path / "end")
    counts = [0] + [line["skipped_steps"] for line in log]
    found = {step for step in range(STEPS) if counts[step + 1] > counts[step]}
    wanted = set(np.flatnonzero(expected(records)[3]).tolist())
    infinite = {step for step in range(STEPS) if log[step]["grad_norm"] is None}
    assert found >= infinite and len((found - infinite) ^ (wanted - infinite)) <= 3  # the mean rounds otherwise
    assert read_safetensors(tmp_path / "end")["optimizer.norm_steps"] == min(100, STEPS - len(infinite))


def test_ranks_decide_alike(records, tmp_path):
    """Two ranks, the state of the optimizer split between them: the same steps, and one checkpoint."""
    one = compile_model(MODEL, tmp_path / "one")
    two = compile_model(MODEL, tmp_path / "two", "--mesh=dp=2", "--comm=tcp", "--zero=1")
    log = train(one, *data(tmp_path), "--steps", STEPS)
    port = 20000 + os.getpid() % 10000
    command = [str(word) for word in (two / "trainer", *data(tmp_path), "--steps", STEPS, "--log", tmp_path / "log")]
    processes = [subprocess.Popen([*command, "--rank", str(rank), "--ranks", "2", "--master", f"127.0.0.1:{port}"],
                                  env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in (0, 1)]
    assert [process.wait(120) for process in processes] == [0, 0]
    found = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["skipped_steps"] for line in found] == [line["skipped_steps"] for line in log]
