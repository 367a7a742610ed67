"""A tiny ResNet of transformers', with norms over the batch: imported, trained beside PyTorch, exported, evaluated by both."""
import json
import math
import shutil

import numpy as np
import pytest
from common import MPC, ROOT, compile_as_said, import_folder, run, train
from test_families import SETTINGS

transformers = pytest.importorskip("transformers", reason="no transformers: make hf")
torch = pytest.importorskip("torch")

ROW, CLASSES, BATCH, RECORDS, STEPS, RATE, TOLERANCE = 64, 5, 8, 24, 3, 0.001, 2e-5
MODEL = "tests/models/resnet.mdl"
DEFINES = ["-D", f"row={ROW}", "-D", f"class={CLASSES}"]


def make_model():
    torch.manual_seed(7)
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[8, 16, 24, 32], depths=[3, 2, 2, 2], layer_type="bottleneck", num_labels=CLASSES))
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if value.is_floating_point():
                value += 0.05 * torch.rand_like(value)
    return model.train()


def train_there(model, image, label):
    """(loss, gradient norm) of each step, in double precision; images have their channels first there."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        at = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.tensor(image[at]).double().movedim(-1, 1)).logits, torch.tensor(label[at]).long())
        loss.backward()
        yield float(loss.detach()), math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
        optimizer.step()


def smooth(model):
    """With softplus for relu: some of 100,000 values are so near 0 that rounding would decide about a relu's slope."""
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, torch.nn.ReLU):
                setattr(module, name, torch.nn.Softplus())
    return model


def test_norms_over_the_batch(tmp_path):
    model, draw = smooth(make_model()), np.random.default_rng(3)
    shutil.copytree(ROOT / "tests/models/maps", tmp_path / "maps")
    path = tmp_path / "resnet.mdl"
    path.write_text((ROOT / MODEL).read_text().replace("relu(", "softplus("))
    image = draw.standard_normal((RECORDS, ROW, ROW, 3)).astype(np.float32)
    label = draw.integers(0, CLASSES, RECORDS).astype(np.int32)
    model.save_pretrained(tmp_path / "there")
    words = import_folder(tmp_path / "there", path, tmp_path / "w.safetensors", *DEFINES)
    settings = [word for key, value in {**SETTINGS, "train.batch": BATCH, "train.microbatch": BATCH}.items() for word in ("--set", f"{key}={value}")]
    trainer = compile_as_said(words, tmp_path / "out", "--set", f"train.optimizer=sgd(lr = {RATE})", *settings)
    fed = []
    for name, array in (("image", image), ("label", label)):
        np.save(tmp_path / f"{name}.npy", array)
        fed += [word for option in ("--data", "--eval-data") for word in (option, f"{name}={tmp_path / name}.npy")]
    log = train(trainer, *fed, "--no-shuffle", "--steps", STEPS, "--load", tmp_path / "w.safetensors", "--weights-only", "--save",
                tmp_path / "trained.safetensors")
    model = model.double()
    for entry, (loss, norm) in zip(log, list(train_there(model, image, label))):
        assert abs(entry["loss"] - loss) < TOLERANCE * loss and abs(entry["grad_norm"] - norm) < TOLERANCE * norm
    run(MPC, "export", tmp_path / "trained.safetensors", "--model", path, "--like", tmp_path / "there", "-o", tmp_path / "tuned", *DEFINES)
    tuned = smooth(transformers.ResNetForImageClassification.from_pretrained(tmp_path / "tuned")).double().eval()
    for name, value in model.state_dict().items():
        if "running_var" not in name and "num_batches" not in name:  # there of a sample, n / (n - 1) times as large
            assert float((value - tuned.state_dict()[name].double()).abs().max()) < TOLERANCE, name
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(tuned(torch.tensor(image).double().movedim(-1, 1)).logits, torch.tensor(label).long())
    assert abs(log[-1]["eval_loss"] - float(loss)) < TOLERANCE * float(loss)
    assert abs(log[-1]["eval_loss"] - log[-1]["loss"]) > 100 * TOLERANCE  # it is not that of the batch's own statistics


def test_resnet_comes_back_bit_for_bit(tmp_path):
    make_model().save_pretrained(tmp_path / "there")
    import_folder(tmp_path / "there", MODEL, tmp_path / "w.safetensors", *DEFINES)
    run(MPC, "export", tmp_path / "w.safetensors", "--model", MODEL, "--like", tmp_path / "there", "-o", tmp_path / "back", *DEFINES)
    for path in (tmp_path / "there").iterdir():
        assert path.read_bytes() == (tmp_path / "back" / path.name).read_bytes(), path.name
    assert json.loads((tmp_path / "back" / "config.json").read_text())["depths"] == [3, 2, 2, 2]
