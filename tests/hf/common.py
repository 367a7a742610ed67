"""What these tests share: running mpc and trainers, and an independent reader and writer of safetensors."""
import json
import math
import os
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
MPC = ROOT / os.environ.get("BUILD", "build") / "mpc"
TYPES = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2"), "F16": np.dtype("<f2"), "I32": np.dtype("<i4"),
         "I64": np.dtype("<i8"), "BOOL": np.dtype("?")}


def run(*words, status=0, **variables):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600, cwd=ROOT,
                          env={**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", **variables})
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def read_tensors(path):
    """{name: (dtype, array)}, with bf16 as its bits."""
    raw = Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], np.frombuffer(raw, TYPES[entry["dtype"]], math.prod(entry["shape"]),
                                                 8 + size + entry["data_offsets"][0]).reshape(entry["shape"]))
            for name, entry in header.items()}


def write_tensors(path, tensors):
    """Of {name: array}, in F32; or (dtype, array)."""
    header, data = {}, b""
    for name, value in tensors.items():
        dtype, array = value if isinstance(value, tuple) else ("F32", np.asarray(value, np.float32))
        bytes_ = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


def import_folder(folder, model, out, *options):
    """Writes the checkpoint `out`; returns the command that mpc import prints: mpc compile FILE -D ... -o OUT."""
    text = run(MPC, "import", folder, "--model", model, "-o", out, *options)
    return shlex.split(re.search(r"^next: mpc (.*)$", text, re.M)[1])


def compile_as_said(words, out, *options):
    words[words.index("-o") + 1] = out
    if any(str(option).startswith("train.schedule=") for option in options) and "--set" in words:
        at = words.index("--set")  # instead of the warmup that mpc import proposes
        words = words[:at] + words[at + 2:]
    run(MPC, *words, "--cflags", "-O1", *options)
    return out / "trainer"


def train(trainer, *options):
    """A list of one dict for each step."""
    log = trainer.parent / "log.jsonl"
    run(trainer, "--log", log, "--overwrite", *options)
    return [json.loads(line) for line in log.read_text().splitlines()]
