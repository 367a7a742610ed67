"""The models of this folder in PyTorch, from its own functions: (weights, inputs ...) -> the loss."""
import math

import torch
import torch.nn.functional as F

from systems import egnn, evoformer, kalman, nerf  # noqa: F401


def norm(x, w, name, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.gain"], w[f"{name}.bias"], eps)


def heads_of(x, weight):
    return torch.einsum("...se,ehd->...hsd", x, weight)


def attention(x, w, name, causal=False, seen=None, mask=None):
    seen = x if seen is None else seen
    q, k, v = (heads_of(y, w[f"{name}.w{n}"]) for n, y in (("q", x), ("k", seen), ("v", seen)))
    q, v = (y + w[f"{name}.b{n}"].unsqueeze(-2) if f"{name}.b{n}" in w else y for n, y in (("q", q), ("v", v)))
    score = q @ k.transpose(-1, -2) / q.shape[-1]**0.5
    if causal:
        score = score + torch.full(score.shape[-2:], -math.inf, dtype=score.dtype).triu(1)
    if mask is not None:  # of keys
        score = score.masked_fill(~mask[:, None, None], -math.inf)
    y = score.softmax(-1).nan_to_num(0) @ v
    return torch.einsum("...hsd,hde->...se", y, w[f"{name}.wo"]) + w.get(f"{name}.bo", 0)


def mlp(x, w, name, gelu="none"):
    up = x @ w[f"{name}.w_up"] + w.get(f"{name}.b_up", 0)
    return F.gelu(up, approximate=gelu) @ w[f"{name}.w_down"] + w.get(f"{name}.b_down", 0)


def conv(x, weight, **options):
    """Of [..., row, col, channel], with a kernel of [row, col, in, out], or [row, col, channel] for each channel."""
    depthwise = weight.dim() == 3
    kernel = weight.permute(2, 0, 1).unsqueeze(1) if depthwise else weight.permute(3, 2, 0, 1)
    groups = weight.shape[2] if depthwise else 1
    return F.conv2d(x.movedim(-1, 1), kernel, groups=groups, **options).movedim(1, -1)


def convnext(w, image, label):
    x = conv(image, w["w_patch"], stride=4) + w["b_patch"]
    x = norm(x, w, "norm_patch", 1e-6)
    for stage, layers in ((1, 3), (2, 3), (3, 9)):
        for i in range(layers):
            own = f"stage_{stage}.h.{i}"
            y = norm(conv(x, w[f"{own}.w"], padding=3) + w[f"{own}.b"], w, f"{own}.norm", 1e-6)
            x = x + w[f"{own}.gain"] * mlp(y, w, own)
        if stage < 3:
            own = f"join_{stage}"
            x = conv(norm(x, w, f"{own}.norm", 1e-6), w[f"{own}.w"], stride=2) + w[f"{own}.b"]
    return F.cross_entropy(norm(x.mean((1, 2)), w, "norm_f", 1e-6) @ w["w_class"] + w["b_class"], label)


def mixer(w, image, label):
    x = image @ w["w_patch"] + w["b_patch"]
    for i in range(2):
        y = norm(x, w, f"h.{i}.ln_1", 1e-6).transpose(1, 2)
        x = x + mlp(y, w, f"h.{i}.patches").transpose(1, 2)
        x = x + mlp(norm(x, w, f"h.{i}.ln_2", 1e-6), w, f"h.{i}.channels")
    return F.cross_entropy(norm(x, w, "norm_f", 1e-6).mean(1) @ w["w_class"] + w["b_class"], label)


def unet(w, image, label):
    def convs(x, name):
        for n in (1, 2):
            x = F.relu(conv(x, w[f"{name}.w_{n}"], padding=1) + w[f"{name}.b_{n}"])
        return x

    def pooled(x):
        return F.max_pool2d(x.movedim(-1, 1), 2).movedim(1, -1)

    def enlarged(x, name):
        kernel = w[f"{name}.w"].permute(0, 3, 1, 2)
        return F.conv_transpose2d(x.movedim(-1, 1), kernel, w[f"{name}.b"], stride=2).movedim(1, -1)

    a = convs(image, "down_0")
    b = convs(pooled(a), "down_1")
    c = convs(pooled(b), "down_2")
    b = convs(torch.cat([b, enlarged(c, "up_1")], -1), "join_1")
    a = convs(torch.cat([a, enlarged(b, "up_0")], -1), "join_0")
    return F.cross_entropy((a @ w["w_class"] + w["b_class"]).flatten(0, 2), label.flatten())


def clip(w, image, text):
    def tower(x, name, causal):
        for i in range(2):
            x = x + attention(norm(x, w, f"{name}.ln_1.{i}"), w, f"{name}.attn.{i}", causal)
            x = x + mlp(norm(x, w, f"{name}.ln_2.{i}"), w, f"{name}.mlp.{i}")
        return norm(x, w, f"{name}.norm")

    v = tower(image @ w["w_patch"] + w["patches"], "image_tower", False).mean(-2)
    t = tower(w["words"][text] + w["places"], "text_tower", True)[:, :, -1]
    v, t = (F.normalize(x @ w[f"{name}_out.w"], dim=-1) for name, x in (("image", v), ("text", t)))
    score = w["temperature"].exp() * v @ t.transpose(1, 2)
    own = torch.arange(score.shape[1]).expand(score.shape[:2])
    return 0.5 * (F.cross_entropy(score.flatten(0, 1), own.flatten()) +
                  F.cross_entropy(score.transpose(1, 2).flatten(0, 1), own.flatten()))


def language(w, name, tokens, layers):
    """Logits."""
    x = w[f"{name}.wte"][tokens] + w[f"{name}.wpe"]
    for i in range(layers):
        x = x + attention(norm(x, w, f"{name}.ln_1.{i}"), w, f"{name}.attn.{i}", True)
        x = x + mlp(norm(x, w, f"{name}.ln_2.{i}"), w, f"{name}.mlp.{i}", "tanh")
    return norm(x, w, f"{name}.norm_f") @ w[f"{name}.wte"].T


def dpo(w, tokens, labels, answered):
    def likelihood(name):
        each = language(w, name, tokens, 2).log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        return (each * answered).sum(-1)

    gain = likelihood("policy") - likelihood("reference")
    return -F.logsigmoid(0.1 * (gain[:, 0] - gain[:, 1])).mean()


def looped(w, tokens, labels):
    def layer(x, name):
        x = x + attention(norm(x, w, f"{name}.ln_1"), w, f"{name}.attn", True)
        return x + mlp(norm(x, w, f"{name}.ln_2"), w, f"{name}.mlp")

    seen = layer(w["wte"][tokens] + w["wpe"], "first")
    x = 0.02 * seen
    for _ in range(3):
        x = x + seen
        for i in range(2):
            x = layer(x, f"core.h.{i}")
        x = norm(x, w, "core.norm_f")
    return F.cross_entropy((layer(x, "last") @ w["wte"].T).flatten(0, 1), labels.flatten())


def qkclip(w, tokens, labels, top=None):
    """`top`, if given, gets the largest logit of each head."""
    def rms(x):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    x = w["wte"][tokens]
    for i in range(2):
        y = rms(x)
        if top is not None:
            logits = heads_of(y, w[f"attn.{i}.wq"]) @ heads_of(y, w[f"attn.{i}.wk"]).transpose(-1, -2) / w[f"attn.{i}.wq"].shape[-1]**0.5
            hidden = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
            top[f"attn.{i}"] = logits.masked_fill(hidden, -math.inf).amax((0, 2, 3))
        x = x + attention(y, w, f"attn.{i}", True)
        x = x + mlp(rms(x), w, f"mlp.{i}")
    return F.cross_entropy((rms(x) @ w["wte"].T).flatten(0, 1), labels.flatten())


def after_qkclip(before, w, tokens, labels):
    top = {}
    qkclip(before, tokens, labels, top)
    for name, most in top.items():
        w[f"{name}.top"].copy_(most)
        for which in ("wq", "wk"):
            w[f"{name}.{which}"].mul_((0.1 / most.clamp(min=1e-9)).clamp(max=1).sqrt().unsqueeze(-1))


def jepa(w, image, shown):
    def stack(x, name, seen):
        for i in range(2):
            x = x + attention(norm(x, w, f"{name}.ln_1.{i}"), w, f"{name}.attn.{i}", mask=seen)
            x = x + mlp(norm(x, w, f"{name}.ln_2.{i}"), w, f"{name}.mlp.{i}")
        return norm(x, w, f"{name}.norm_f")

    def encoder(name, seen):
        return stack(image @ w[f"{name}.w"] + w[f"{name}.places"], f"{name}.stack", seen)

    every = torch.ones_like(shown)
    given = torch.where(shown.unsqueeze(-1), encoder("online", shown), w["hidden"]) + w["places"]
    want = F.layer_norm(encoder("target", every), image.shape[:0] + (w["hidden"].shape[0],))
    apart = (stack(given, "predictor", every) - want).square().mean(-1)
    return apart[~shown].sum() / (~shown).sum()


def after_jepa(before, w, *inputs):
    for name in w:
        if name.startswith("target."):
            w[name].lerp_(w["online." + name[len("target."):]], 1 - 0.9)


def simclr(w, view_1, view_2):
    z = torch.cat([F.relu(view @ w["see.w_1"] + w["see.b_1"]) @ w["see.w_2"] for view in (view_1, view_2)])
    z = F.normalize(z, dim=-1)
    score = (z @ z.T / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool), -math.inf)
    return F.cross_entropy(score, torch.arange(len(z)).roll(len(view_1)))


def deltanet(w, tokens, labels):
    """The delta rule as it is published, place by place."""
    def norm(x, name):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w[f"{name}.gain"]

    def near(x, weight, taps):
        y = torch.einsum("bse,ehd->bshd", x, weight)
        ahead = F.pad(y, (0, 0, 0, 0, len(taps) - 1, 0))
        return F.silu(sum(ahead[:, j:j + y.shape[1]] * taps[j] for j in range(len(taps))))

    def unit(x):
        return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()

    def delta(x, name):
        q, k, v = (near(x, w[f"{name}.w{n}"], w[f"{name}.taps_{n}.w"]) for n in "qkv")
        q, k = unit(q) / q.shape[-1]**0.5, unit(k)
        beta = (x @ w[f"{name}.wb"]).sigmoid()
        keep = (-w[f"{name}.log_a"].exp() * F.softplus(x @ w[f"{name}.wa"] + w[f"{name}.bias"])).exp()
        memory, found = torch.zeros(*k[:, 0].shape, v.shape[-1], dtype=x.dtype), []
        for t in range(x.shape[1]):
            memory = memory * keep[:, t, :, None, None]
            wrong = v[:, t] - torch.einsum("bhd,bhdo->bho", k[:, t], memory)
            memory = memory + torch.einsum("bhd,bho->bhdo", k[:, t], beta[:, t, :, None] * wrong)
            found.append(torch.einsum("bhd,bhdo->bho", q[:, t], memory))
        y = norm(torch.stack(found, 1), name) * F.silu(torch.einsum("bse,ehd->bshd", x, w[f"{name}.wz"]))
        return torch.einsum("bshd,hde->bse", y, w[f"{name}.wo"])

    x = w["wte"][tokens]
    for i in range(2):
        x = x + delta(norm(x, f"ln_1.{i}"), f"delta.{i}")
        y = norm(x, f"ln_2.{i}")
        x = x + (F.silu(y @ w[f"mlp.{i}.w_gate"]) * (y @ w[f"mlp.{i}.w_up"])) @ w[f"mlp.{i}.w_down"]
    return F.cross_entropy((norm(x, "norm_f") @ w["wte"].T).flatten(0, 1), labels.flatten())


def gan(w, image, noise):
    def judge(x, w=w):
        return F.gelu(x @ w["judge.w_1"] + w["judge.b_1"]) @ w["judge.w_2"] + w["judge.b_2"]

    made = torch.tanh(F.relu(noise @ w["maker.w_1"] + w["maker.b_1"]) @ w["maker.w_2"] + w["maker.b_2"])
    fixed = {name: value.detach() for name, value in w.items()}
    told = F.softplus(-judge(image)) + F.softplus(judge(made.detach()))
    return (told + F.softplus(-judge(made, fixed))).mean()


def distill(w, tokens, labels):
    wanted = F.log_softmax(language(w, "teacher", tokens, 12) / 2, -1).flatten(0, 1)
    logits = language(w, "student", tokens, 6).flatten(0, 1)
    apart = F.kl_div(F.log_softmax(logits / 2, -1), wanted, log_target=True, reduction="batchmean")
    return 0.5 * F.cross_entropy(logits, labels.flatten()) + 0.5 * 4 * apart


def towers(w, user, item):
    def tower(x, name):
        return F.relu(x @ w[f"{name}.w_1"] + w[f"{name}.b_1"]) @ w[f"{name}.w_2"]

    score = (tower(w["items"][item], "of_item") @ tower(w["users"][user], "of_user").unsqueeze(-1)).squeeze(-1)
    return F.cross_entropy(score, torch.zeros(len(score), dtype=torch.long))


def dlrm(w, numbers, properties, clicked):
    def dense(x, name):
        return F.relu(x @ w[f"{name}.w"] + w[f"{name}.c"])

    x = dense(dense(numbers, "bottom_1"), "bottom_2")
    rows = [table[properties[:, i]] for i, table in enumerate(w["tables"])]
    all_ = torch.stack([x, *rows], 1)
    below = torch.tril_indices(all_.shape[1], all_.shape[1], -1)
    pairs = (all_ @ all_.transpose(1, 2))[:, below[0], below[1]]
    y = F.relu(pairs @ w["w_pair"][below[0], below[1]] + x @ w["top_1.w"] + w["top_1.c"])
    z = dense(y, "top_2") @ w["w_out"] + w["b_out"]
    return F.binary_cross_entropy_with_logits(z, clicked.to(z.dtype))


def whisper(w, sound, tokens, labels):
    def conv1d(x, weight, bias, **options):
        return F.gelu(F.conv1d(x.transpose(1, 2), weight.permute(2, 1, 0), bias, padding=1, **options).transpose(1, 2))

    x = conv1d(conv1d(sound, w["w_1"], w["b_1"]), w["w_2"], w["b_2"], stride=2)
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1])[:, None] * torch.exp(-math.log(10000) / (half - 1) * torch.arange(half).double())
    x = x + torch.cat([angle.sin(), angle.cos()], -1)
    for i in range(2):
        x = x + attention(norm(x, w, f"enc.{i}.ln_1"), w, f"enc.{i}.attn")
        x = x + mlp(norm(x, w, f"enc.{i}.ln_2"), w, f"enc.{i}.mlp")
    heard = norm(x, w, "enc_norm")
    y = w["wte"][tokens] + w["wpe"]
    for i in range(2):
        y = y + attention(norm(y, w, f"dec.{i}.ln_1"), w, f"dec.{i}.attn", True)
        y = y + attention(norm(y, w, f"dec.{i}.ln_c"), w, f"dec.{i}.cross", seen=heard)
        y = y + mlp(norm(y, w, f"dec.{i}.ln_2"), w, f"dec.{i}.mlp")
    return F.cross_entropy((norm(y, w, "dec_norm") @ w["wte"].T).flatten(0, 1), labels.flatten())


def tabular(w, numbers, categories, wanted):
    x = numbers @ w["w_in"] + w["b_in"] + sum(table[categories[:, i]] for i, table in enumerate(w["levels"]))
    for i in range(3):
        n = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w[f"h.{i}.gain"]
        x = x + (F.silu(n @ w[f"h.{i}.w_gate"]) * (n @ w[f"h.{i}.w_up"])) @ w[f"h.{i}.w_down"]
    return F.huber_loss(x @ w["w_out"] + w["b_out"], wanted.to(x.dtype))


def matrix_memory(q, k, v, i, f):
    """mLSTM, with the memory as it is defined: not divided by anything, since the tests' sequences are short."""
    c = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1], dtype=q.dtype)
    n = torch.zeros_like(q[:, 0])
    rows = []
    for t in range(q.shape[1]):
        keep, take = torch.sigmoid(f[:, t])[..., None], i[:, t].exp()[..., None]
        c = keep[..., None] * c + (take * k[:, t])[..., None] * v[:, t, :, None]
        n = keep * n + take * k[:, t]
        read = torch.einsum("bhkv,bhk->bhv", c, q[:, t])
        rows.append(read / torch.clamp((n * q[:, t]).sum(-1, keepdim=True).abs(), min=1))
    return torch.stack(rows, 1)


def xlstm(w, tokens, labels):
    def norm_of(x, name):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.gain"], None, 1e-6)

    x = w["embedding"][tokens]
    for layer in range(2):
        own = f"h.{layer}"
        y = norm_of(x, f"norm.{layer}")
        h = y @ w[f"{own}.w_x"]
        taps = w[f"{own}.taps"].T.unsqueeze(1)
        c = F.silu(F.conv1d(F.pad(h.transpose(1, 2), (taps.shape[-1] - 1, 0)), taps, groups=h.shape[-1]).transpose(1, 2))
        q, k, v = (torch.einsum("bsi,ihd->bshd", z, w[f"{own}.w{name}"]) for z, name in ((c, "q"), (c, "k"), (h, "v")))
        i, f = (c @ w[f"{own}.w_{name}"] + w[f"{own}.b_{name}"] for name in "if")
        y_ = matrix_memory(q, k / k.shape[-1]**0.5, v, i, f)
        y_ = F.layer_norm(y_, y_.shape[-1:], None, None, 1e-6) * w[f"{own}.gain"]
        y_ = y_.flatten(2) + w[f"{own}.skip"].flatten() * c
        x = x + (y_ * F.silu(y @ w[f"{own}.w_z"])) @ w[f"{own}.w_down"]
    return F.cross_entropy((norm_of(x, "norm_f") @ w["embedding"].T).flatten(0, 1), labels.flatten())


def ctc(w, sound, label, length):
    kernel = w["w_in"].permute(2, 1, 0)
    h = F.gelu(F.conv1d(sound.transpose(1, 2), kernel, w["b_in"], padding=2)).transpose(1, 2)
    p = (h @ w["w_out"] + w["b_out"]).log_softmax(-1)
    return F.ctc_loss(p.transpose(0, 1), label, torch.full((len(p),), p.shape[1]), length, blank=p.shape[-1] - 1)


def gat(w, vertices, begin, end, real, wanted):
    x = vertices @ w["w_in"]
    for i in range(2):
        own = f"h.{i}"
        h = torch.einsum("bvi,iho->bvho", x, w[f"{own}.w"])
        rows = []
        for graph in range(len(x)):
            a, b = begin[graph][real[graph]], end[graph][real[graph]]
            s = F.leaky_relu((h[graph, a] * w[f"{own}.a_from"]).sum(-1) + (h[graph, b] * w[f"{own}.a_to"]).sum(-1), 0.2)
            row = []
            for vertex in range(x.shape[1]):
                into = b == vertex
                row.append(torch.einsum("eh,eho->ho", s[into].softmax(0), h[graph, a[into]]).mean(0))
            rows.append(torch.stack(row))
        x = x + F.relu(torch.stack(rows))
    return ((x.mean(1) + x.amax(1)) @ w["w_out"] - wanted).abs().mean()


def depths(w, tokens, labels):
    def rms(x):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    def turned(x, place):
        half = x.shape[-1] // 2
        angle = place[:, None, :, None] * 10000.0**(-torch.arange(half).double() / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def layer(x, name, place):
        y = rms(x)
        q, k, v = (heads_of(y, w[f"{name}.w{n}"]) for n in "qkv")
        score = turned(q, place) @ turned(k, place).transpose(-1, -2) / q.shape[-1]**0.5
        seen = (score + torch.full(score.shape[-2:], -math.inf, dtype=score.dtype).triu(1)).softmax(-1) @ v
        y = torch.einsum("...hsd,hde->...se", seen, w[f"{name}.wo"])
        return y + mlp(rms(x + y), w, name)

    x = w["wte"][tokens]
    for i in range(2):
        x = x + layer(x, f"full.{i}", torch.arange(tokens.shape[1]).expand(tokens.shape))
        score = x @ w[f"some.{i}.router"]
        place = score.topk(3).indices.sort().values
        at = place.unsqueeze(-1).expand(*place.shape, x.shape[-1])
        y = layer(x.gather(1, at), f"some.{i}.layer", place)
        x = x.scatter_add(1, at, score.gather(1, place).unsqueeze(-1) * y)
    return F.cross_entropy((rms(x) @ w["wte"].T).flatten(0, 1), labels.flatten())


def of_power(w, name):
    """The vectors of a round of power iteration."""
    v = F.normalize(w[f"{name}.w"] @ w[f"{name}.u"], dim=0).detach()
    return v, F.normalize(v @ w[f"{name}.w"], dim=0).detach()


def spectral(w, image):
    def dense(x, name):
        v, u = of_power(w, name)
        return x @ (w[f"{name}.w"] / (v @ w[f"{name}.w"] @ u)) + w[f"{name}.bias"]

    y = dense(image, "first")
    for i in range(2):
        y = y + dense(F.relu(y), f"h.{i}")
    score = F.relu(y) @ w["w"]
    return F.relu(1 - score[:, 0]).mean() + F.relu(1 + score[:, 1]).mean()


def after_spectral(before, w, image):
    for name in w:
        if name.endswith(".u"):
            w[name].copy_(of_power(before, name[:-len(".u")])[1])


def grud(w, value, seen, gap, ill):
    def gate(letter, x, mask, before):
        return x @ w[f"cell.w{letter}"] + mask @ w[f"cell.m{letter}"] + before @ w[f"cell.u{letter}"] + w[f"cell.b{letter}"]

    last = since = torch.zeros_like(value[:, 0])
    h = value.new_zeros(len(value), len(w["w_out"]))
    for t in range(value.shape[1]):
        since = since + gap[:, t:t + 1]
        x = torch.where(seen[:, t], value[:, t], (-F.relu(w["fade_x"] * since)).exp() * last)
        h = h * (-F.relu(since @ w["fade_h"] + w["bias_h"])).exp()
        mask = seen[:, t].to(x.dtype)
        z, r = gate("z", x, mask, h).sigmoid(), gate("r", x, mask, h).sigmoid()
        h = (1 - z) * h + z * gate("n", x, mask, r * h).tanh()
        last = torch.where(seen[:, t], value[:, t], last)
        since = since.masked_fill(seen[:, t], 0)
    return F.binary_cross_entropy_with_logits(h @ w["w_out"] + w["b_out"], ill.to(h.dtype))


def nsa(w, tokens, labels, block=4, near=3, chosen=2):
    """Query by query."""
    def rms(x, name):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w[f"{name}.gain"]

    def attention(x, name):
        own = {key: w[f"attn.{name}.{key}"] for key in ("wq", "wk", "wv", "mix_k", "mix_v", "w_gate", "wo")}
        q, k, v = torch.einsum("bse,egh->bsgh", x, own["wq"]), x @ own["wk"], x @ own["wv"]
        scale, length, rows = k.shape[-1]**-0.5, x.shape[1], []
        means = [torch.einsum("bnph,p->bnh", y.unflatten(1, (-1, block)), own[mix]) for y, mix in ((k, "mix_k"), (v, "mix_v"))]
        for t in range(length):
            mine, ended = q[:, t], t // block

            def seen(keys, values):
                return torch.einsum("bgk,bkh->bgh", (scale * torch.einsum("bgh,bkh->bgk", mine, keys)).softmax(-1), values)

            coarse, use = torch.zeros_like(mine), torch.zeros(len(x), length // block, dtype=x.dtype)
            if ended:
                use[:, :ended] = (scale * torch.einsum("bgh,bkh->bgk", mine, means[0][:, :ended])).softmax(-1).sum(1).detach()
                coarse = seen(means[0][:, :ended], means[1][:, :ended])
            use[:, t // block], use[:, t // block + 1:] = 1e3, -1
            fine = []
            for b, kept in enumerate(use.topk(chosen, -1).indices.tolist()):
                at = [n * block + i for n in kept for i in range(block) if n * block + i <= t]
                score = scale * mine[b] @ k[b, at].T
                fine.append(score.softmax(-1) @ v[b, at])
            local = seen(k[:, max(0, t - near + 1):t + 1], v[:, max(0, t - near + 1):t + 1])
            gate = torch.einsum("be,egw->bgw", x[:, t], own["w_gate"]).sigmoid().unsqueeze(-1)
            rows.append(gate[:, :, 0] * coarse + gate[:, :, 1] * torch.stack(fine) + gate[:, :, 2] * local)
        return torch.einsum("bsgh,ghe->bse", torch.stack(rows, 1), own["wo"])

    x = w["wte"][tokens]
    for i in range(2):
        x = x + attention(rms(x, f"ln_1.{i}"), i)
        x = x + mlp(rms(x, f"ln_2.{i}"), w, f"mlp.{i}")
    return F.cross_entropy((rms(x, "norm_f") @ w["wte"].T).flatten(0, 1), labels.flatten())
