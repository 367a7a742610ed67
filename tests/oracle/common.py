"""What the oracle tests share: compiling and running trainers, reading checkpoints, data, and a training loop.

The models are written in PyTorch from their equations, in double precision; they share nothing with mpc but the
weights and the text.  A trainer of float32 stays within rounding of them.
"""

import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
TARGET = ["--target=cuda"] if os.environ.get("MPC_DEVICE") == "gpu" else []  # make check-gpu
torch.set_num_threads(2)


def compile_model(model, out, *options, cflags="-O0"):
    """Compiles a .mdl file (or the text of one) and returns the folder of its trainer; with -O1, gcc makes vectors of loops."""
    if "\n" in str(model):
        out.mkdir(parents=True, exist_ok=True)
        path = out / "model.mdl"
        path.write_text(model)
    else:
        path = ROOT / "examples" / f"{model}.mdl"
    command = [BUILD / "mpc", "compile", path, "-o", out, "--cflags", cflags, *TARGET, *options]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300,
                         env={**os.environ, "CC": f"'{ROOT}/tests/quick_cc.sh'", "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr
    return out


def train(out, *options):
    """Runs a trainer; returns its log, a list of one dict for each step."""
    log = out / "log.jsonl"
    command = [str(word) for word in [out / "trainer", "--log", log, *options]]
    return_log = "--steps 0 " not in " ".join(command)
    if not return_log:
        del command[1:3]
    if return_log or "--save" in command:
        command.append("--overwrite")
    # Passive: on a busy machine, threads that wait by spinning take the processor from those that work.
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in log.read_text().splitlines()] if return_log else []


def read_safetensors(path):
    """An independent reader: eight bytes of length, a JSON header, little-endian data."""
    raw = Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    types = {"F32": np.float32, "I32": np.int32}
    return {
        name: np.frombuffer(raw, types[entry["dtype"]], offset=8 + size + entry["data_offsets"][0],
                            count=math.prod(entry["shape"])).reshape(entry["shape"]).copy()
        for name, entry in header.items()
    }


def write_safetensors(path, arrays):
    words = {"float16": "F16", "float32": "F32", "float64": "F64", "int16": "I16", "uint64": "U64", "bool": "BOOL"}
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {"dtype": words[str(array.dtype)], "shape": array.shape, "data_offsets": [at, at := at + array.nbytes]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in arrays.values()))


def initial_weights(out, data):
    path = out / "init.safetensors"
    train(out, "--data", data, "--steps", 0, "--save", path)
    return {name: value for name, value in read_safetensors(path).items() if not name.startswith("optimizer.")}


def write_text(path, count, vocab=256, seed=1):
    """Bytes with some structure, so that there is something to learn."""
    generator = np.random.default_rng(seed)
    steps = generator.integers(0, 7, count)
    path.write_bytes(bytes((np.cumsum(steps) % vocab).astype(np.uint8)))
    return path


def batches(data, batch, seq):
    """Of --no-shuffle: sequence n of step s is number (s * batch + n) mod N; labels are one further."""
    tokens = np.frombuffer(Path(data).read_bytes(), np.uint8).astype(np.int64)
    whole = (len(tokens) - 1) // seq
    for step in range(10**9):
        at = [(step * batch + n) % whole * seq for n in range(batch)]
        yield (torch.tensor(np.stack([tokens[i : i + seq] for i in at])),
               torch.tensor(np.stack([tokens[i + 1 : i + seq + 1] for i in at])))


def learning_rate(step, lr, warmup, steps, min_lr, kind="cosine", decay=0):
    if step < warmup:
        return lr * (step + 1) / warmup
    if step >= steps and kind != "constant":
        return min_lr
    share = (step - warmup) / (steps - warmup) if steps > warmup else 0
    if kind == "cosine":
        return min_lr + 0.5 * (lr - min_lr) * (1 + math.cos(math.pi * share))
    if kind == "linear":
        return lr + share * (min_lr - lr)
    if kind == "wsd":
        return lr if step < steps - decay else lr + (step - steps + decay) / decay * (min_lr - lr)
    return lr


class Reference:
    """Weights in double precision, a loss function, and PyTorch's AdamW or SGD around them."""

    def __init__(self, weights, loss, no_decay, optimizer="adamw", weight_decay=0.1, **options):
        self.weights = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
                        for name, value in weights.items()}
        self.loss = loss
        decayed = [w for name, w in self.weights.items() if w.dim() >= 2 and not no_decay(name)]
        others = [w for name, w in self.weights.items() if w.dim() < 2 or no_decay(name)]
        groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
        groups = [group for group in groups if group["params"]]
        kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimizer]
        self.optimizer = kind(groups, lr=1.0, **options)

    def step(self, tokens, labels, lr, clip):
        self.optimizer.zero_grad()
        loss = self.loss(self.weights, tokens, labels)
        loss.backward()
        norm = math.sqrt(sum(float((w.grad**2).sum()) for w in self.weights.values() if w.grad is not None))
        if clip:
            for w in self.weights.values():
                if w.grad is not None:
                    w.grad *= min(1.0, clip / (norm + 1e-6))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        return float(loss), norm


# Of trainings beside models of transformers: SGD, since AdamW makes differences of rounding as large as gradients.
PLAIN_SGD = ["--set=train.optimizer=sgd(lr = 0.5)", "--set=train.schedule=constant(warmup = 0)", "--set=train.clip=0",
             "--set=train.microbatch=2", "--set=train.precision=fp32"]


def fused_experts(gate, up, down):
    """The tensors of transformers (from 5.0 on) for experts of [experts, in, out] each."""
    turned = [np.swapaxes(w, 1, 2) for w in (gate, up, down)]
    return {"gate_up_proj": np.concatenate(turned[:2], 1), "down_proj": turned[2]}


def follows_transformers(log, model, feed, after_step=lambda: None, more_loss=lambda model, labels: 0):
    """Are losses and gradient norms those of a model of transformers, trained as PLAIN_SGD says, and does it learn?"""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for entry in log:
        tokens, labels = next(feed)
        optimizer.zero_grad()
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()) + more_loss(model, labels)
        loss.backward()
        norm = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None))
        assert abs(entry["loss"] - float(loss)) < 1e-4 * float(loss)
        assert abs(entry["grad_norm"] - norm) < 1e-4 * norm
        optimizer.step()
        after_step()
    return log[-1]["loss"] < log[0]["loss"]


def largest_difference(log, reference):
    """The largest relative difference of losses, and of gradient norms, over all steps."""
    losses = max(abs(entry["loss"] - loss) / abs(loss) for entry, (loss, _) in zip(log, reference))
    norms = max(abs(entry["grad_norm"] - norm) / norm for entry, (_, norm) in zip(log, reference))
    return losses, norms
