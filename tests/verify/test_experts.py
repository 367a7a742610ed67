"""A small mixture of experts under layouts of its own: experts over an axis of their own, or one that splits the batch
elsewhere; with drops, by sequence and over the whole batch, and without."""
import itertools

import pytest
from layouts import ROOT, verify

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
