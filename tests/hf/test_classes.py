"""A tiny DistilBERT of transformers' with classes, of texts with padding: imported, trained beside PyTorch, exported."""
import math

import numpy as np
import pytest
from common import MPC, compile_as_said, import_folder, run, train
from test_families import SETTINGS, TOLERANCE

transformers = pytest.importorskip("transformers", reason="no transformers: make hf")
torch = pytest.importorskip("torch")

SEQ, VOCAB, CLASSES, BATCH, RECORDS, STEPS, RATE = 18, 60, 3, 4, 40, 10, 0.1


def make_model():
    torch.manual_seed(7)
    model = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(
        vocab_size=VOCAB, max_position_embeddings=SEQ, dim=24, n_layers=3, n_heads=3, hidden_dim=96, dropout=0.0,
        attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=CLASSES, pad_token_id=None))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model.train()


def texts():
    """Of all lengths, with padding behind; the class is in one of the tokens."""
    draw = np.random.default_rng(3)
    tokens = draw.integers(0, VOCAB, (RECORDS, SEQ)).astype(np.int32)
    seen = np.arange(SEQ) < draw.integers(2, SEQ + 1, (RECORDS, 1))
    return tokens, seen, (tokens[:, 1] % CLASSES).astype(np.int32)


def train_there(model, tokens, seen, label):
    """(loss, gradient norm) of each step, in double precision."""
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        at = [(step * BATCH + n) % RECORDS for n in range(BATCH)]
        optimizer.zero_grad()
        out = model(input_ids=torch.tensor(tokens[at]).long(), attention_mask=torch.tensor(seen[at]).long(),
                    labels=torch.tensor(label[at]).long())
        out.loss.backward()
        yield float(out.loss.detach()), math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
        optimizer.step()


def test_classes_are_learned_like_transformers(tmp_path):
    model, arrays = make_model(), texts()
    model.save_pretrained(tmp_path / "there")
    words = import_folder(tmp_path / "there", "examples/distilbert.mdl", tmp_path / "w.safetensors", "-D", f"class={CLASSES}")
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    trainer = compile_as_said(words, tmp_path / "out", "--set", f"train.optimizer=sgd(lr = {RATE})", *settings)
    fed = []
    for name, array in zip(("tokens", "seen", "label"), arrays):
        np.save(tmp_path / f"{name}.npy", array)
        fed += ["--data", f"{name}={tmp_path / name}.npy"]
    log = train(trainer, *fed, "--no-shuffle", "--steps", STEPS, "--load", tmp_path / "w.safetensors", "--weights-only", "--save",
                tmp_path / "trained.safetensors")
    there = list(train_there(model, *arrays))
    for entry, (loss, norm) in zip(log, there):
        assert abs(entry["loss"] - loss) < TOLERANCE * loss and abs(entry["grad_norm"] - norm) < TOLERANCE * norm
    run(MPC, "export", tmp_path / "trained.safetensors", "--model", "examples/distilbert.mdl", "--like", tmp_path / "there", "-o",
        tmp_path / "tuned", "-D", f"class={CLASSES}")
    tuned = transformers.DistilBertForSequenceClassification.from_pretrained(tmp_path / "tuned").state_dict()
    for name, value in model.state_dict().items():
        assert float((value - tuned[name].double()).abs().max()) < TOLERANCE, name


def test_classes_come_back_bit_for_bit(tmp_path):
    make_model().save_pretrained(tmp_path / "there")
    import_folder(tmp_path / "there", "examples/distilbert.mdl", tmp_path / "w.safetensors", "-D", f"class={CLASSES}")
    run(MPC, "export", tmp_path / "w.safetensors", "--model", "examples/distilbert.mdl", "--like", tmp_path / "there", "-o",
        tmp_path / "back", "-D", f"class={CLASSES}")
    for path in (tmp_path / "there").iterdir():
        assert path.read_bytes() == (tmp_path / "back" / path.name).read_bytes(), path.name
