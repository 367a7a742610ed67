"""Every function of the language against PyTorch in double precision: its value and every gradient.

All cases are one model.  Case k contributes sum(expression * c_k) to the loss, with c_k a parameter: one step of SGD with
lr = 1 leaves w - gradient, and the gradient of c_k is the value of the expression.  Values and gradients are of order 1 to
100 and float32 rounds at 6e-8 of that and of the weight subtracted: 3e-5 of the largest is a generous bound, far below
any wrong term.
"""

import itertools
import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from common import ROOT, compile_model, initial_weights, read_safetensors, train, write_text

pytestmark = pytest.mark.xdist_group("ops")  # one trainer has all of them
SIZES = dict(b=3, s=5, t=5, e=7, h=4, v=6, g=2, n=3, nine=9)

# name, operands {name: (dims, low, high)}, dims of the value, .mdl, PyTorch
CASES = []


def case(name, operands, dims, mdl, function):
    CASES.append((name, operands, dims, mdl, function))


X = ("b s", -2, 2)
POSITIVE = ("b s", 0.5, 2)
for name in ("exp", "expm1", "tanh", "sigmoid", "sin", "cos", "relu", "abs", "square"):
    case(name, dict(x=X), "b s", f"{name}(x)", getattr(torch, name))
for name in ("log", "sqrt", "rsqrt"):
    case(name, dict(x=POSITIVE), "b s", f"{name}(x)", getattr(torch, name))
case("sign", dict(x=X), "b s", "x * sign(x)", lambda x: x * torch.sign(x))
case("gelu", dict(x=X), "b s", "gelu(x)", F.gelu)
case("gelu_tanh", dict(x=X), "b s", "gelu_tanh(x)", lambda x: F.gelu(x, approximate="tanh") if torch.__version__ > "2"
     else 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
case("softplus", dict(x=("b s", -20, 20)), "b s", "softplus(x)", F.softplus)
case("silu", dict(x=X), "b s", "silu(x)", F.silu)
case("negation", dict(x=X), "b s", "-x", lambda x: -x)
Y = dict(x=X, y=("s", 0.5, 2))
for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("div", "/")):
    case(name, Y, "b s", f"x {sign} y", lambda x, y, sign=sign: eval(f"x {sign} y"))
case("pow", dict(x=POSITIVE, y=("s", 0.5, 2)), "b s", "x ^ y", lambda x, y: x**y)
case("cube", dict(x=X), "b s", "x ^ 3", lambda x: x**3)
case("maximum", Y, "b s", "maximum(x, y)", lambda x, y: torch.maximum(x, y.expand_as(x)))
case("minimum", Y, "b s", "minimum(x, y)", lambda x, y: torch.minimum(x, y.expand_as(x)))
for name, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!=")):
    case(f"where_{name}", Y, "b s", f"where(x {sign} y, x * y, y)",
         lambda x, y, sign=sign: torch.where(eval(f"x {sign} y"), x * y, y.expand_as(x)))
case("stop_gradient", dict(x=X), "b s", "x * stop_gradient(x)", lambda x: x * x.detach())
case("dot", dict(x=("b s e", -1, 1), y=("e h", -1, 1)), "b s h", "dot(x, y, e)", lambda x, y: x @ y)
case("dot_two", dict(x=("b s e", -1, 1), y=("s e h", -1, 1)), "b h", "dot(x, y, s, e)",
     lambda x, y: torch.einsum("bse,seh->bh", x, y))
case("dot_batch", dict(x=("b s e", -1, 1), y=("b e h", -1, 1)), "b s h", "dot(x, y, e)", torch.bmm)
case("dot_inner_batch", dict(x=("s b e", -1, 1), y=("e h b", -1, 1)), "s b h", "dot(x, y, e)",
     lambda x, y: torch.einsum("sbe,ehb->sbh", x, y))
case("stated_order", dict(x=("b s e", -1, 1)), "e b s", None, lambda x: x.permute(2, 0, 1).exp())
case("sum", dict(x=("b s e", -1, 1)), "b e", "sum(square(x), s)", lambda x: (x**2).sum(1))
case("sum_all", dict(x=("b s", -1, 1)), "", "sum(square(x))", lambda x: (x**2).sum())
case("mean", dict(x=("b s e", -1, 1)), "s", "mean(exp(x), b, e)", lambda x: x.exp().mean((0, 2)))
case("max", dict(x=("b s e", -1, 1)), "b s", "max(x, e)", lambda x: x.amax(-1))
case("min", dict(x=("b s e", -1, 1)), "s e", "min(x, b)", lambda x: x.amin(0))
case("softmax", dict(x=("b s e", -3, 3)), "b s e", "softmax(x, s)", lambda x: x.softmax(1))
case("log_softmax", dict(x=("b s e", -3, 3)), "b s e", "log_softmax(x, e)", lambda x: x.log_softmax(-1))
case("logsumexp", dict(x=("b s e", -3, 3)), "b e", "logsumexp(x, s)", lambda x: x.logsumexp(1))
case("layernorm", dict(x=("b s e", -3, 3)), "b s e", "layernorm(x, e)", lambda x: F.layer_norm(x, (7,)))
case("layernorm_outer", dict(x=("b s e", -3, 3)), "b s e", "layernorm(x, s, eps = 0.1)",
     lambda x: F.layer_norm(x.transpose(1, 2), (5,), eps=0.1).transpose(1, 2))
case("rmsnorm", dict(x=("b s e", -3, 3)), "b s e", "rmsnorm(x, e)",
     lambda x: x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5))
LABELS = torch.tensor([0, 2, 4, 0, 2])  # 2 i mod 6
case("cross_entropy", dict(x=("b s v", -3, 3)), "b s", "cross_entropy(x, labels, v)",
     lambda x: F.cross_entropy(x.transpose(1, 2), LABELS.expand(3, 5), reduction="none"))
case("cross_entropy_ignore", dict(x=("b s v", -3, 3)), "", "mean(cross_entropy(x, labels, v, ignore = 2))",
     lambda x: F.cross_entropy(x.transpose(1, 2), LABELS.expand(3, 5), ignore_index=2))


def attend(q, k, v, causal=False, window=0, scale=None, segment=None, softcap=0, bias=0, mask=None, sinks=None):
    """q [b, s, g, n, h]; k, v [b, s, g, h]; bias and mask as [b, g, n, s, t], sinks as [g, n]."""
    scores = torch.einsum("bsgnh,btgh->bgnst", q, k) * (scale or 1 / math.sqrt(q.shape[-1]))
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    scores = scores + bias
    i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])[None]
    seen = (i >= 0) & (j >= 0)
    if causal:
        seen = seen & (j <= i)
    if window:
        seen = seen & ((i - j < window) & (j - i < window))
    if segment:
        seen = seen & (LABELS[:, None] == LABELS[None])
    seen = (seen if mask is None else seen & mask).expand(scores.shape)
    sinks = torch.full(scores.shape[1:3], -1e30).double() if sinks is None else sinks  # one more key, of value 0
    sinks = sinks[None, :, :, None, None].expand(*scores.shape[:-1], 1)
    weights = torch.cat([scores.masked_fill(~seen, -1e30), sinks], -1).softmax(-1)[..., :-1] * seen
    return torch.einsum("bgnst,btgh->bsgnh", weights, v)


QKV = dict(q=("b s g n h", -2, 2), k=("b s g h", -2, 2), val=("b s g h", -2, 2))
for name, options in dict(full={}, causal=dict(causal=True), window=dict(window=2), both=dict(causal=True, window=3),
                          scaled=dict(causal=True, scale=0.3), capped=dict(softcap=0.8, window=3), segment=dict(segment="index"),
                          causal_segment=dict(causal=True, segment="index")).items():
    text = "".join(f", {key} = {str(value).lower()}" for key, value in options.items())
    case(f"attend_{name}", QKV, "b s g n h", f"attend(q, k, val, s, h{text})",
         lambda q, k, val, options=options: attend(q, k, val, **options))
CROSS = dict(q=("b s g n h", -2, 2), k=("b e g h", -2, 2), val=("b e g h", -2, 2))
for name, options in dict(full={}, causal=dict(causal=True), window=dict(window=6), capped=dict(softcap=0.8)).items():
    text = "".join(f", {key} = {str(value).lower()}" for key, value in options.items())
    case(f"attend_cross_{name}", CROSS, "b s g n h", f"attend(q, k, val, s -> e, h{text})",
         lambda q, k, val, options=options: attend(q, k, val, **options))
BIASES = dict(whole=("b s g n t", lambda x: x.permute(0, 2, 3, 1, 4)), heads=("g n s t", lambda x: x),
              group=("g t s", lambda x: x.transpose(1, 2)[:, None]), query_heads=("n t", lambda x: x[:, None]),
              places=("s t", lambda x: x), keys=("b t", lambda x: x[:, None, None, None]))
for name, (dims, spread) in BIASES.items():
    case(f"attend_bias_{name}", dict(**QKV, x=(dims, -1, 1)), "b s g n h",
         "attend(q, k, val, s -> t, h, causal = true, bias = x)",
         lambda q, k, val, x, spread=spread: attend(q, k, val, causal=True, bias=spread(x)))
case("attend_bias_cross", dict(**CROSS, x=("n g s e", -1, 1)), "b s g n h",
     "attend(q, k, val, s -> e, h, bias = 2 * x, softcap = 0.8)",
     lambda q, k, val, x: attend(q, k, val, softcap=0.8, bias=2 * x.transpose(0, 1)))
case("attend_bias_segment", dict(**QKV, x=("g n s t", -1, 1)), "b s g n h",
     "attend(q, k, val, s -> t, h, bias = x, segment = index)",
     lambda q, k, val, x: attend(q, k, val, segment=True, bias=x))
case("attend_relative", dict(**QKV, x=("n nine", -1, 1)), "b s g n h",
     "attend(q, k, val, s -> t, h, bias = x[nine = iota(s) - iota(t) + 4])",
     lambda q, k, val, x: attend(q, k, val, bias=x[:, torch.arange(5)[:, None] - torch.arange(5) + 4]))
for name, options in dict(sinks={}, sinks_causal=dict(causal=True, window=2), sinks_capped=dict(softcap=0.8)).items():
    text = "".join(f", {key} = {str(value).lower()}" for key, value in options.items())
    case(f"attend_{name}", dict(**QKV, x=("n g", -1, 1)), "b s g n h", f"attend(q, k, val, s, h, sinks = x{text})",
         lambda q, k, val, x, options=options: attend(q, k, val, sinks=x.T, **options))
I, J = torch.arange(5)[:, None], torch.arange(5)[None]
for name, mask, seen in (("plane", "iota(s) * 2 > iota(t) + 2", 2 * I > J + 2), ("keys", "iota(t) != 2", J != 2),
                         ("rows", "iota(s) != 2", I != 2), ("nothing", "iota(s) < 0", I < 0)):
    case(f"attend_mask_{name}", QKV, "b s g n h", f"attend(q, k, val, s -> t, h, mask = {mask})",
         lambda q, k, val, seen=seen: attend(q, k, val, mask=seen))
case("attend_mask_cross", dict(**CROSS, x=("n", -1, 1)), "b s g n h",
     "attend(q, k, val, s -> e, h, causal = true, mask = iota(e) != iota(s), sinks = x)",
     lambda q, k, val, x: attend(q, k, val, causal=True, mask=torch.arange(7) != I, sinks=x.expand(2, 3)))
case("attend_mask_bias", dict(**QKV, x=("g s t", -1, 1)), "b s g n h",
     "attend(q, k, val, s -> t, h, mask = iota(s) * 2 > iota(t) + 2, bias = x)",
     lambda q, k, val, x: attend(q, k, val, mask=2 * I > J + 2, bias=x[:, None]))


def rope(x, interleaved, base=10000.0, position=None, stretch=1.0):
    half = x.shape[-1] // 2
    position = torch.arange(x.shape[1]) if position is None else position
    angle = (position.double() / stretch)[:, None] * base ** (-torch.arange(half).double() / half)
    c, s = angle.cos()[None, :, None], angle.sin()[None, :, None]
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    pair = (a * c - b * s, a * s + b * c)
    return torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)


case("rope", dict(x=("b s g h", -1, 1)), "b s g h", "rope(x, s, h)", lambda x: rope(x, False))
case("rope_interleaved", dict(x=("b s g h", -1, 1)), "b s g h", "rope(x, s, h, base = 100, style = interleaved)",
     lambda x: rope(x, True, 100.0))
case("rope_stretch", dict(x=("b s g h", -1, 1)), "b s g h", "rope(x, s, h, stretch = 2.5)", lambda x: rope(x, False, stretch=2.5))
case("rope_position", dict(x=("b s g h", -1, 1)), "b s g h", "rope(x, s, h, position = index * 3)",
     lambda x: rope(x, False, position=LABELS * 3))
case("add_rows", dict(x=("b s e", -1, 1)), "b v e", "add_rows(x, index, s -> v)",
     lambda x: torch.einsum("bse,sv->bve", x, F.one_hot(torch.arange(5) * 2 % 6, 6).to(x.dtype)))
case("argsort", dict(x=("b s e", -1, 1), y=("b s", -1, 1)), "b s e", "x[s = argsort(y, s)] * cast(argsort(y, s, reverse = true), f32)",
     lambda x, y: x.gather(1, y.argsort(1)[..., None].expand_as(x)) * y.argsort(1, descending=True)[..., None] + 0 * y[..., None])


def solved(a, b):
    return torch.linalg.solve_triangular(a.tril(-1) + torch.eye(a.shape[-1], dtype=a.dtype), b, upper=False)


case("solve", dict(k=("b s t", -1, 1), x=("b s e", -1, 1)), "b s e", "solve(k, x, s -> t)", solved)
case("solve_shared", dict(k=("t s", -1, 1), x=("b t e", -1, 1)), "b t e", "solve(k, x, t -> s)", solved)
case("cumsum", dict(x=("b s e", -1, 1)), "b s e", "cumsum(x, s)", lambda x: x.cumsum(1))
case("cumsum_exclusive", dict(x=("b s e", -1, 1)), "b s e", "cumsum(x, e, exclusive = true)", lambda x: x.cumsum(-1) - x)
case("cumsum_reverse", dict(x=("b s e", -1, 1)), "b s e", "cumsum(x, s, reverse = true)",
     lambda x: x.flip(1).cumsum(1).flip(1))
case("cummax", dict(x=("b s", -1, 1)), "b s", "x * cast(cummax(index, s), f32)", lambda x: x * LABELS.cummax(0).values)
case("gather", dict(x=("v e", -1, 1)), "s e", "x[v = index]", lambda x: x[LABELS])
case("slice", dict(x=("b s e", -1, 1)), "b s", "x[e = 3] * x[e = 0]", lambda x: x[..., 3] * x[..., 0])
case("rename", dict(x=("b s", -1, 1)), "s t", "dot(x, rename(x, s -> t), b)", lambda x: x.T @ x)
case("concat", dict(x=("b e", -1, 1), y=("b two2", -1, 1)), "b three", None, lambda x, y: torch.cat([x, y], -1).exp())
case("part", dict(x=("b e", -1, 1)), "b n", "x[e = 2 : 5 -> n] * x[e = 0 : n -> n]", lambda x: x[:, 2:5] * x[:, :3])
case("split", dict(x=("b v e", -1, 1), y=("g n", -1, 1)), "b g n e", "split(x, v -> (g, n)) * y",
     lambda x, y: x.reshape(3, 2, 3, 7) * y[..., None])
case("split_three", dict(x=("twelve b", -1, 1)), "g n two b", "split(x, twelve -> (g, n, two)) ^ 3",
     lambda x: x.reshape(2, 3, 2, 3)**3)
case("merge", dict(x=("b g n", -1, 1), y=("v", -1, 1)), "b v", "merge(exp(x), (g, n) -> v) * y", lambda x, y: x.exp().flatten(1) * y)
case("merge_apart", dict(x=("n b g", -1, 1)), "b v", "square(merge(x, (g, n) -> v))", lambda x: x.permute(1, 2, 0).flatten(1)**2)
case("merge_padded", dict(x=("b g n_wide", -1, 1)), "b v_wide", "square(merge(x, (g, n_wide) -> v_wide))", lambda x: x.flatten(1)**2)
case("split_padded", dict(x=("b v_wide", -1, 1)), "b g n_wide", "square(split(x, v_wide -> (g, n_wide)))",
     lambda x: x.reshape(3, 2, 3)**2)
case("one_hot", dict(x=("b s v", -1, 1)), "b s v", "x * one_hot(index, v)", lambda x: x * F.one_hot(LABELS, 6))


def conv(x, w, over, **keywords):
    """over: 1 or 2 dims of x behind the first, which all have windows; then channels, in front of those of w."""
    if over == 1:
        return F.conv1d(x.permute(0, 2, 1), w.permute(2, 1, 0), **keywords).permute(0, 2, 1)
    return F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), **keywords).permute(0, 2, 3, 1)


case("conv", dict(x=("b e h", -1, 1), y=("n h v", -1, 1)), "b s v", "conv(x, y, e -> (s, n), h)", lambda x, y: conv(x, y, 1))
case("conv_strided", dict(x=("b e g", -1, 1), y=("n g v", -1, 1)), "b h v", "conv(x, y, e -> (h, n), g, stride = 2, padding = 1)",
     lambda x, y: conv(x, y, 1, stride=2, padding=1))
case("conv_dilated", dict(x=("b nine g", -1, 1), y=("n g v", -1, 1)), "b s v", "conv(x, y, nine -> (s, n), g, dilation = 2)",
     lambda x, y: conv(x, y, 1, dilation=2))
case("conv_patches", dict(x=("b v e", -1, 1), y=("n e h", -1, 1)), "b g h", "conv(x, y, v -> (g, n), e, stride = n)",
     lambda x, y: conv(x, y, 1, stride=3))
case("conv_depthwise", dict(x=("b s g", -1, 1), y=("n g", -1, 1)), "b s g", "conv(x, y, s -> (s, n), padding = 1)",
     lambda x, y: F.conv1d(x.permute(0, 2, 1), y.T[:, None], padding=1, groups=2).permute(0, 2, 1))
case("conv_causal", dict(x=("b s g", -1, 1), y=("n g v", -1, 1)), "b s v", "conv(x, y, s -> (s, n), g, dilation = 2, causal = true)",
     lambda x, y: conv(F.pad(x, (0, 0, 4, 0)), y, 1, dilation=2))
case("conv_causal_strided", dict(x=("b e g", -1, 1), y=("n g v", -1, 1)), "b h v",
     "conv(x, y, e -> (h, n), g, stride = 2, causal = true)", lambda x, y: conv(F.pad(x, (0, 0, 2, 0)), y, 1, stride=2))
case("shift", dict(x=("b e g", -1, 1)), "b e g", "shift(x, e, 2)", lambda x: F.pad(x, (0, 0, 2, -2)))
case("shift_back", dict(x=("b e g", -1, 1)), "b e g", "shift(x, e, -3)", lambda x: F.pad(x, (0, 0, -3, 3)))
case("broadcast", dict(x=("b s", -1, 1), y=("v g", -1, 1)), "b s v g", "broadcast(x, v, g) * y", lambda x, y: x[:, :, None, None] * y)
case("broadcast_difference", dict(x=("b s", -1, 1)), "b s t", "broadcast(x, t) - 2 * rename(x, s -> t)", lambda x: x[:, :, None] - 2 * x[:, None])
case("conv_plane", dict(x=("b e s v", -1, 1), y=("n g v nine", -1, 1)), "b t h nine", "conv(x, y, e -> (t, n), s -> (h, g), v)",
     lambda x, y: conv(x, y, 2))
case("conv_plane_strided", dict(x=("b nine e g", -1, 1), y=("n two g v", -1, 1)), "b s h v",
     "conv(x, y, nine -> (s, n), e -> (h, two), g, stride = 2, padding = 1)", lambda x, y: conv(x, y, 2, stride=2, padding=1))
case("iota", dict(x=("b s", -1, 1)), "b s", "x * cast(iota(s) * 2 - 3, f32)", lambda x: x * (torch.arange(5) * 2 - 3))
case("dropout", dict(x=("b s e", 1, 2)), "b s e", "dropout(x, 0) + x", lambda x: 2 * x)


def routed(x, y, within, capacity):
    """The squares of the tokens x that find a place with their two experts, those with the largest y."""
    slots = math.ceil(capacity * x.shape[1] * 2 * (1 if within else x.shape[0]) / y.shape[-1])
    taken, rows = {}, []
    for b, s in itertools.product(range(x.shape[0]), range(x.shape[1])):
        placed = 0
        for e in y[b, s].topk(2).indices.tolist():
            queue = (b, e) if within else e
            placed += taken.get(queue, 0) < slots
            taken[queue] = taken.get(queue, 0) + 1
        rows.append(placed * x[b, s] ** 2)
    return torch.stack(rows).view(x.shape) + 0 * y.sum()


TOKENS = dict(x=("b s e", -1, 1), y=("b s v", -1, 1))
for name, options, arguments in (("dispatch", "capacity = 1", (False, 1)), ("dispatch_all", "capacity = none", (False, 9)),
                                 ("dispatch_within", "capacity = 0.9, within = b", (True, 0.9))):
    case(name, TOKENS, "b s e", f"sum(combine(square(dispatch(x, top_k(y, v, g), v, {name}_slots, {options})), "
         f"top_k(y, v, g), v, {name}_slots), g)", lambda x, y, arguments=arguments: routed(x, y, *arguments))
case("top_k", dict(x=("b s v", -1, 1)), "b s g", "x[v = top_k(x, v, g)]", lambda x: x.topk(2).values)
case("balance", dict(y=("b s v", -1, 1)), "", "balance(softmax(y, v), top_k(y, v, g), v)", lambda y: 6 * (
    F.one_hot(y.topk(2).indices, 6).sum(2).double().mean((0, 1)) * y.softmax(-1).mean((0, 1))).sum())
case("balance_rows", dict(y=("b s v", -1, 1)), "b", "balance(softmax(y, v), top_k(y, v, g), v, s)", lambda y: 6 * (
    F.one_hot(y.topk(2).indices, 6).sum(2).double().mean(1) * y.softmax(-1).mean(1)).sum(-1))
case("pick", dict(x=("b s e", -1, 1)), "b s", "x[e = iota(s) + 0 * iota(b)]", lambda x: x.diagonal(dim1=1, dim2=2))
SIZES.update(two2=4, three=11, two=2, twelve=12, n_wide=3, v_wide=6)
PADDED = dict(n_wide=4, v_wide=8)


def model_text():
    lines = [f"dim {name} = {size}" + (f" padded {PADDED[name]}" if name in PADDED else "")
             for name, size in SIZES.items() if name != "three"]
    lines += ["dim dispatch_slots", "dim dispatch_all_slots", "dim dispatch_within_slots"]
    lines += ["dim three = 11", "dim batch", "dim seq = 4", "dim bytes = 256"]
    body, terms = ["index = iota(s) * 2 - iota(s) * 2 / v * v", "labels = iota(b) * 0 + index"], []
    for number, (name, operands, dims, mdl, _) in enumerate(CASES):
        for key, (its, low, high) in operands.items():
            body.append(f"param p{number}_{key} : [{', '.join(its.split())}] = uniform({low}, {high})")
        body.append(f"param c{number} : [{', '.join(dims.split())}] = uniform(-1, 1)")
        if name == "concat":
            body.append(f"y{number} = exp(concat(three, p{number}_x, p{number}_y))")
        elif name == "stated_order":
            body.append(f"y{number} : [e, b, s] = exp(p{number}_x)")
        else:
            expression = re.sub(r"\b(x|y|q|k|val)\b", lambda m: f"p{number}_{m[1]}", mdl)
            body.append(f"y{number} = {expression}")
        terms.append(f"sum(y{number} * c{number})" if dims else f"y{number} * c{number}")
    body += ["param wte : [bytes] = uniform(-1, 1)", "fed = wte[bytes = tokens]"]
    loss = " +\n        ".join(terms + ["sum(fed)"])
    return "\n".join(lines + ["model ops {", "    input tokens : i32[batch, seq]"] + [f"    {line}" for line in body] +
                     [f"    loss ({loss})", "}", "train {",
                      "    optimizer = sgd(lr = 1, momentum = 0, weight_decay = 0)", "    schedule = constant(warmup = 0)",
                      "    batch = 1", "    microbatch = 1", "}", ""])


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    out = compile_model(model_text(), tmp_path_factory.mktemp("ops"), cflags="-O1")
    text = write_text(out / "text", 100)
    before = initial_weights(out, text)
    train(out, "--data", text, "--steps", 1, "--save", out / "after.safetensors")
    return before, read_safetensors(out / "after.safetensors")


@pytest.mark.parametrize("number", range(len(CASES)), ids=[entry[0] for entry in CASES])
def test_value_and_gradients(number, step):
    before, after = step
    name, operands, dims, _, function = CASES[number]
    tensors = {key: torch.tensor(before[f"p{number}_{key}"], dtype=torch.float64, requires_grad=True) for key in operands}
    weight = torch.tensor(before[f"c{number}"], dtype=torch.float64)
    value = function(*tensors.values())
    assert list(value.shape) == [SIZES[dim] for dim in dims.split()]
    (value * weight).sum().backward()
    expected = {f"c{number}": value.detach(), **{f"p{number}_{key}": tensor.grad for key, tensor in tensors.items()}}
    for key, gradient in expected.items():
        got = before[key].astype(np.float64) - after[key]
        bound = 3e-5 * (1 + float(gradient.abs().max()))
        assert np.abs(got - gradient.numpy()).max() < bound, key


def test_every_function_has_a_case():
    table = (ROOT / "frontend" / "builtins.def").read_text()
    names = re.findall(r"^BUILTIN\((\w+),", table, re.M)
    text = model_text()
    assert len(names) > 30
    # Of optimizers: test_optimizers.py; tests of its own, here; of evaluation: tests/random; of a whole batch: tests/models, tests/random.
    own = ["orthogonal", "random", "training", "others"]
    assert not [name for name in names if f"{name}(" not in text and name not in own]


def test_dropout_drops_its_share(tmp_path):
    """100 x 97 elements at rate 0.3: the share kept is within four standard deviations, the mean stays."""
    source = """
dim n = 100
dim m = 97
dim batch
dim seq = 4
dim bytes = 256
model drop {
    input tokens : i32[batch, seq]
    param wte : [bytes] = zeros
    param x : [n, m] = ones
    loss sum(dropout(x, 0.3)) + sum(wte[bytes = tokens])
}
train {
    optimizer = sgd(lr = 1, momentum = 0, weight_decay = 0)
    batch = 1
    microbatch = 1
}
"""
    out = compile_model(source, tmp_path)
    text = write_text(out / "text", 100)
    train(out, "--data", text, "--steps", 1, "--save", out / "end.safetensors")
    gradient = 1 - read_safetensors(out / "end.safetensors")["x"]
    kept = gradient > 0.5
    assert np.allclose(gradient[kept], 1 / 0.7, rtol=1e-5) and np.allclose(gradient[~kept], 0, atol=1e-6)
    assert abs(kept.mean() - 0.7) < 4 * math.sqrt(0.21 / kept.size)
    assert kept.any(0).all() and kept.any(1).all()


RANDOM = """
dim n = 50
dim m = 83
dim batch
dim seq = 4
dim bytes = 256
model noise {
    input tokens : i32[batch, seq]
    param wte : [bytes] = zeros
    param x : [n, m] = zeros
    loss sum(random(n, m) * x) + sum(wte[bytes = tokens]) + mean(random(batch, seq))
}
train {
    optimizer = sgd(lr = 1, momentum = 0, weight_decay = 0)
    batch = 1
    microbatch = 1
}
"""


def test_random_is_uniform(tmp_path):
    """Of 4150 numbers: mean and mean square within four standard deviations, from 0 to below 1, other ones in another step."""
    out = compile_model(RANDOM, tmp_path)
    text = write_text(out / "text", 100)
    train(out, "--data", text, "--steps", 1, "--save", out / "one.safetensors")
    train(out, "--data", text, "--steps", 2, "--save", out / "two.safetensors")
    drawn = -read_safetensors(out / "one.safetensors")["x"].astype(np.float64)
    later = -read_safetensors(out / "two.safetensors")["x"] - drawn
    for numbers in (drawn, later):
        assert numbers.min() >= -1e-6 and numbers.max() < 1 + 1e-6
        assert abs(numbers.mean() - 1 / 2) < 4 * math.sqrt(1 / 12 / numbers.size)
        assert abs((numbers**2).mean() - 1 / 3) < 4 * math.sqrt(4 / 45 / numbers.size)
    assert abs(np.corrcoef(drawn.ravel(), later.ravel())[0, 1]) < 4 / math.sqrt(drawn.size)
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 4 / math.sqrt(drawn.size)
