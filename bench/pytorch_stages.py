"""One rank of a GPT-2 in stages by torch.distributed.pipelining, for pipelines.py: a JSON object on the command line ->
one JSON line of rank 0, {losses, ms, version}.

The weights are those of a checkpoint of mpc, the sequences those of its --no-shuffle.  The embedding is in two stages; its
gradients are added up as mpc does it, by one all-reduce in a step, or as one parameter where both stages are on one rank.
"""

import json
import statistics
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed import pipelining

from pytorch import GPT2Layer


def read_checkpoint(path):
    raw = np.memmap(path, np.uint8, "r")
    size = int(raw[:8].view("<u8")[0])
    header = json.loads(bytes(raw[8:8 + size]))
    header.pop("__metadata__", None)
    at = {name: [8 + size + offset for offset in entry["data_offsets"]] for name, entry in header.items()}
    return {name: torch.from_numpy(np.array(raw[begin:end]).view(np.float32).reshape(header[name]["shape"]))
            for name, (begin, end) in at.items() if header[name]["dtype"] == "F32"}


def load_layer(layer, saved, number):
    """Layer `number` of the checkpoint; products there are written [in, out], and by heads."""
    with torch.no_grad():
        attn, mlp = f"h.{number}.attn", f"h.{number}.mlp"
        e = layer.out.weight.shape[0]
        layer.qkv.weight.copy_(torch.cat([saved[f"{attn}.w{kind}"].reshape(e, e).T for kind in "qkv"]))
        layer.qkv.bias.copy_(torch.cat([saved[f"{attn}.b{kind}"].reshape(e) for kind in "qkv"]))
        layer.out.weight.copy_(saved[f"{attn}.wo"].reshape(e, e).T)
        layer.out.bias.copy_(saved[f"{attn}.bo"])
        for name, linear in (("up", layer.up), ("down", layer.down)):
            linear.weight.copy_(saved[f"{mlp}.w_{name}"].T)
            linear.bias.copy_(saved[f"{mlp}.b_{name}"])
        for name in ("ln_1", "ln_2"):
            load_norm(getattr(layer, name), saved, f"h.{number}.{name}")


def load_norm(norm, saved, name):
    with torch.no_grad():
        norm.weight.copy_(saved[f"{name}.gain"])
        norm.bias.copy_(saved[f"{name}.bias"])


class Stage(nn.Module):
    """Layers from `first` on, with what is before and after them at the ends of the model."""

    def __init__(self, sizes, saved, first, count, wte):
        super().__init__()
        shape = dict(embed=sizes["embed"], heads=sizes["heads"], ff=4 * sizes["embed"])
        self.begins, self.ends = first == 0, first + count == sizes["layers"]
        self.layers = nn.ModuleList(GPT2Layer(shape) for _ in range(count))
        for number, layer in enumerate(self.layers):
            load_layer(layer, saved, first + number)
        self.wte = wte if self.begins or self.ends else None
        if self.begins:
            self.wpe = nn.Parameter(saved["wpe"].clone())
        if self.ends:
            self.ln_f = nn.LayerNorm(sizes["embed"])
            load_norm(self.ln_f, saved, "ln_f")

    def forward(self, x):
        if self.begins:
            x = F.embedding(x, self.wte) + self.wpe
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.ln_f(x), self.wte) if self.ends else x


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def stages_of_rank(schedule, rank, ranks):
    """Their numbers: one, or two, the second one of them on the way back for a V."""
    if schedule in ("ScheduleGPipe", "Schedule1F1B"):
        return [rank]
    return [rank, 2 * ranks - 1 - rank if "ZBV" in schedule else rank + ranks]


class Pipeline:
    """What one rank has of it."""

    def __init__(self, said, rank, ranks):
        saved, counts = read_checkpoint(said["weights"]), said["counts"]
        numbers, wte = stages_of_rank(said["schedule"], rank, ranks), nn.Parameter(saved["wte"].clone())
        self.modules = nn.ModuleList(Stage(said["sizes"], saved, sum(counts[:n]), counts[n], wte) for n in numbers)
        stages = [pipelining.PipelineStage(module, n, len(counts), torch.device("cpu"))
                  for n, module in zip(numbers, self.modules)]
        self.begins, self.ends = 0 in numbers, len(counts) - 1 in numbers
        self.wte, self.shared = wte, stages_of_rank(said["schedule"], 0, ranks)[-1] != len(counts) - 1 and ranks > 1
        make = getattr(pipelining, said["schedule"])
        self.schedule = make(stages[0] if len(stages) == 1 else stages, said["micros"], loss_fn=loss_of)
        self.optimizer = torch.optim.AdamW(self.modules.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01,
                                           fused=True)
        self.group = dist.new_group(sorted({0, ranks - 1}))  # of the stages that have the embedding, if they are two

    def step(self, tokens, labels):
        """The mean loss, on the rank of the last stage."""
        losses = []
        self.optimizer.zero_grad(set_to_none=True)
        self.schedule.step(*([tokens] if self.begins else []), **(dict(target=labels, losses=losses) if self.ends else {}))
        if self.shared and (self.begins or self.ends):
            dist.all_reduce(self.wte.grad, group=self.group)
        self.optimizer.step()
        return sum(map(float, losses)) / len(losses) if losses else 0.0


def main():
    said = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    seq, micros = said["sizes"]["seq"], said["micros"]
    data = torch.from_numpy(np.fromfile(said["data"], "<u2").astype(np.int64))
    sequences = (len(data) - 1) // seq
    pipeline, losses, times = Pipeline(said, rank, ranks), [], []
    for step in range(said["steps"]):
        first = [(step * micros + n) % sequences * seq for n in range(micros)]
        tokens, labels = (torch.stack([data[at + by:at + by + seq] for at in first]) for by in (0, 1))
        dist.barrier()
        begin = time.perf_counter()
        loss = torch.tensor([pipeline.step(tokens, labels)])
        times.append((time.perf_counter() - begin) * 1e3)
        dist.all_reduce(loss)  # of the rank that has it
        losses.append(float(loss))
    if rank == 0:
        print(json.dumps(dict(losses=losses, ms=statistics.median(times[2:]), version=torch.__version__)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
