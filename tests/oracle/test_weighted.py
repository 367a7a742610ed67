"""A mean with weights is one over the whole batch: any micro-batches and any layout train and evaluate alike, as PyTorch
does in f64 with all records at once."""
import json
import subprocess

import numpy as np
import pytest
import torch
from common import BUILD, ROOT, read_safetensors
from test_records import gives

STEPS, BATCH, RECORDS, SEQ, VOCAB = 5, 8, 24, 8, 24
LAYOUTS = {"whole": [], "micro_4": ["--set", "train.microbatch=4"], "micro_2": ["--set", "train.microbatch=2"],
           "dp": ["--mesh", "dp=2", "--set", "train.microbatch=2"], "zero": ["--mesh", "dp=2,tp=2", "--zero", "3"],
           "cp": ["--mesh", "cp=2", "--set", "train.microbatch=4"]}


def data(seed=3):
    """Answers of all lengths: of one record none, and of half of each batch few."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, SEQ + 1, RECORDS)
    lengths[:2] = 0, 1
    return {"tokens": draw.integers(0, VOCAB, (RECORDS, SEQ), np.int32), "chosen": draw.integers(0, VOCAB, (RECORDS, SEQ), np.int32),
            "old": (-3 + draw.normal(0, 0.3, (RECORDS, SEQ))).astype(np.float32),
            "advantage": draw.normal(0, 1, RECORDS).astype(np.float32), "answered": np.arange(SEQ) < lengths[:, None]}


def loss_of(w, batch):
    h = torch.tanh(w["wte"][batch["tokens"].long()].cumsum(1) / SEQ @ w["w_up"])
    chosen = torch.log_softmax(h @ w["head"], -1).gather(-1, batch["chosen"].long()[..., None])[..., 0]
    ratio, advantage = torch.exp(chosen - batch["old"]), batch["advantage"][:, None]
    each = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
    return -each[batch["answered"]].sum() / batch["answered"].sum()


def run(path, *options):
    done = subprocess.run([str(word) for word in [BUILD / "mpc", "run", ROOT / "tests/oracle/dapo.mdl", *options]],
                          capture_output=True, text=True, timeout=300, cwd=path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_mean_of_the_whole_batch(layout, tmp_path):
    arrays = data()
    fed = [*gives(tmp_path, arrays), "--no-shuffle", "--overwrite"]
    run(tmp_path, *fed, "--steps", 0, "--save", tmp_path / "init.safetensors", *LAYOUTS[layout])
    run(tmp_path, *fed, "--steps", STEPS, "--save", tmp_path / "end.safetensors", "--log", tmp_path / "log.jsonl",
        *LAYOUTS[layout])
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    start, end = (read_safetensors(tmp_path / f"{name}.safetensors") for name in ("init", "end"))
    w = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True) for name, value in start.items()}
    for step in range(STEPS):
        at = [(step * BATCH + i) % RECORDS for i in range(BATCH)]
        batch = {name: torch.tensor(array[at]).to(torch.float64 if array.dtype == np.float32 else None)
                 for name, array in arrays.items()}
        loss = loss_of(w, batch)
        assert abs(log[step]["loss"] - float(loss)) < 3e-6, (step, log[step]["loss"], float(loss))
        gradients = torch.autograd.grad(loss, list(w.values()))
        for value, gradient in zip(w.values(), gradients):
            value.data -= 0.5 * gradient
    assert max(float((value - torch.tensor(start[name])).abs().max()) for name, value in w.items()) > 1e-2
    for name, value in w.items():
        assert np.abs(end[name] - value.detach().numpy()).max() < 3e-6
