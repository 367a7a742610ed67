"""One PyTorch training, for run.py and gpu.py: SHAPE BATCH SEQ PRECISION MODE STEPS THREADS [DEVICE] -> one JSON line
{ms, bytes}.

The model that a careful user would write: fused attention where PyTorch has it, fused or foreach AdamW, bf16 by autocast.
"""

import json
import math
import resource
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def attention(q, k, v, group):
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return (scores.masked_fill(mask, -math.inf).softmax(-1) @ v).transpose(1, 2)


class GPT2Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        e = s["embed"]
        self.heads = s["heads"]
        self.ln_1, self.ln_2 = nn.LayerNorm(e), nn.LayerNorm(e)
        self.qkv, self.out = nn.Linear(e, 3 * e), nn.Linear(e, e)
        self.up, self.down = nn.Linear(e, s["ff"]), nn.Linear(s["ff"], e)

    def forward(self, x):
        q, k, v = (t.view(*t.shape[:2], self.heads, -1) for t in self.qkv(self.ln_1(x)).chunk(3, -1))
        x = x + self.out(attention(q, k, v, 1).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, s, seq):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(s["vocab"], s["embed"]), nn.Parameter(torch.randn(seq, s["embed"]) * 0.02)
        nn.init.normal_(self.wte.weight, std=0.02)
        self.layers = nn.ModuleList(GPT2Layer(s) for _ in range(s["layers"]))
        self.ln_f = nn.LayerNorm(s["embed"])

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.gain


def rope(x):
    half = x.shape[-1] // 2
    place, pair = torch.arange(x.shape[1], device=x.device), torch.arange(half, device=x.device)
    angle = place[:, None] * 10000.0 ** (-pair / half)
    c, s = torch.cos(angle)[None, :, None], torch.sin(angle)[None, :, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * c - b * s, a * s + b * c], -1).type_as(x)


class LlamaLayer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, e, kv = s, s["embed"], s["kv_heads"] * s["head"]
        self.n1, self.n2 = RMSNorm(e), RMSNorm(e)
        self.q, self.k, self.v = (nn.Linear(e, n, bias=False) for n in (kv * s["group"], kv, kv))
        self.o = nn.Linear(kv * s["group"], e, bias=False)
        self.gate, self.up = nn.Linear(e, s["ff"], bias=False), nn.Linear(e, s["ff"], bias=False)
        self.down = nn.Linear(s["ff"], e, bias=False)

    def forward(self, x):
        y, head = self.n1(x), self.s["head"]
        q, k, v = (t.view(*t.shape[:2], -1, head) for t in (self.q(y), self.k(y), self.v(y)))
        x = x + self.o(attention(rope(q), rope(k), v, self.s["group"]).flatten(2))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, s, seq):
        super().__init__()
        self.embedding, self.head = nn.Embedding(s["vocab"], s["embed"]), nn.Linear(s["embed"], s["vocab"], bias=False)
        self.layers = nn.ModuleList(LlamaLayer(s) for _ in range(s["layers"]))
        self.norm = RMSNorm(s["embed"])

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def main():
    shape = json.loads(sys.argv[1])
    batch, seq, precision, mode, steps, threads = int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:6], *map(int, sys.argv[6:8])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    device = sys.argv[8] if len(sys.argv) > 8 else "cpu"
    model = {"gpt2": GPT2, "llama": Llama}[shape["model"]](shape, seq).to(device)
    try:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    except (TypeError, RuntimeError):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    run = torch.compile(model) if mode == "compile" else model
    tokens = torch.randint(0, 30000, (batch, seq + 1), device=device)
    times = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    print(json.dumps(dict(ms=statistics.median(times[3:]), bytes=peak, loss=float(loss.detach()), version=torch.__version__)))


if __name__ == "__main__":
    main()
