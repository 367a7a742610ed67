"""Weights that are not finite, and what follows from them: nothing of it passes without a word."""
import json
import os
import struct
import subprocess

import numpy as np
import pytest
from common import MPC, ROOT, read_tensors, write_tensors
from small_llama import tensors, write_llama

LLAMA = ROOT / "examples/llama.mdl"


def run(*words, status):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60, cwd=ROOT,
                          env={**os.environ, "MPC_PEAK_FLOPS": "1e9", "OMP_NUM_THREADS": "1"})
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def bits(dtype, value):
    """Of one number."""
    wide = np.float32(value).view(np.uint32)
    return {"F32": wide, "F16": np.float16(value).view(np.uint16), "BF16": np.uint16(wide >> 16)}[dtype]


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_import_refuses_them(tmp_path, dtype, value):
    narrow = {"F32": np.uint32, "BF16": np.uint16, "F16": np.uint16}[dtype]
    weights = {name: np.zeros(array.shape, narrow) for name, array in tensors().items()}
    weights["model.layers.0.mlp.down_proj.weight"][5, 2] = bits(dtype, value)
    there = write_llama(tmp_path / "there", weights={name: (dtype, array) for name, array in weights.items()})
    said = run(MPC, "import", there, "-o", tmp_path / "w.safetensors", status=1)
    assert f"{there}: tensor 'model.layers.0.mlp.down_proj.weight' is {value} at [5, 2], as {dtype}: weights must be finite" in said
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("value, said", [(1e5, "inf"), (float("nan"), "nan")])
def test_export_refuses_them(tmp_path, value, said):
    """1e5 is finite as F32, and is not as F16."""
    there = write_llama(tmp_path / "there", weights={name: ("F16", array.astype(np.float16).view(np.uint16)) for name, array in tensors().items()})
    run(MPC, "import", there, "-o", tmp_path / "w.safetensors", status=0)
    own = {name: np.zeros(array.shape, np.float32) for name, (_, array) in read_tensors(tmp_path / "w.safetensors").items()}
    own["norm_f.gain"][3] = value
    write_tensors(tmp_path / "w.safetensors", own)
    text = run(MPC, "export", tmp_path / "w.safetensors", "--like", there, "-o", tmp_path / "out", status=1)
    assert f"w.safetensors: tensor 'model.norm.weight' is {said} at [3], as F16" in text
    assert not list(tmp_path.glob("out*"))


@pytest.fixture
def data(tmp_path):
    np.random.default_rng(1).integers(0, 11, 400).astype("<u2").tofile(tmp_path / "t.u16")
    return tmp_path / "t.u16"


@pytest.fixture
def spoiled(tmp_path, trainer, data):
    """A checkpoint of the trainer with two nan in it."""
    run(trainer, "--data", data, "--steps", 0, "--save", tmp_path / "w.safetensors", status=0)
    raw = bytearray((tmp_path / "w.safetensors").read_bytes())
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    place = 8 + size + header["tail"]["data_offsets"][0]
    raw[place:place + 8] = struct.pack("<2f", float("nan"), float("inf"))
    del header["__metadata__"]
    text = json.dumps(header).ljust(size).encode()
    (tmp_path / "spoiled.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size:])
    return tmp_path / "spoiled.safetensors"


def test_an_evaluation_that_is_not_finite_is_an_error(trainer, data, spoiled):
    said = run(trainer, "--load", spoiled, "--weights-only", "--steps", 0, "--eval-data", data, status=3)
    assert f"note: --load {spoiled}: tensor 'tail' has nan or infinite numbers (2)" in said
    assert "error: evaluation at step 0: the loss is nan: weights, or numbers of --eval-data, are too large or not finite" in said


def test_a_run_saves_before_it_ends_at_such_an_evaluation(tmp_path, trainer, data):
    """Of a token that training does not see, 10, the numbers are too large; for logits of others it has a 0."""
    run(trainer, "--data", data, "--steps", 0, "--save", tmp_path / "w.safetensors", status=0)
    weights = {name: array.copy() for name, (dtype, array) in read_tensors(tmp_path / "w.safetensors").items() if not name.startswith("optimizer.")}
    weights["wte"][10, 0], weights["tail"][0] = 1e18, 0
    write_tensors(tmp_path / "large.safetensors", weights)
    (np.arange(400) % 2).astype("<u2").tofile(tmp_path / "few.u16")
    said = run(trainer, "--data", tmp_path / "few.u16", "--load", tmp_path / "large.safetensors", "--eval-data", data, "--steps", 4,
               "--eval-every", 1, "--save", tmp_path / "saved.safetensors", "--log", tmp_path / "log.jsonl", status=3)
    assert "saved step 1 to" in said and "error: evaluation at step 1: the loss is" in said
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [1]


def test_a_run_within_its_warmup_says_so(trainer, data):
    assert "note: the 3 steps end within the warmup of 50, in which the learning rate rises: it comes to" in \
        run(trainer, "--data", data, "--steps", 3, status=0)
    assert "within the warmup" not in run(trainer, "--data", data, "--steps", 50, "--print-every", 50, status=0)
    assert "within the warmup" not in run(trainer, "--eval-data", data, "--steps", 0, status=0)
