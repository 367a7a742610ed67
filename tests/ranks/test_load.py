"""What the log says of experts, where the tokens alone say which they choose: against counts by hand, under every
layout."""
import re

import numpy as np
import pytest
from conftest import MPC, QUICK, ROOT, TCP, Trainer, by_hand, read_log, some, start

EXPERTS, LAYERS, SEQ, BATCH, STEPS = 8, 4, 8, 8, 3
SLOTS = int(np.ceil(0.75 * 2 * SEQ / EXPERTS))


@pytest.fixture(scope="session")
def letters(tmp_path_factory):
    """Few letters, of which the first is frequent: some experts get too much."""
    text = (97 + np.minimum(np.random.default_rng(3).geometric(0.4, STEPS * BATCH * SEQ + 1) - 1, EXPERTS - 1)).astype(np.uint8)
    path = tmp_path_factory.mktemp("data") / "letters"
    text.tofile(path)
    return path, text.astype(int) - 97


def expected(tokens):
    """(the most choices over the mean, share of choices without a slot) of each layer, of [batch, seq] tokens."""
    loads, dropped = [], []
    for turn in [0, *range(LAYERS)]:
        distance = np.abs(tokens[..., None] + turn - np.arange(EXPERTS))
        chosen = np.argsort(distance, axis=-1, kind="stable")[..., :2].reshape(len(tokens), -1)
        counts = (chosen[..., None] == np.arange(EXPERTS)).sum(axis=1)  # by sequence
        loads.append(counts.sum(axis=0).max() / counts.sum(axis=0).mean())
        dropped.append(np.maximum(counts - SLOTS, 0).sum() / chosen.size)
    return loads, dropped[1:]  # the first has no capacity


@pytest.mark.parametrize("options", some([
    "",
    "--set train.microbatch=2",
    "--mesh dp=2 --zero 1 --set train.microbatch=2",
    "--mesh ep=2",
    "--mesh ep=4 --set train.precision=bf16",
    "--mesh tp=2 --set train.microbatch=4",
    "--mesh dp=2,ep=2 --zero 3 --set train.microbatch=1",
    "--mesh pp=2 --set train.microbatch=2",
    "--mesh pp=3 --set train.microbatch=1 --schedule zb",             # stages of different sizes
    "--mesh pp=2 --set train.microbatch=1 --schedule interleaved",
    "--mesh dp=2,pp=2 --zero 2 --set train.microbatch=1 --set train.precision=fp16",
], 1, 4, 5, 6, 8, 9, 10))
def test_what_tokens_choose(options, letters, tmp_path):
    path, text = letters
    ranks = int(np.prod([int(n) for n in re.findall(r"\b[dept]p=(\d)", options)] or [1]))
    start([MPC, "compile", ROOT / "tests" / "ranks" / "routed.mdl", "-o", "out", *options.split(), *(TCP if ranks > 1 else [QUICK])],
          tmp_path)
    trainer = Trainer(tmp_path, ranks, by_hand)
    done = start(trainer.command("--data", path, "--data-format", "bytes", "--no-shuffle", "--steps", STEPS, "--log", "log"), tmp_path)
    for line in read_log(tmp_path / "log"):
        at = (line["step"] - 1) * BATCH * SEQ
        loads, dropped = expected(text[at:at + BATCH * SEQ].reshape(BATCH, SEQ))
        np.testing.assert_allclose(line["expert_load"], loads, rtol=1e-5)
        np.testing.assert_allclose(line["dropped"], dropped, rtol=1e-5)
        assert min(dropped) > 0.1 and max(loads) - min(loads) > 0.2
    assert f"  load {max(loads):.2f}  dropped {100 * np.mean(dropped):.1f} %  lr" in done.stdout


def test_a_model_without_experts_has_none(compiled, train):
    line = train(compiled("chars"), 1)[0]
    assert "expert_load" not in line and "dropped" not in line
