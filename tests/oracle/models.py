"""GPT-2, Llama and BERT from their papers, as functions of a dict of weights in the shapes of the .mdl files."""

import math

import torch
import torch.nn.functional as F


def layer_norm(x, w, name, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * w[f"{name}.gain"] + w[f"{name}.bias"]


def rms_norm(x, w, name, eps=1e-5):
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps) * w[f"{name}.gain"]


def softmax_attention(q, k, v, causal):
    """q [B, S, H, D], k and v [B, S, H, D]: Vaswani et al. 2017, equation 1."""
    scores = torch.einsum("bshd,bthd->bhst", q, k) / math.sqrt(q.shape[-1])
    if causal:
        ahead = torch.ones(scores.shape[-2:]).triu(1).bool()
        scores = scores.masked_fill(ahead, -math.inf)
    return torch.einsum("bhst,bthd->bshd", scores.softmax(-1), v)


def biased_attention(x, w, name, causal):
    q, k, v = (torch.einsum("bse,ehd->bshd", x, w[f"{name}.w{c}"]) + w[f"{name}.b{c}"] for c in "qkv")
    y = softmax_attention(q, k, v, causal)
    return torch.einsum("bshd,hde->bse", y, w[f"{name}.wo"]) + w[f"{name}.bo"]


def perceptron(x, w, name, activation):
    return activation(x @ w[f"{name}.w_up"] + w[f"{name}.b_up"]) @ w[f"{name}.w_down"] + w[f"{name}.b_down"]


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt2(layers):
    def loss(w, tokens, labels):
        x = w["wte"][tokens] + w["wpe"]
        for i in range(layers):
            x = x + biased_attention(layer_norm(x, w, f"h.{i}.ln_1"), w, f"h.{i}.attn", causal=True)
            x = x + perceptron(layer_norm(x, w, f"h.{i}.ln_2"), w, f"h.{i}.mlp", gelu_tanh)
        logits = layer_norm(x, w, "ln_f") @ w["wte"].T
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return loss


def rotate(x, base):
    """RoFormer, equation 34, in the form that rotates feature i with feature i + D/2."""
    seq, half = x.shape[1], x.shape[-1] // 2
    angle = torch.arange(seq)[:, None].double() * base ** (-torch.arange(half).double() / half)
    shape = (1, seq) + (1,) * (x.dim() - 3) + (half,)
    cosine, sine = torch.cos(angle).view(shape), torch.sin(angle).view(shape)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1)


def rotary_attention(x, w, name, base):
    q = rotate(torch.einsum("bse,ekgd->bskgd", x, w[f"{name}.wq"]), base)
    k = rotate(torch.einsum("bse,ekd->bskd", x, w[f"{name}.wk"]), base)
    v = torch.einsum("bse,ekd->bskd", x, w[f"{name}.wv"])
    group = q.shape[3]
    y = softmax_attention(q.flatten(2, 3), k.repeat_interleave(group, 2), v.repeat_interleave(group, 2), True)
    return torch.einsum("bskgd,kgde->bse", y.view(q.shape), w[f"{name}.wo"])


def llama(layers, base=10000.0, embedded=False):
    """embedded: the loss takes embedded tokens."""
    def swiglu(x, w, name):
        gate = x @ w[f"{name}.w_gate"]
        return (gate * torch.sigmoid(gate) * (x @ w[f"{name}.w_up"])) @ w[f"{name}.w_down"]

    def of_embedded(w, x, labels):
        for i in range(layers):
            x = x + rotary_attention(rms_norm(x, w, f"h.{i}.attn_norm"), w, f"h.{i}.attn", base)
            x = x + swiglu(rms_norm(x, w, f"h.{i}.mlp_norm"), w, f"h.{i}.mlp")
        logits = rms_norm(x, w, "norm_f") @ w["head_out"]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    if embedded:
        return of_embedded
    return lambda w, tokens, labels: of_embedded(w, w["embedding"][tokens], labels)


def mixture(x, gate, w, name, choice, slots):
    """Token by token, in order: each expert takes the first `slots` of a sequence that choose it (None: all)."""
    y = []
    for sequence, gates in zip(x, gate):
        taken = [0] * gates.shape[-1]
        for token, g in zip(sequence, gates):
            best = sorted(range(len(g)), key=lambda e: (-float(g[e]), e))[:choice]
            terms = [torch.zeros_like(token)]
            for e in best:
                taken[e] += 1
                if slots is None or taken[e] <= slots:
                    up = F.silu(token @ w[f"{name}.w_gate"][e]) * (token @ w[f"{name}.w_up"][e])
                    terms.append(g[e] / g[best].sum() * (up @ w[f"{name}.w_down"][e]))
            y.append(sum(terms))
    return torch.stack(y).view(x.shape)


def mixtral(layers, choice, capacity, balance, base=1e6):
    """Jiang et al., "Mixtral of Experts", arXiv 2401.04088, with a capacity for each sequence, and the auxiliary loss of
    Fedus et al., "Switch Transformers", arXiv 2101.03961, for each sequence and layer."""
    def loss(w, tokens, labels):
        x, unbalanced = w["embedding"][tokens], 0
        for i in range(layers):
            x = x + rotary_attention(rms_norm(x, w, f"attn_norm.{i}"), w, f"attn.{i}", base)
            m = rms_norm(x, w, f"moe_norm.{i}")
            gate = (m @ w[f"router.{i}.w"]).softmax(-1)
            experts, seq = gate.shape[-1], gate.shape[1]
            slots = None if capacity is None else min(seq, math.ceil(capacity * seq * choice / experts))
            x = x + mixture(m, gate, w, f"moe.{i}", choice, slots)
            share = F.one_hot(gate.topk(choice).indices, experts).sum(2).double().mean(1)
            unbalanced = unbalanced + experts * (share * gate.mean(1)).sum(-1).mean()
        logits = rms_norm(x, w, "norm_f") @ w["head_out"]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + balance * unbalanced

    return loss


def bert(layers):
    def gelu(x):
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))

    def loss(w, tokens, _):
        masked = torch.arange(tokens.shape[1]) % 7 == 3
        seen = torch.where(masked, torch.tensor(103), tokens)
        labels = torch.where(masked, tokens, torch.tensor(-100))
        x = layer_norm(w["wte"][seen] + w["wpe"] + w["wke"][0], w, "ln_e", 1e-12)
        for i in range(layers):
            x = layer_norm(x + biased_attention(x, w, f"h.{i}.attn", causal=False), w, f"h.{i}.ln_1", 1e-12)
            x = layer_norm(x + perceptron(x, w, f"h.{i}.mlp", gelu), w, f"h.{i}.ln_2", 1e-12)
        x = layer_norm(gelu(x @ w["transform.w"] + w["transform.b"]), w, "transform.ln", 1e-12)
        logits = x @ w["wte"].T + w["out"]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)

    return loss
