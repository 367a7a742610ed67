"""Packed documents: the same losses as PyTorch has with every document as a sequence of its own, without any mask."""

from pathlib import Path

import numpy as np
import pytest
from common import Reference, batches, compile_model, initial_weights, largest_difference, read_safetensors, train
import models

STEPS, SEQ, END = 10, 24, 10
LLAMA = models.llama(2, embedded=True)
MODEL = (Path(__file__).parent / "packed.mdl").read_text()


def each_document_alone(w, tokens, labels):
    """The sum over documents, each from position 0 on, divided by the number of tokens."""
    total = 0.0
    for row, following in zip(tokens, labels):
        ends = [-1] + [i for i in range(SEQ) if row[i] == END and i < SEQ - 1] + [SEQ - 1]
        for before, last in zip(ends, ends[1:]):
            own = slice(before + 1, last + 1)
            count = last - before
            x = (w["embedding"][row[own]] + w["positions"][:count])[None]
            total = total + count * LLAMA(w, x, following[own][None])
    return total / tokens.numel()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Documents of 1 to 40 letters: some are longer than a sequence, some are only their end."""
    generator = np.random.default_rng(5)
    lines = [bytes(generator.integers(97, 110, generator.integers(0, 40)).astype(np.uint8)) for _ in range(300)]
    path = tmp_path_factory.mktemp("packed") / "text"
    path.write_bytes(b"\n".join(lines))
    return path


def test_documents_do_not_see_each_other(text, tmp_path):
    out = compile_model(MODEL, tmp_path)
    weights = initial_weights(out, text)
    log = train(out, "--data", text, "--no-shuffle", "--steps", STEPS, "--save", out / "end.safetensors")
    reference = Reference(weights, each_document_alone, lambda name: False, betas=(0.9, 0.95), eps=1e-8)
    feed = batches(text, 6, SEQ)
    losses, norms = largest_difference(log, [reference.step(*next(feed), 4e-3, 0.5) for _ in range(STEPS)])
    assert len(log) == STEPS and losses < 1e-5 and norms < 1e-4, (losses, norms)
    end = read_safetensors(out / "end.safetensors")
    for name, value in reference.weights.items():
        moved = np.abs(value.detach().numpy() - weights[name]).max()
        assert np.abs(end[name] - value.detach().numpy()).max() < 2e-2 * moved + 1e-6, (name, moved)
