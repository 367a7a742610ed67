"""transformers' own models, tiny and with random weights: imported, trained for ten steps beside PyTorch, and exported.

The trainer has the same loss and gradient norm in each step, the same weights after the last, and says the same; what is
exported is, bit for bit, what was imported; and transformers loads it."""
import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from common import ROOT, compile_as_said, import_folder, MPC, run, train
from families import FAMILIES, SEQ, VOCAB

sys.path.insert(0, str(ROOT / "tests"))
from cover import ALL, some  # noqa: E402

transformers = pytest.importorskip("transformers", reason="no transformers: make hf")
torch = pytest.importorskip("torch")

BATCH, STEPS = 4, 10
TOLERANCE = 1e-5
SETTINGS = {"train.schedule": "constant(warmup = 0)", "train.clip": 0,
            "train.batch": BATCH, "train.microbatch": 2, "train.precision": "fp32"}
torch.set_num_threads(2)

NOW = [family for family in FAMILIES if ALL or os.environ.get("BLESS") or not family.later]
OF_EACH_FILE = list({(family.file, family.map): family for family in reversed(NOW)}.values())[::-1]
TRAINED = NOW if ALL or os.environ.get("BLESS") else OF_EACH_FILE
KINDS = list(itertools.product(NOW, ["float32", "bfloat16"]))  # without ALL each family in one of the two


def named(value):
    return getattr(value, "name", value)


def make_model(family):
    torch.manual_seed(7)
    config = getattr(transformers, family.config)(**family.arguments, attn_implementation="eager")
    model = getattr(transformers, family.model)(config)
    with torch.no_grad():  # also gains and biases, which begin as ones and zeros: nothing may be left out unseen
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model.train()


def write_tokens(path):
    """With some structure, so that there is something to learn."""
    generator = np.random.default_rng(3)
    tokens = np.cumsum(generator.integers(0, 7, 2000)) % VOCAB
    path.write_bytes(tokens.astype("<u2").tobytes())
    return tokens


def batches(tokens):
    """Of --no-shuffle: sequences one after the other, labels one further."""
    whole = (len(tokens) - 1) // SEQ
    for step in range(STEPS):
        at = [(step * BATCH + n) % whole * SEQ for n in range(BATCH)]
        yield [torch.tensor(np.stack([tokens[i + k:i + k + SEQ] for i in at])) for k in (0, 1)]


def loss_of(family, model, tokens, labels):
    if family.masked:  # as in bert.mdl: every 7th token
        masked = (torch.arange(SEQ) % 7 == 3).expand_as(tokens)
        labels = torch.where(masked, tokens, -100)
        tokens = torch.where(masked, family.masked, tokens)
    logits = model(tokens).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def train_there(family, model, tokens):
    """(loss, gradient norm) of each step, in double precision."""
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=family.rate)
    for now, later in batches(tokens):
        optimizer.zero_grad()
        loss = loss_of(family, model, now, later)
        loss.backward()
        norm = math.sqrt(sum(float((p.grad.double()**2).sum()) for p in model.parameters() if p.grad is not None))
        yield float(loss.detach()), norm
        optimizer.step()


def load(family, folder):
    cls = getattr(transformers, family.model)
    model, report = cls.from_pretrained(folder, output_loading_info=True, dtype="auto")
    assert not any(report[key] for key in report), report
    return model


def assert_same_bits(a, b):
    a, b = a.state_dict(), b.state_dict()
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]), name


def file_of(family, folder):
    if not family.edit:
        return family.file
    text = (ROOT / family.file).read_text()
    assert family.edit[0] in text
    (folder / "model.mdl").write_text(text.replace(*family.edit))
    return folder / "model.mdl"


def options_of(family):
    """Of import and export."""
    map_option = ["--map", ROOT / family.map] if family.map else []
    return [*map_option, *defines_of(family)]


def defines_of(family):
    return [word for key, value in family.defines.items() for word in ("-D", f"{key}={value}")]


def export(family, checkpoint, like, out):
    run(MPC, "export", checkpoint, "--model", file_of(family, out.parent), "--like", like, "-o", out, *options_of(family))
    return load(family, out)


PROMPT = b"To be or"


def most_likely(model, count):
    """The prompt and `count` tokens more, each the most likely one."""
    tokens = list(PROMPT)
    with torch.no_grad():
        for _ in range(count):
            tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    return bytes(tokens)


def said_by(trainer, checkpoint, count):
    """Models of 256 tokens say bytes."""
    done = subprocess.run([trainer, "--load", checkpoint, "--steps", "0", "--sample", str(count), "--prompt", PROMPT, "--temperature", "0"],
                          capture_output=True, timeout=600, check=True)
    return done.stdout[:len(PROMPT) + count]


@pytest.mark.parametrize("family", TRAINED, ids=lambda family: family.name)
def test_trains_like_transformers(family, tmp_path, figures):
    model = make_model(family)
    model.save_pretrained(tmp_path / "there")
    if family.file.startswith("examples/") and not family.edit:  # the example that fits is found
        found = run(MPC, "import", tmp_path / "there", "-o", tmp_path / "w.safetensors", *defines_of(family))
        assert f" of {ROOT / family.file}, " in found
    words = import_folder(tmp_path / "there", file_of(family, tmp_path), tmp_path / "w.safetensors", *options_of(family))
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    trainer = compile_as_said(words, tmp_path / "out", "--set", f"train.optimizer=sgd(lr = {family.rate})", *settings)
    tokens = write_tokens(tmp_path / "tokens.u16")
    log = train(trainer, "--data", tmp_path / "tokens.u16", "--no-shuffle", "--steps", STEPS, "--load",
                tmp_path / "w.safetensors", "--weights-only", "--save", tmp_path / "trained.safetensors")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    there = list(train_there(family, model, tokens))
    assert len(log) == STEPS and log[-1]["loss"] < log[0]["loss"]
    loss = max(abs(entry["loss"] - loss) / loss for entry, (loss, _) in zip(log, there))
    norm = max(abs(entry["grad_norm"] - norm) / norm for entry, (_, norm) in zip(log, there))
    trained = export(family, tmp_path / "trained.safetensors", tmp_path / "there", tmp_path / "tuned").state_dict()
    moved, far = 0, 0
    for name, value in model.state_dict().items():
        moved = max(moved, float((value - before[name]).abs().max()))
        far = max(far, float((value - trained[name].double()).abs().max()))
    figures[family.name] = (loss, norm, far)
    assert loss < TOLERANCE and norm < TOLERANCE
    assert far < TOLERANCE < moved
    if family.says and not family.masked:
        assert said_by(trainer, tmp_path / "trained.safetensors", SEQ - len(PROMPT)) == most_likely(model.eval(), SEQ - len(PROMPT))


@pytest.mark.parametrize("family, dtype", some(KINDS, *(number + number // 2 % 2 for number in range(0, len(KINDS), 2))), ids=named)
def test_comes_back_bit_for_bit(family, dtype, tmp_path):
    model = make_model(family).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "there", max_shard_size="30KB" if dtype == "bfloat16" else "5GB")
    import_folder(tmp_path / "there", file_of(family, tmp_path), tmp_path / "w.safetensors", *options_of(family))
    back = export(family, tmp_path / "w.safetensors", tmp_path / "there", tmp_path / "back")
    assert_same_bits(load(family, tmp_path / "there"), back)
    files = sorted(path.name for path in (tmp_path / "there").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "back").iterdir())
    assert len(files) > 4 or dtype == "float32"  # several shards
    for name in files:
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "back" / name).read_bytes()


@pytest.mark.parametrize("family, dtype", some(KINDS, *(number + 1 - number // 2 % 2 for number in range(0, len(KINDS), 2))), ids=named)
def test_new_folder(family, dtype, tmp_path):
    """Of a model that comes from no folder there is only a configuration: the map names all of its tensors.  What is
    written is imported as it was."""
    model = make_model(family).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "there")
    import_folder(tmp_path / "there", file_of(family, tmp_path), tmp_path / "w.safetensors", *options_of(family))
    there = load(family, tmp_path / "there")
    (tmp_path / "there/model.safetensors").unlink()
    assert_same_bits(there, export(family, tmp_path / "w.safetensors", tmp_path / "there", tmp_path / "new"))
    import_folder(tmp_path / "new", file_of(family, tmp_path), tmp_path / "again.safetensors", *options_of(family))
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "w.safetensors").read_bytes()
