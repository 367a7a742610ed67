"""A tiny T5 of transformers', which reads pairs of sequences: imported, trained for ten steps beside PyTorch, exported."""
import math

import numpy as np
import pytest
from common import MPC, compile_as_said, import_folder, run, train
from test_families import SETTINGS, TOLERANCE

transformers = pytest.importorskip("transformers", reason="no transformers: make hf")
torch = pytest.importorskip("torch")

SOURCE, SEQ, VOCAB, BATCH, RECORDS, STEPS, RATE = 30, 14, 60, 4, 40, 10, 0.1


def make_model():
    torch.manual_seed(7)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCAB, d_model=24, d_kv=8, d_ff=40, num_layers=3, num_heads=3, dropout_rate=0.0,
        relative_attention_num_buckets=8, relative_attention_max_distance=20, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, initializer_factor=0.2))
    model.lm_head.weight = torch.nn.Parameter(torch.zeros(VOCAB, 24))  # some versions tie it all the same
    with torch.no_grad():  # also gains, which begin as ones: nothing may be left out unseen
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model.train()


def pairs():
    """The target is the beginning of the source; of few tokens, so that there is something to learn."""
    text = np.random.default_rng(3).integers(0, 8, (RECORDS, SOURCE))
    return text, np.concatenate([text[:, :1], text[:, :SEQ]], 1)


def train_there(model, text, tokens):
    """(loss, gradient norm) of each step, in double precision."""
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        at = [(step * BATCH + n) % RECORDS for n in range(BATCH)]
        optimizer.zero_grad()
        logits = model(input_ids=torch.tensor(text[at]), decoder_input_ids=torch.tensor(tokens[at, :-1])).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(tokens[at, 1:]).flatten())
        loss.backward()
        yield float(loss.detach()), math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
        optimizer.step()


def test_t5_trains_like_transformers(tmp_path):
    model, (text, tokens) = make_model(), pairs()
    model.save_pretrained(tmp_path / "there")
    defines = ["-D", f"source={SOURCE}", "-D", f"seq={SEQ}"]
    words = import_folder(tmp_path / "there", "examples/t5.mdl", tmp_path / "w.safetensors", *defines)
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    trainer = compile_as_said(words, tmp_path / "out", "--set", f"train.optimizer=sgd(lr = {RATE})", *settings)
    for name, array in (("text", text), ("tokens", tokens)):
        np.save(tmp_path / f"{name}.npy", array)
    log = train(trainer, *[word for name in ("text", "tokens") for word in ("--data", f"{name}={tmp_path / name}.npy")],
                "--no-shuffle", "--steps", STEPS, "--load", tmp_path / "w.safetensors", "--weights-only")
    there = list(train_there(model, text, tokens))
    assert len(log) == STEPS and log[-1]["loss"] < log[0]["loss"]
    for entry, (loss, norm) in zip(log, there):
        assert abs(entry["loss"] - loss) < TOLERANCE * loss and abs(entry["grad_norm"] - norm) < TOLERANCE * norm


def test_t5_comes_back_bit_for_bit(tmp_path):
    make_model().save_pretrained(tmp_path / "there")
    defines = ["-D", f"source={SOURCE}", "-D", f"seq={SEQ}"]
    import_folder(tmp_path / "there", "examples/t5.mdl", tmp_path / "w.safetensors", *defines)
    run(MPC, "export", tmp_path / "w.safetensors", "--model", "examples/t5.mdl", "--like", tmp_path / "there", "-o",
        tmp_path / "back", *defines)
    for path in (tmp_path / "there").iterdir():
        assert path.read_bytes() == (tmp_path / "back" / path.name).read_bytes(), path.name
