"""A small mixture of experts under layouts of its own: experts over an axis of their own, or one that splits the batch
elsewhere; with drops, by sequence and over the whole batch, and without."""
import itertools
import re
import subprocess

import pytest
from layouts import MPC, ROOT, verify

SIZES = dict(layers=2, embed=8, kv_heads=4, group=2, head=2, ff=8, seq=8, vocab=16, experts=4, theta=100)
CAPACITIES = ["capacity = 1.25, within = batch", "capacity = none", "capacity = 0.75"]
MESHES = [dict(dp=2), dict(cp=2), dict(ep=2), dict(ep=4), dict(tp=2), dict(dp=2, ep=2), dict(ep=2, tp=2), dict(cp=2, ep=2),
          dict(dp=2, tp=2), dict(dp=2, ep=4), dict(dp=2, cp=2, ep=2), dict(dp=2, ep=2, tp=2), dict(pp=2),
          dict(dp=2, pp=2), dict(ep=2, pp=2), dict(dp=2, ep=2, pp=2)]
ROUTER = "softmax(dot(x, w, embed), gates)"


def cases():
    for number, (mesh, capacity) in enumerate(itertools.product(MESHES, CAPACITIES)):
        yield number, mesh, capacity, [axis for axis in ("ep", "dp") if axis in mesh and number % 2][:1]


def model_text(number, mesh, capacity, folded):
    axes = ", ".join(f"{axis} = {mesh.get(axis, 1)}" for axis in ("dp", "cp", "ep", "pp", "tp"))
    text = (ROOT / "examples" / "mixtral.mdl").read_text().split("parallel {")[0]
    text = text.replace("capacity = 1.25, within = batch", capacity)
    if number % 5 == 4:  # all tokens to two experts
        text = text.replace(ROUTER, "softmax(0.01 * dot(x, w, embed) - cast(iota(gates), f32), gates)")
    return text + f"""parallel {{
    mesh {axes}
    shard {"experts, batch" if "dp" in folded else "batch"} over dp
    shard {"experts, batch" if "ep" in folded else "experts"} over ep
    shard seq over cp
    shard kv_heads, ff, vocab over tp{" else seq" if number % 3 == 0 else ""}
    pipeline layers over pp
    zero {number % 4} over dp, cp{", ep" if "ep" in folded else ""}
    recompute {["none", "selective", "full"][number // 2 % 3]}
}}
"""


SHORT = """dim batch
dim seq = 6
dim vocab = 10
dim embed = 4
dim experts = 5
dim slots
model short {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param wte : [vocab, embed] = normal(1)
    param w_gate : [embed, experts] = normal(1)
    param w : [experts, embed] = normal(1)
    x = wte[vocab = tokens]
    gate = softmax(dot(x, w_gate, embed), experts)
    p, chosen = top_k(gate, experts, 2 -> choice)
    xe = dispatch(x, chosen, experts, slots, capacity = 1.25)
    y = sum(combine(xe * w, chosen) * p, choice)
    loss mean(cross_entropy(dot(y, wte, embed), labels, vocab)) + 0.01 * balance(gate, chosen, experts)
}
"""
LONG = [("dim slots\n", "dim slots\ndim choice = 2\n"), ("    p, chosen = top_k(gate, experts, 2 -> choice)\n",
        "    chosen = top_k(gate, experts, choice)\n    p = gate[experts = chosen]\n"), ("w, chosen)", "w, chosen, experts, slots)")]


def test_short_forms_mean_the_same(tmp_path):
    """Both values of top_k at once, a dim that it declares, and a combine that finds the dims of its rows."""
    long = SHORT
    for short, spelt in LONG:
        assert short in long
        long = long.replace(short, spelt)
    modules = []
    for text in (SHORT, long):
        path = tmp_path / "short.mdl"
        path.write_text(text)
        done = subprocess.run([MPC, "compile", path, "--compile-to=lower"], capture_output=True, text=True, check=True)
        modules.append(re.sub(r" loc\(.*", "", done.stdout))
    assert modules[0] == modules[1]
    assert not verify(tmp_path, "short", SHORT, [], "--verify-passes")


@pytest.mark.parametrize("number, mesh, capacity, folded", list(cases()))
def test_no_pass_changes_experts(tmp_path, number, mesh, capacity, folded):
    option = ["--verify-passes", "--verify-passes=exact"][number % 2]
    ranks = mesh.get("dp", 1) * (mesh["ep"] if "ep" in folded else 1)
    steps = 2 if "none" in capacity or "within" in capacity else 1  # micro-batches
    said = [f"-D{name}={value}" for name, value in SIZES.items()]
    for setting in (f"batch={2 * ranks * steps}", "microbatch=2", "clip=0.01",
                    "precision=" + ["fp32", "bf16", "fp32", "fp16"][number % 4]):
        said += ["--set", f"train.{setting}"]
    assert not verify(tmp_path, "experts", model_text(number, mesh, capacity, folded), said, option)
