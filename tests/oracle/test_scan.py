"""Scans: an LSTM against the function of torch.nn.LSTM, in both directions; Mamba-2 in chunks, with a scan over these,
against its recurrence."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from common import Reference, batches, compile_model, initial_weights, largest_difference, read_safetensors, train, write_text

SEQ, BATCH, STEPS = 12, 4, 8
SMALL = ["-D", f"seq={SEQ}", "-D", "hidden=16", "-D", "layers=2", f"--set=train.batch={BATCH}", "--set=train.clip=0",
         "--set=train.optimizer=adamw(lr = 1e-2, weight_decay = 0.1)"]


def lstm_loss(reverse):
    """torch.lstm has [gates, in] matrices of all gates, one after the other: input, forget, cell, output."""
    def layer(w, n, x):
        w_x, w_h, b = [w[f"h.{n}.{name}"].flatten(-2) for name in ("w_x", "w_h", "b")]
        zeros = torch.zeros(1, x.shape[0], w_h.shape[0], dtype=x.dtype)
        x = x.flip(1) if reverse else x
        y, _, _ = torch.lstm(x, (zeros, zeros), (w_x.T, w_h.T, b, torch.zeros_like(b)), True, 1, 0.0, False, False, True)
        return y.flip(1) if reverse else y

    def loss(w, tokens, labels):
        x = w["wte"][tokens]
        for n in range(2):
            x = layer(w, n, x)
        return F.cross_entropy((x @ w["wo"]).flatten(0, 1), labels.flatten())

    return loss


def follows(out, data, loss, seq=SEQ, no_decay=lambda name: name.endswith(".b")):
    weights = initial_weights(out, data)
    log = train(out, "--data", data, "--no-shuffle", "--steps", STEPS, "--save", out / "end.safetensors")
    reference = Reference(weights, loss, no_decay)
    feed = batches(data, BATCH, seq)
    losses, norms = largest_difference(log, [reference.step(*next(feed), 1e-2, 0) for _ in range(STEPS)])
    assert len(log) == STEPS and losses < 1e-5 and norms < 1e-4, (losses, norms)
    end = read_safetensors(out / "end.safetensors")
    for name, value in reference.weights.items():
        moved = abs(value.detach().numpy() - weights[name]).max()
        assert abs(end[name] - value.detach().numpy()).max() < 2e-2 * moved + 1e-6, name


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("scan") / "text", 4000)


@pytest.mark.parametrize("options", [[], ["--recompute=full"]], ids=["saved", "recomputed"])
def test_lstm(text, tmp_path, options):
    follows(compile_model("lstm", tmp_path, *SMALL, *options), text, lstm_loss(False))


def test_lstm_from_the_end(text, tmp_path):
    model = (Path(__file__).parents[2] / "examples/lstm.mdl").read_text().replace("scan seq {", "scan seq (reverse = true) {")
    follows(compile_model(model, tmp_path, *SMALL), text, lstm_loss(True))


NESTED = """
dim batch
dim vocab  = 256
dim hidden = 16
dim from   = hidden
dim chunk  = 4
dim place  = 5
dim seq    = chunk * place
block rnn(x: [batch, seq, hidden]) {
    param w : [from, hidden] = normal(0.3)
    z = split(x, seq -> (chunk, place))
    h : [batch, hidden] = 0
    scan chunk {
        scan place {
            h = tanh(z + dot(rename(h, hidden -> from), w, from))
            yield t = h
        }
        yield y = t
    }
    return merge(y, (chunk, place) -> seq)
}
model m {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param wte : [vocab, hidden] = normal(0.5)
    x = wte[vocab = tokens]
    repeat 2 { x = x + rnn(x) as h }
    loss mean(cross_entropy(dot(x, wte, hidden), labels, vocab))
}
train {
    optimizer = adamw(lr = 1e-2, weight_decay = 0.1)
    batch     = 4
}
"""


def rnn_loss(w, tokens, labels):
    x = w["wte"][tokens]
    for n in range(2):
        h, places = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t] + h @ w[f"h.{n}.w"])
            places.append(h)
        x = x + torch.stack(places, 1)
    return F.cross_entropy((x @ w["wte"].T).flatten(0, 1), labels.flatten())


def activations(out):
    return json.loads((out / "plan.json").read_text())["memory"]["classes"]["activations"]


def test_scan_in_scan_runs_again(text, tmp_path):
    """Recomputed, the carries of one chunk of one layer are there at a time, in place of those of all."""
    saved, again = [compile_model(NESTED, tmp_path / policy, f"--recompute={policy}") for policy in ("none", "full")]
    follows(again, text, rnn_loss, seq=20, no_decay=lambda name: False)
    assert activations(saved) - activations(again) > 4 * 20 * 16 * 4


def recurrence(w, tokens, labels):
    """Mamba-2's mixer place by place: s = exp(-a dt) s + dt b u', y = c s + D u."""
    x = w["wte"][tokens]
    own = {name.removeprefix("mixer."): value for name, value in w.items()}
    u = torch.einsum("bse,ehd->bshd", x, own["w_x"])
    b, c = x @ own["w_b"], x @ own["w_c"]
    dt = F.softplus(x @ own["w_dt"] + own["bias"])
    state, places = torch.zeros(*u[:, 0].shape[:2], b.shape[-1], u.shape[-1], dtype=u.dtype), []
    for t in range(x.shape[1]):
        decay = torch.exp(-own["log_a"].exp() * dt[:, t])
        state = decay[:, :, None, None] * state + torch.einsum("bh,bn,bhd->bhnd", dt[:, t], b[:, t], u[:, t])
        places.append(torch.einsum("bn,bhnd->bhd", c[:, t], state))
    y = torch.stack(places, 1) + own["skip"][:, None] * u
    x = x + torch.einsum("bshd,hde->bse", y, own["w_o"])
    return F.cross_entropy((x @ w["wte"].T).flatten(0, 1), labels.flatten())


@pytest.mark.parametrize("options", [[], ["--recompute=full", "-D", "chunk=2", "-D", "place=10"]], ids=["saved", "recomputed"])
def test_chunks_of_a_state_space(text, tmp_path, options):
    out = compile_model((Path(__file__).parent / "ssd.mdl").read_text(), tmp_path, *options)
    follows(out, text, recurrence, seq=20, no_decay=lambda name: name in ("mixer.bias", "mixer.log_a", "mixer.skip"))
