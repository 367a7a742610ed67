"""Collectives and bytes of a training step: what mpc compiles, beside what XLA's partitioner makes of the same layout.

    python3 bench/layouts.py            the table of `make bench`

The model is GPT-2's layer at 350M's sizes, fp32, one micro-batch, on 8 ranks.  Bytes are those that a rank sends, counted
from tensors' sizes and not from an algorithm's messages: of n ranks each sends (n - 1) / n of what is gathered, scattered or
dealt out, twice that of what is all-reduced.  Of a layer: the difference between two layers and one.
"""

import json
import os
import subprocess

import peers
from peers import ROOT

SIZES = dict(batch=8, seq=1024, embed=1024, heads=16, head=64, ff=4096, vocab=50304, positions=1024, keys=1024, three=3)
DEEP, FLAT = 2, 1
TRAIN = "train {\n    batch = 8\n    microbatch = %d\n    clip = 1.0\n    precision = fp32\n}\n"
RULES = {"dp": "shard batch over dp", "cp": "shard seq over cp", "tp": "shard heads, ff, vocab over tp"}

# name, mesh, is the residual stream split along the sequence over tp, zero
LAYOUTS = [("data", dict(dp=8), False, 0), ("data, ZeRO 1", dict(dp=8), False, 1), ("data, ZeRO 3", dict(dp=8), False, 3),
           ("tensor", dict(tp=8), False, 0), ("tensor, sequence", dict(tp=8), True, 0),
           ("data x tensor", dict(dp=4, tp=2), False, 0), ("data x tensor", dict(dp=2, tp=4), False, 0),
           ("data x tensor, sequence, ZeRO 1", dict(dp=2, tp=4), True, 1),
           ("data x tensor, sequence, ZeRO 3", dict(dp=2, tp=4), True, 3),
           ("context", dict(cp=8), False, 0), ("data x context, ZeRO 1", dict(dp=2, cp=4), False, 1),
           ("data x context x tensor, sequence, ZeRO 3", dict(dp=2, cp=2, tp=2), True, 3)]


def model_text(mesh, sequence=False, train=None, zero="zero 0 over dp"):
    """GPT-2 of examples/, under another `parallel` and `train`: mpc has the rules of a layout in the file."""
    model = (ROOT / "examples" / "gpt2.mdl").read_text()
    rules = [RULES[axis] + (" else seq" if sequence and axis == "tp" else "") for axis in mesh]
    sizes = ", ".join(f"{axis} = {size}" for axis, size in mesh.items())
    start = model.index("train {")
    settings = train or model[start:model.index("parallel {")]
    rules += [zero] if "dp" in mesh else []
    return "\n    ".join([f"{model[:start]}{settings}\nparallel {{", f"mesh {sizes}", *rules, "recompute none\n}\n"])


def of_mpc(mesh, sequence, zero, layers):
    """{messages, bytes} of a step."""
    model = model_text(mesh, sequence, TRAIN % (SIZES["batch"] // mesh.get("dp", 1)))
    dims = [f"-D{name}={SIZES[name]}" for name in ("seq", "embed", "heads")]
    command = [ROOT / "build" / "mpc", "report", "/dev/stdin", "--json", f"-Dlayers={layers}", *dims,
               *([f"--zero={zero}"] if "dp" in mesh else [])]
    done = subprocess.run(command, input=model, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr)
    rows = json.loads(done.stdout)["communication"]["collectives"]
    return dict(messages=sum(row["messages"] for row in rows), bytes=sum(row["sent"] for row in rows))


def of_xla(python, requests):
    """Those of each request, with as_scatter; None where it cannot be compiled."""
    command = [python, ROOT / "bench" / "xla_step.py", json.dumps(requests)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def both_depths(figures):
    """(of a step of DEEP layers, bytes of one layer)"""
    deep, flat = figures
    return deep, {key: (deep[key] - flat[key]) / (DEEP - FLAT) for key in ("bytes", "as_scatter") if key in deep}


def cases():
    """Each layout as XLA compiles it: where something is gathered that could be kept, in both ways."""
    for name, mesh, sequence, zero in LAYOUTS:
        for again in (True, False) if sequence or zero == 3 or "cp" in mesh else (False,):
            yield name, dict(mesh=mesh, sizes=SIZES, sequence=sequence, zero=zero, again=again)


def row(name, request, theirs):
    where = ",".join(f"{axis}={size}" for axis, size in request["mesh"].items())
    ours, our_layer = both_depths([of_mpc(request["mesh"], request["sequence"], request["zero"], layers)
                                   for layers in (DEEP, FLAT)])
    theirs, their_layer = both_depths(theirs)
    cells = [name, f"`{where}`", "again" if request["again"] else "kept", ours["messages"], sum(theirs["messages"].values()),
             *[f"{count / 1e6:.1f}" for count in (ours["bytes"], theirs["bytes"], theirs["as_scatter"], our_layer["bytes"],
                                                  their_layer["bytes"], their_layer["as_scatter"])],
             f"{our_layer['bytes'] / their_layer['as_scatter']:.2f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def table(say):
    """Markdown, or [] without JAX."""
    python = peers.find(say, "jax", ["jax"])
    if not peers.version_of(python, "jax"):
        return []
    chosen = list(cases())
    theirs = of_xla(python, [dict(request, layers=layers) for _, request in chosen for layers in (DEEP, FLAT)])
    lines = [f"## Collectives, beside XLA's partitioner (JAX {theirs[0]['version']})", "",
             f"GPT-2 at 350M's sizes, batch 8 x 1024, fp32, 8 ranks: messages of a step of {DEEP} layers; MB that a rank sends, in",
             "it and for a layer (bench/layouts.py says how they are counted). XLA for CPU sums whole what each rank then reads a",
             "slice of; `scattered` counts that as a reduce-scatter, as XLA for GPU would have it, and the ratio, mpc's over XLA's for a",
             "layer, is to that. `again`: XLA gathers again in the backward pass, as mpc does; `kept`: it holds until then, whole, what",
             "it has gathered. Where an embedding is used twice, XLA reduces two gradients of it.", "",
             "| layout | mesh | XLA's gathered | messages: mpc | XLA | step MB: mpc | XLA | scattered | layer MB: mpc | XLA | scattered | ratio |",
             "|" + " --- |" * 12]
    for number, (name, request) in enumerate(chosen):
        lines.append(row(name, request, theirs[2 * number:2 * number + 2]))
        say("   " + lines[-1])
    return [*lines, ""]


if __name__ == "__main__":
    table(lambda text: print(text, flush=True))
