"""Every optimizer against a second writing of it in double precision, over twelve steps: PyTorch's own where it has one
(SGD, AdamW), else from its paper.  Groups of parameters with arguments and optimizers of their own; optimizers that the
file declares.

The model has what optimizers treat differently: a gathered table, matrices in a repeat, gains and biases.  The tolerance
is a multiple of what PyTorch's own float32 makes of the same run."""

import re
import subprocess

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from common import ROOT, batches, compile_model, initial_weights, read_safetensors, train, write_text

STEPS, BATCH, SEQ = 12, 4, 8
MODEL = """
dim batch
dim seq   = 8
dim vocab = 256
dim embed = 12
dim ff    = 20

block layer(x: [batch, seq, embed]) {
    param w1 : [embed, ff] = normal(0.3)
    param b1 : [ff]        = zeros
    param w2 : [ff, embed] = normal(0.3)
    return x + dot(tanh(dot(x, w1, embed) + b1), w2, ff)
}

model tiny {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param wte  : [vocab, embed] = normal(0.5)
    param gain : [embed]        = ones
    param head : [embed, vocab] = normal(0.3)
    x = wte[vocab = tokens]
    repeat 2 { x = layer(x) as h }
    loss mean(cross_entropy(dot(x * gain, head, embed), labels, vocab))
}
"""
DECAY = ("wte", "w1", "w2", "head")  # by the rule of the language: what is multiplied or gathered


def loss_of(w, tokens, labels):
    x = w["wte"][tokens]
    for i in range(2):
        x = x + torch.tanh(x @ w[f"h.{i}.w1"] + w[f"h.{i}.b1"]) @ w[f"h.{i}.w2"]
    return cross_entropy((x * w["gain"] @ w["head"]).flatten(0, 1), labels.flatten())


# --- The optimizers again: (weight, gradient, state, t from 1, lr, decay, options) changes weight and state ---------------

def sgd(w, g, s, t, lr, decay, momentum=0.0, nesterov=False):
    parameter = torch.nn.Parameter(w)
    if "torch" not in s:
        s["torch"] = torch.optim.SGD([parameter], lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    by_torch(s["torch"], parameter, g, lr)


def adamw(w, g, s, t, lr, decay, beta1=0.9, beta2=0.999, eps=1e-8):
    parameter = torch.nn.Parameter(w)
    if "torch" not in s:
        s["torch"] = torch.optim.AdamW([parameter], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    by_torch(s["torch"], parameter, g, lr)


def by_torch(optimizer, parameter, g, lr):
    own = optimizer.param_groups[0]["params"][0]
    own.data, own.grad, optimizer.param_groups[0]["lr"] = parameter.data, g.clone(), lr
    optimizer.step()


def lion(w, g, s, t, lr, decay, beta1=0.9, beta2=0.99):
    m = s.setdefault("m", torch.zeros_like(w))
    w -= lr * (torch.sign(beta1 * m + (1 - beta1) * g) + decay * w)
    m.mul_(beta2).add_(g, alpha=1 - beta2)


def adafactor(w, g, s, t, lr, decay):
    """Shazeer and Stern's algorithms 4 and 5, with the steps and the bounds of later torch.optim.Adafactor."""
    eps1, fresh = 1.1920929e-7, t**-0.8
    if w.dim() == 2:
        r, c = s.setdefault("r", torch.zeros_like(w[:, :1])), s.setdefault("c", torch.zeros_like(w[:1]))
        r.lerp_(g.square().mean(1, keepdim=True), fresh)
        c.lerp_(g.square().mean(0, keepdim=True), fresh)
        v = r @ c / r.mean().clamp(min=eps1)
    else:
        v = s.setdefault("v", torch.zeros_like(w)).lerp_(g.square(), fresh)
    u = g / v.clamp(min=eps1**2).sqrt()
    rate = max(1e-3, float(w.square().mean().sqrt())) * min(lr, t**-0.5)
    w.mul_(1 - lr * decay).sub_(u * (rate / max(1, float(u.square().mean().sqrt()))))


def muon(w, g, s, t, lr, decay, momentum=0.95, nesterov=True):
    """As torch.optim.Muon, which rounds to bf16 within; rows are what its products contract."""
    m = s.setdefault("m", torch.zeros_like(w))
    m.mul_(momentum).add_(g, alpha=1 - momentum)
    x = (1 - momentum) * g + momentum * m if nesterov else m
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    w.mul_(1 - lr * decay).sub_(lr * max(1, w.shape[1] / w.shape[0])**0.5 * (x.T if is_tall else x))


def heavy(w, g, s, t, lr, decay, beta=0.9):
    """The optimizer that the test declares: mean of gradients, the step shrinks with the root of its number."""
    m = s.setdefault("m", torch.zeros_like(w))
    m.mul_(beta).add_(g, alpha=1 - beta)
    w -= lr / t**0.5 * (m + decay * w)


HEAVY = """
optimizer heavy(lr, beta = 0.9, weight_decay = 0.01) {
    state m = zeros
    m = beta * m + (1 - beta) * grad
    update param - lr / sqrt(step) * (m + weight_decay * param)
}
"""


# --- Runs ----------------------------------------------------------------------------------------------------------------

def reference(weights, groups, data, dtype, clip=None):
    """groups: [(names, optimizer, lr, decay of what decays, decay is for all, options)]; the last that names one counts.
    Returns the weights after STEPS steps."""
    w = {name: torch.tensor(value, dtype=dtype) for name, value in weights.items()}
    state = {name: {} for name in w}
    feed = batches(data, BATCH, SEQ)
    for t in range(1, STEPS + 1):
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        loss_of(leaves, *next(feed)).backward()
        for name, value in w.items():
            plain = name.split(".")[-1]
            names, update, lr, decay, for_all, options = [g for g in groups if "*" in g[0] or plain in g[0]][-1]
            decay = decay if for_all or plain in DECAY else 0.0
            g = leaves[name].grad
            g = clip(g) if clip else g
            update(value, g, state[name], t, lr, decay, **options)
    return {name: value.numpy() for name, value in w.items()}


OTHERS = """
optimizer lamb(lr = 1e-2, weight_decay = 0.01) {
    state m, v = zeros
    m = 0.9 * m + 0.1 * grad
    v = 0.99 * v + 0.01 * square(grad)
    u = m / (1 - 0.9 ^ step) / (sqrt(v / (1 - 0.99 ^ step)) + 1e-3) + weight_decay * param
    update param - lr * u * sqrt(sum(square(param)) / (sum(square(u)) + 1e-6))
}
optimizer adan(lr = 1e-2) {
    state m, v, n, before = zeros
    change = where(step > 1, grad - before, 0)
    m = 0.9 * m + 0.1 * grad
    v = 0.9 * v + 0.1 * change
    n = 0.9 * n + 0.1 * square(grad + 0.9 * change)
    before = grad
    update param - lr * (m + 0.9 * v) / (sqrt(n) + 1e-3)
}
optimizer schedule_free(lr = 1e-2, beta = 0.9) {
    state z, ema = zeros
    z   = where(step > 1, z, param) - lr * grad
    ema = (1 - 1 / step) * where(step > 1, ema, param) + z / step
    update (1 - beta) * z + beta * ema
}
optimizer two_places(lr = 1e-2) {           # heavy ball, by the place before
    state before = zeros
    moved = where(step > 1, param - before, 0)
    before = param
    update param + 0.9 * moved - lr * grad
}
"""


def schedule_free(w, g, state, t, lr, decay):
    """A. Defazio et al., The Road Less Scheduled (2024), with the mean of all z."""
    state["z"] = state.get("z", w.clone()) - lr * g
    state["all"] = state.get("all", 0) + state["z"]
    w.copy_(0.1 * state["z"] + 0.9 * state["all"] / t)


def lamb(w, g, state, t, lr, decay):
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    state["v"] = 0.99 * state.get("v", 0) + 0.01 * g * g
    u = state["m"] / (1 - 0.9**t) / ((state["v"] / (1 - 0.99**t)).sqrt() + 1e-3) + decay * w
    w -= lr * u * ((w * w).sum() / ((u * u).sum() + 1e-6)).sqrt()


def adan(w, g, state, t, lr, decay):
    change = g - state.get("before", g)
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    state["v"] = 0.9 * state.get("v", 0) + 0.1 * change
    state["n"] = 0.9 * state.get("n", 0) + 0.1 * (g + 0.9 * change)**2
    state["before"] = g
    w -= lr * (state["m"] + 0.9 * state["v"]) / (state["n"].sqrt() + 1e-3)


def two_places(w, g, state, t, lr, decay):
    moved = w - state.get("before", w)
    state["before"] = w.clone()
    w += 0.9 * moved - lr * g


def sides(x):
    """A gain or a bias is a matrix of one row."""
    return x if x.dim() == 2 else x[None]


def shampoo(w, g, s, t, lr, decay, momentum=0.9, beta=0.95, eps=1e-4):
    """The inverse fourth roots by eigenvalues, where the optimizer iterates."""
    g = sides(g)
    u = s["mean"] = momentum * s.get("mean", 0) + (1 - momentum) * g
    for name, x in (("l", g), ("r", g.T)):
        s[name] = beta * s.get(name, 0) + x @ x.T
        values, vectors = torch.linalg.eigh(s[name] + eps * s[name].diagonal().mean() * torch.eye(len(x), dtype=x.dtype))
        root = vectors * values**-0.25 @ vectors.T
        u = root @ u if name == "l" else u @ root
    w -= (lr * u / u.square().mean().sqrt()).reshape(w.shape)


def soap(w, g, s, t, lr, decay, beta1=0.95, beta2=0.95, beta=0.95, eps=1e-8, turn=0.1):
    """Each turned basis is made orthogonal by singular values, where the optimizer iterates."""
    g = sides(g)
    p, q = s.setdefault("p", torch.eye(len(g), dtype=g.dtype)), s.setdefault("q", torch.eye(len(g.T), dtype=g.dtype))
    s["m"] = beta1 * s.get("m", 0) + (1 - beta1) * g
    s["v"] = beta2 * s.get("v", 0) + (1 - beta2) * (p.T @ g @ q).square()
    u = p.T @ s["m"] @ q / (1 - beta1**t) / ((s["v"] / (1 - beta2**t)).sqrt() + eps)
    w -= lr * (p @ u @ q.T).reshape(w.shape)
    for name, basis, x in (("l", "p", g), ("r", "q", g.T)):
        s[name] = beta * s.get(name, 0) + (1 - beta) * x @ x.T
        seen = s[basis].T @ s[name] @ s[basis]
        change = (seen.tril(-1) - seen.tril(-1).T) * turn / seen.norm()
        left, _, right = torch.linalg.svd(s[basis] + s[basis] @ change)
        s[basis] = left @ right


CASES = {
    "shampoo": ("optimizer = shampoo(lr = 1e-2, eps = 1e-2)", [("*", shampoo, 1e-2, 0, False, {"eps": 1e-2})]),
    "soap": ("optimizer = soap(lr = 1e-2, eps = 1e-3)", [("*", soap, 1e-2, 0, False, {"eps": 1e-3})]),
    "lamb": ("optimizer = lamb(lr = 1e-2)", [("*", lamb, 1e-2, 0.01, False, {})]),
    "adan": ("optimizer = adan(lr = 1e-2)", [("*", adan, 1e-2, 0, False, {})]),
    "schedule_free": ("optimizer = schedule_free(lr = 0.3)", [("*", schedule_free, 0.3, 0, False, {})]),
    "two_places": ("optimizer = two_places(lr = 0.1)", [("*", two_places, 0.1, 0, False, {})]),
    "sgd": ("optimizer = sgd(lr = 0.3)", [("*", sgd, 0.3, 0, False, {})]),
    "momentum": ("optimizer = sgd(lr = 0.1, momentum = 0.9, weight_decay = 0.01)",
                 [("*", sgd, 0.1, 0.01, False, {"momentum": 0.9})]),
    "nesterov": ("optimizer = sgd(lr = 0.1, momentum = 0.9, nesterov = true)",
                 [("*", sgd, 0.1, 0, False, {"momentum": 0.9, "nesterov": True})]),
    "adamw": ("optimizer = adamw(lr = 1e-2, weight_decay = 0.1, eps = 1e-3)",
              [("*", adamw, 1e-2, 0.1, False, {"eps": 1e-3})]),
    "lion": ("optimizer = lion(lr = 3e-3, weight_decay = 0.1)", [("*", lion, 3e-3, 0.1, False, {})]),
    "declared": ("optimizer = heavy(lr = 0.5, beta = 0.8)", [("*", heavy, 0.5, 0.01, False, {"beta": 0.8})]),
    "adafactor": ("optimizer = adafactor(lr = 3e-2, weight_decay = 0.1)", [("*", adafactor, 3e-2, 0.1, False, {})]),
    "muon": ("""optimizer = muon(lr = 2e-2)
    group "wte, gain, head, *.b1" adamw(lr = 1e-2, weight_decay = 0, eps = 1e-3)""",
             [("*", muon, 2e-2, 0.1, False, {}),
              (("wte", "gain", "head", "b1"), adamw, 1e-2, 0, False, {"eps": 1e-3})]),
    "muon_plain": ("""optimizer = muon(lr = 2e-2, nesterov = false, momentum = 0.8)
    group "gain, *.b1" lion(lr = 1e-3)""",
                   [("*", muon, 2e-2, 0.1, False, {"nesterov": False, "momentum": 0.8}),
                    (("gain", "b1"), lion, 1e-3, 0, False, {})]),
    "groups": ("""optimizer = adamw(lr = 1e-2, weight_decay = 0.1, eps = 1e-3)
    group "*.b1, gain" (lr = 5e-2, weight_decay = 0.2)
    group "wte" sgd(lr = 0.3, momentum = 0.9)
    group "h.*.w2" heavy(lr = 0.5)""",
               [("*", adamw, 1e-2, 0.1, False, {"eps": 1e-3}), (("b1", "gain"), adamw, 5e-2, 0.2, True, {"eps": 1e-3}),
                (("wte",), sgd, 0.3, 0, False, {"momentum": 0.9}), (("w2",), heavy, 0.5, 0.01, False, {})]),
}


def source(lines):
    example = re.search("shampoo|soap", lines)
    text = (ROOT / f"examples/{example[0]}.mdl").read_text() if example else ""
    declared = re.search(r"^optimizer .*?^}$", text, re.S | re.M)[0] if text else HEAVY if "heavy" in lines else OTHERS if re.search("lamb|adan|two_places|schedule_free", lines) else ""
    return f"{MODEL}{declared}\ntrain {{\n    batch = {BATCH}\n    {lines}\n}}\n"


def close(found, exact, rough):
    """Within eight times what float32 alone makes of it, of the tensor that it moves most."""
    noise = max(np.abs(rough[name] - exact[name]).max() for name in exact)
    worst = max(np.abs(found[name] - exact[name]).max() for name in exact)
    assert worst <= 8 * noise + 1e-7, (worst, noise)
    assert noise < 1e-3  # else nothing has been compared


@pytest.mark.parametrize("case", CASES)
def test_like_the_second_writing(case, tmp_path):
    lines, groups = CASES[case]
    out = compile_model(source(lines), tmp_path, "--verify-passes")
    data = write_text(tmp_path / "text", 1000)
    weights = initial_weights(out, data)
    train(out, "--data", data, "--no-shuffle", "--steps", STEPS, "--save", out / "end.safetensors")
    found = read_safetensors(out / "end.safetensors")
    exact = reference(weights, groups, data, torch.float64)
    rough = reference(weights, groups, data, torch.float32)
    assert max(np.abs(exact[name] - weights[name]).max() for name in exact) > 1e-3
    close(found, exact, rough)


def test_clips_each_element(tmp_path):
    out = compile_model(source("optimizer = sgd(lr = 1)\n    clip_value = 0.002"), tmp_path, "--verify-passes")
    data = write_text(tmp_path / "text", 1000)
    weights = initial_weights(out, data)
    train(out, "--data", data, "--no-shuffle", "--steps", STEPS, "--save", out / "end.safetensors")
    groups = [("*", sgd, 1, 0, False, {})]
    exact, rough = (reference(weights, groups, data, dtype, lambda g: g.clamp(-0.002, 0.002))
                    for dtype in (torch.float64, torch.float32))
    free = reference(weights, groups, data, torch.float64)
    assert any(np.abs(free[name] - exact[name]).max() > 1e-3 for name in exact)  # it clips
    close(read_safetensors(out / "end.safetensors"), exact, rough)


def test_mean_of_weights(tmp_path):
    """ema: kept as state, begins as the weights do, used by evaluation on request; resumes."""
    out = compile_model(source("optimizer = sgd(lr = 0.3)\n    ema = 0.8"), tmp_path, "--verify-passes")
    data = write_text(tmp_path / "text", 1000)
    weights = initial_weights(out, data)
    mean = {name: value.astype(np.float64) for name, value in weights.items()}
    for step in range(1, 7):
        train(out, "--data", data, "--no-shuffle", "--steps", step, "--save", out / f"{step}.safetensors",
              *(["--load", out / f"{step - 1}.safetensors"] if step > 1 else []))
        found = read_safetensors(out / f"{step}.safetensors")
        mean = {name: 0.8 * value + 0.2 * found[name] for name, value in mean.items()}
        for name in mean:
            assert np.abs(found[f"optimizer.ema.{name}"] - mean[name]).max() < 3e-7
    evaluate = ("--data", data, "--eval-data", data, "--no-shuffle", "--load", out / "5.safetensors", "--steps", 6)
    tokens, labels = next(batches(data, 124, SEQ))  # all whole batches
    for ema in (False, True):
        log = train(out, *evaluate, "--save", out / "end.safetensors", *["--ema"] * ema)
        of = mean if ema else {name: found[name] for name in weights}
        loss = float(loss_of({name: torch.tensor(w, dtype=torch.float64) for name, w in of.items()}, tokens, labels))
        assert abs(log[-1]["eval_loss"] - loss) < 2e-6 * loss
        end = read_safetensors(out / "end.safetensors")
        assert all(np.array_equal(end[name], found[name]) for name in found)  # they are back in their places


def test_weights_that_an_optimizer_evaluates_with(tmp_path):
    """Its state with the name ema: --ema evaluates with it."""
    out = compile_model(source(CASES["schedule_free"][0]), tmp_path)
    data = write_text(tmp_path / "text", 1000)
    train(out, "--data", data, "--no-shuffle", "--steps", 5, "--save", out / "5.safetensors")
    log = train(out, "--data", data, "--eval-data", data, "--no-shuffle", "--load", out / "5.safetensors", "--steps", 6, "--ema",
                "--save", out / "6.safetensors")
    found = read_safetensors(out / "6.safetensors")
    mean = {name[len("optimizer.ema."):]: torch.tensor(value, dtype=torch.float64) for name, value in found.items()
            if name.startswith("optimizer.ema.")}
    tokens, labels = next(batches(data, 124, SEQ))
    loss = float(loss_of(mean, tokens, labels))
    own = float(loss_of({name: torch.tensor(found[name], dtype=torch.float64) for name in mean}, tokens, labels))
    assert abs(log[-1]["eval_loss"] - loss) < 2e-6 * loss and abs(own - loss) > 1e-4


def test_names_of_state(tmp_path):
    """State has the optimizer's own names; what is never read is not kept."""
    out = compile_model(source(CASES["groups"][0]), tmp_path)
    data = write_text(tmp_path / "text", 1000)
    train(out, "--data", data, "--steps", 1, "--save", out / "end.safetensors")
    state = {name for name in read_safetensors(out / "end.safetensors") if name.startswith("optimizer.")}
    assert state >= {"optimizer.m.wte", "optimizer.m.h.0.w2", "optimizer.m.head", "optimizer.v.head"}
    assert not state & {"optimizer.v.wte", "optimizer.v.h.0.w2"}


def test_resumes_bit_for_bit(tmp_path):
    out = compile_model(source(CASES["groups"][0]), tmp_path)
    data = write_text(tmp_path / "text", 1000)
    train(out, "--data", data, "--steps", 6, "--save", out / "whole.safetensors")
    train(out, "--data", data, "--steps", 3, "--save", out / "half.safetensors")
    train(out, "--data", data, "--load", out / "half.safetensors", "--steps", 6, "--save", out / "end.safetensors")
    whole, end = (read_safetensors(out / f"{name}.safetensors") for name in ("whole", "end"))
    assert all(np.array_equal(whole[name], end[name]) for name in whole)


def test_no_mean_to_evaluate(tmp_path):
    out = compile_model(source("optimizer = sgd(lr = 1)"), tmp_path)
    data = write_text(tmp_path / "text", 1000)
    run = subprocess.run([out / "trainer", "--data", data, "--steps", "1", "--ema", "--eval-data", data],
                         capture_output=True, text=True)
    assert run.returncode == 1 and "keeps no mean of its weights: train { ema = 0.999 } does" in run.stderr
