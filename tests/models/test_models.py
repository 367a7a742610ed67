"""Each model of this folder, small: three steps of SGD give the losses, gradient norms and weights that PyTorch gives in
double precision.  What draws random numbers is compared by tests/random/judge.py, which knows how they are drawn."""
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import references
from cases import CASES, DRAWN, DRAWN_SIZES, PAGE, ROWS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "oracle"))
from common import BUILD, compile_model, read_safetensors, train  # noqa: E402
import models as equations  # noqa: E402  (tests/oracle)

STEPS, BATCH, RECORDS, RATE = 3, 4, 12, 0.05
TOLERANCE = 1e-5


def drawn(case):
    """An array for each input; tokens are one longer where next() makes labels of them."""
    draw = np.random.default_rng(5)
    arrays = {}
    for name, (shape, kind) in case.inputs.items():
        shape = (RECORDS, *shape)
        arrays[name] = (draw.standard_normal(shape).astype(np.float32) if kind == "f32" else
                        draw.random(shape) < 0.6 if kind == "bool" else draw.integers(0, kind, shape).astype(np.int32))
    return arrays


def fed(out, arrays):
    for name, array in arrays.items():
        np.save(out / f"{name}.npy", array)
    return [word for name in arrays for word in ("--data", f"{name}={out / name}.npy")]


def seen(case, arrays, step):
    """What the model is given in a step: its inputs in their order."""
    own = {name: torch.from_numpy(array[step * BATCH:(step + 1) * BATCH]) for name, array in arrays.items()}
    own = {name: x.double() if x.is_floating_point() else x.long() if x.dtype == torch.int32 else x for name, x in own.items()}
    if case.name in ("deltanet", "depths", "dpo", "distill", "looped", "nsa", "qkclip", "xlstm"):
        whole = own.pop("tokens")
        own = {"tokens": whole[..., :-1], "labels": whole[..., 1:], **own}
    return list(own.values())


def options_for(sizes, microbatch=0):
    settings = ["optimizer=sgd(lr = %g)" % RATE, "schedule=constant(warmup = 0)", "clip=0", "precision=fp32",
                f"batch={BATCH}", f"microbatch={microbatch or BATCH}"]
    return [word for name, value in sizes.items() for word in ("-D", f"{name}={value}")] + [f"--set=train.{s}" for s in settings]


def compiled(name, edit, sizes, out, microbatch=0):
    text = (HERE / f"{name}.mdl").read_text()
    assert not edit or edit[0] in text
    return compile_model(text.replace(*edit) if edit else text, out, *options_for(sizes, microbatch))


def randomised(path):
    """The first weights, each a little off: none is zero or one, so that nothing is left out unseen."""
    draw = np.random.default_rng(7)
    start = {name: value for name, value in read_safetensors(path).items() if not name.startswith("optimizer.")}
    return {name: (value + 0.05 * draw.standard_normal(value.shape)).astype(np.float32) for name, value in start.items()}


def write_weights(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def trained_there(loss, weights, feed, is_frozen, after=None):
    """(loss, gradient norm) of each step, and the weights after the last; after(before, weights, *inputs): what follows
    the optimizer."""
    weights = {name: torch.tensor(value, dtype=torch.float64, requires_grad=not is_frozen(name)) for name, value in weights.items()}
    log = []
    for step in range(STEPS):
        value = loss(weights, *feed(step))
        own = [w for w in weights.values() if w.requires_grad]
        gradients = torch.autograd.grad(value, own)
        log.append((value.item(), math.sqrt(sum(float((g * g).sum()) for g in gradients))))
        with torch.no_grad():
            before = {name: w.clone() for name, w in weights.items()}
            for w, g in zip(own, gradients):
                w -= RATE * g
            if after:
                after(before, weights, *feed(step))
    return log, weights


def compare(out, data, loss, feed, is_frozen=lambda name: False, after=None):
    train(out, *data, "--steps", 0, "--save", out / "start.safetensors")
    weights = randomised(out / "start.safetensors")
    write_weights(out / "first.safetensors", weights)
    log = train(out, *data, "--no-shuffle", "--load", out / "first.safetensors", "--weights-only", "--steps", STEPS,
                "--save", out / "end.safetensors")
    there, after = trained_there(loss, weights, feed, is_frozen, after)
    end = read_safetensors(out / "end.safetensors")
    losses = max(abs(entry["loss"] - value) / abs(value) for entry, (value, _) in zip(log, there))
    norms = max(abs(entry["grad_norm"] - value) / value for entry, (_, value) in zip(log, there))
    far = max(np.abs(end[name] - value.detach().numpy()).max() for name, value in after.items())
    assert len(log) == STEPS and losses < TOLERANCE and norms < TOLERANCE and far < TOLERANCE, (losses, norms, far)
    assert max(np.abs(end[name] - weights[name]).max() for name in weights) > 1000 * far
    return losses, norms, far


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_trains_like_pytorch(case, tmp_path, figures):
    out = compiled(case.name, case.edit, case.sizes, tmp_path, case.microbatch)
    arrays = drawn(case)
    figures[case.name] = compare(out, fed(out, arrays), getattr(references, case.name), lambda step: seen(case, arrays, step),
                                 lambda name: name.startswith(case.frozen) or name.endswith(case.frozen),
                                 getattr(references, f"after_{case.name}", None))


def test_both_instances_begin_as_one_model(tmp_path):
    """dpo.mdl with --load-part: the weights of one file as those of policy and of reference."""
    case = next(case for case in CASES if case.name == "dpo")
    out = compiled(case.name, case.edit, case.sizes, tmp_path)
    data = fed(out, drawn(case))
    train(out, *data, "--steps", 0, "--save", out / "start.safetensors")
    base = {name[len("policy."):]: value for name, value in randomised(out / "start.safetensors").items() if name.startswith("policy.")}
    write_weights(out / "base.safetensors", base)
    parts = [word for instance in ("policy", "reference") for word in ("--load-part", f"{instance}={out / 'base.safetensors'}")]
    log = train(out, *data, *parts, "--steps", 1, "--save", out / "end.safetensors")
    assert abs(log[0]["loss"] - math.log(2)) < 1e-6  # both say the same
    end = read_safetensors(out / "end.safetensors")
    assert all(np.array_equal(end[f"reference.{name}"], value) for name, value in base.items())
    assert not all(np.array_equal(end[f"policy.{name}"], value) for name, value in base.items())
    base["extra"] = base["wpe"]
    write_weights(out / "more.safetensors", base)
    del base["extra"], base["wpe"]
    write_weights(out / "less.safetensors", base)
    for options, message in [
            (["--load-part", "base.safetensors"], "write INSTANCE=FILE"),
            (["--load-part", f"judge={out / 'base.safetensors'}"], "model 'dpo' has no parameter 'judge.*'"),
            (["--load-part", f"policy={out / 'more.safetensors'}"], "tensor 'extra' is not one of this instance: model 'dpo' has no 'policy.extra'"),
            (["--load-part", f"policy={out / 'less.safetensors'}"], "the file has no tensor 'wpe', and model 'dpo' has 'policy.wpe'"),
            (["--load-part", f"policy={out / 'more.safetensors'}", "--save", out / "more.safetensors", "--overwrite"], "are the same file"),
            ([*parts, "--load", out / "end.safetensors"], "continues a run, with the weights that it has now")]:
        run = subprocess.run([str(word) for word in (out / "trainer", *data, "--steps", 2, *options)], capture_output=True, text=True, timeout=60)
        assert run.returncode != 0 and message in run.stderr, run.stderr


def test_values_that_are_missing(tmp_path):
    """grud.mdl: neither NaN in the data, nor a folder that is not there."""
    case = next(case for case in CASES if case.name == "grud")
    out, arrays = compiled(case.name, case.edit, case.sizes, tmp_path), drawn(case)
    arrays["value"][3, 2, 1] = math.nan
    for data, message in [(fed(out, arrays), "nan at [3, 2, 1] is not a finite number of f32; where values are missing, write 0, and let an input of bool"),
                          (["--data", "nowhere"], "--data nowhere: cannot open it: No such file or directory")]:
        run = subprocess.run([str(word) for word in (out / "trainer", *data, "--steps", 2)], capture_output=True, text=True, timeout=60)
        assert run.returncode == 1 and message in run.stderr, run.stderr


def test_low_rank_is_a_sum_of_weights(tmp_path, figures):
    """lora.mdl is Llama with the weights w + alpha / rank * a b."""
    sizes = dict(layers=2, embed=16, kv_heads=2, group=2, head=6, ff=20, vocab=64, seq=8, low=3)
    out = compiled("lora", (), sizes, tmp_path)
    tokens = np.random.default_rng(3).integers(0, 64, RECORDS * 8 + 1).astype(np.uint16)
    (tmp_path / "tokens.u16").write_bytes(tokens.tobytes())

    def loss(w, now, later):
        whole = {name: value for name, value in w.items() if ".lora_" not in name}
        for name in w:
            if name.endswith(".a"):
                at = name[:-len(".a")]
                to = at.replace("lora_", "w")
                whole[to] = whole[to] + 16 / 3 * torch.tensordot(w[name], w[f"{at}.b"], 1)
        return equations.llama(2)(whole, now, later)

    def feed(step):
        at = [(step * BATCH + n) * 8 for n in range(BATCH)]
        return [torch.tensor(np.stack([tokens[i + k:i + k + 8] for i in at]).astype(np.int64)) for k in (0, 1)]

    figures["lora"] = compare(out, ["--data", tmp_path / "tokens.u16"], loss, feed, lambda name: ".lora_" not in name)


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn(name, tmp_path):
    """Small sizes in the file itself: the judge takes a file as it is."""
    text = (HERE / f"{name}.mdl").read_text()
    for size, value in DRAWN_SIZES[name].items():
        text, count = re.subn(rf"^((?:dim|const) {size} *=) [^#\n]*", rf"\1 {value} ", text, flags=re.M)
        assert count == 1, size
    text = text[:text.index("\ntrain {")] + "\ntrain {\n    optimizer = sgd(lr = 0.05)\n    batch = 4\n}\n"
    (tmp_path / "small.mdl").write_text(text.replace(" = zeros", " = normal(0.1)"))
    command = [sys.executable, ROOT / "tests/random/judge.py", tmp_path / "small.mdl", "--mpc", BUILD / "mpc", "--variants", "base"]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stdout + run.stderr


def test_page_lists_the_folder():
    rows = re.findall(r"^\| `tests/models/(\w+)\.mdl` \| ([^|]+) \|", PAGE.read_text(), re.M)
    assert rows == ROWS, "BLESS=1 sh tests/models/run.sh"
