"""A small mixture of experts under layouts of its own: experts over an axis of their own, or one that splits the batch
elsewhere; with drops, by sequence and over the whole batch, and without."""
import itertools

import pytest
from layouts import ALL, ROOT, covering, ranks_of, some, time_of, verify

SIZES = dict(layers=2, embed=8, kv_heads=4, group=2, head=2, ff=8, seq=8, vocab=16, experts=4, theta=100)
NONE = "capacity = none"
CAPACITIES = ["capacity = capacity, within = batch", NONE, "capacity = 0.75"]
MESHES = [dict(dp=2), dict(cp=2), dict(ep=2), dict(ep=4), dict(tp=2), dict(dp=2, ep=2), dict(ep=2, tp=2), dict(cp=2, ep=2),
          dict(dp=2, tp=2), dict(dp=2, ep=4), dict(dp=2, cp=2, ep=2), dict(dp=2, ep=2, tp=2), dict(pp=2),
          dict(dp=2, pp=2), dict(ep=2, pp=2), dict(dp=2, ep=2, pp=2), dict(ep=8), dict(cp=2, ep=2, pp=2)]
ATTEND = ["gather", "ring", "all_to_all"]  # each mesh with cp has each of them
ROUNDS = """    y = 0 * x
    repeat 2 {
        xe = dispatch(x, chosen, experts, slots, capacity = none, rounds = true)
        pe = dispatch(p / sum(p, choice), chosen, experts, slots, capacity = none, rounds = true)
        ye = dot(silu(dot(xe, w_gate, embed)) * dot(xe, w_up, embed) * pe, w_down, ff)
        y = y + sum(combine(ye, chosen), choice)
    }
    return y
}
"""
ROUTER = "softmax(dot(x, w, embed), experts)"


AXES = ("dp", "cp", "ep", "pp", "tp")
CHOICES = dict(dp=[1, 2], cp=[1, 2], ep=[1, 2, 4], pp=[1, 2], tp=[1, 2], capacity=CAPACITIES, folded=["", "dp", "ep"], zero=[0, 1, 2, 3],
               precision=["fp32", "bf16", "fp16"], recompute=["none", "selective", "full"], attend=ATTEND, otherwise=[False, True],
               rounds=[False, True], skewed=[False, True], exactly=[False, True])


def is_possible(case):
    mesh = {case["folded"]: 2, **case} if case.get("folded") else case
    return (ranks_of(mesh) <= 8 and mesh.get(case.get("folded"), 2) > 1
            and not (case.get("rounds") and case.get("capacity", NONE) != NONE))


def cases():
    """Every pair of choices.  With ALL: every mesh, eight ranks of experts among them, with every capacity."""
    if not ALL:
        yield from covering(CHOICES, is_possible, time_of)
        return
    for number, (mesh, capacity) in enumerate(itertools.product(MESHES, CAPACITIES)):
        yield {**dict.fromkeys(AXES, 1), **mesh, "capacity": capacity, "folded": ([axis for axis in ("ep", "dp") if axis in mesh and number % 2] + [""])[0],
               "zero": number % 4, "precision": ["fp32", "bf16", "fp32", "fp16"][number % 4], "recompute": CHOICES["recompute"][number // 2 % 3],
               "attend": ATTEND[number % 3], "otherwise": number % 3 == 0, "rounds": capacity == NONE and number % 2 == 1,
               "skewed": number % 5 == 4, "exactly": number % 2 == 1}


def model_text(case):
    text = (ROOT / "examples" / "mixtral.mdl").read_text().split("parallel {")[0]
    if case["rounds"]:
        begin = text.index("    xe = dispatch")
        text = text[:begin] + ROUNDS + text[text.index("}\n", begin) + 2:]
    text = text.replace("capacity = capacity, within = batch", case["capacity"])
    if case["skewed"]:  # all tokens to two experts
        text = text.replace(ROUTER, "softmax(0.01 * dot(x, w, embed) - cast(iota(experts), f32), experts)")
    return text + f"""parallel {{
    mesh {", ".join(f"{axis} = {case[axis]}" for axis in AXES)}
    shard {"experts, batch" if case["folded"] == "dp" else "batch"} over dp
    shard {"experts, batch" if case["folded"] == "ep" else "experts"} over ep
    shard seq over cp (attend = {case["attend"]})
    shard kv_heads, ff, vocab over tp{" else seq" if case["otherwise"] else ""}
    pipeline layers over pp
    zero {case["zero"]} over dp, cp{", ep" if case["folded"] == "ep" else ""}
    recompute {case["recompute"]}
}}
"""


def name_of(case):
    return "-".join(f"{axis}{case[axis]}" for axis in AXES if case[axis] > 1) + f"-{case['capacity']}"


@pytest.mark.parametrize("case", list(cases()), ids=name_of)
def test_no_pass_changes_experts(tmp_path, case):
    ranks = case["dp"] * (case["ep"] if case["folded"] == "ep" else 1)
    steps = 2 if "none" in case["capacity"] or "within" in case["capacity"] else 1  # micro-batches
    said = [f"-D{name}={value}" for name, value in {**SIZES, "experts": max(4, case["ep"] * (case["dp"] if case["folded"] == "dp" else 1))}.items()]
    for setting in (f"batch={2 * ranks * steps}", "microbatch=2", "clip=0.01", f"precision={case['precision']}"):
        said += ["--set", f"train.{setting}"]
    assert not verify(tmp_path, "experts", model_text(case), said, "--verify-passes" + "=exact" * case["exactly"])


# The text of the language's description, in a model as a user would put it.
MODEL = """
dim batch
dim seq = 4
dim vocab = 16
dim embed = 8
dim ff = 8
dim experts = 4
dim slots                                           # computed by dispatch

block layer(x: [batch, seq, embed]) {
    param w_gate : [embed, experts]     = normal(0.3)
    param w1, w3 : [experts, embed, ff] = normal(0.3)
    param w2     : [experts, ff, embed] = normal(0.3)
    gate         = softmax(dot(x, w_gate, embed), experts)
    p, chosen    = top_k(gate, experts, 2 -> choice)    # both [batch, seq, choice]
    xe           = dispatch(x, chosen, experts, slots, capacity = 1.25)   # [experts, slots, embed]; capacity = none: dropless
    ye           = dot(silu(dot(xe, w1, embed)) * dot(xe, w3, embed), w2, ff)
    y            = sum(combine(ye, chosen) * p, choice)
    return x + y + 0.01 * balance(gate, chosen, experts)
}

model m {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param wte : [vocab, embed] = normal(0.3)
    x = wte[vocab = tokens]
    repeat 2 { x = layer(x) as h }
    loss mean(cross_entropy(dot(x, wte, embed), labels, vocab))
}
"""


SHORT = [
    (dict(ep=2), "experts over ep"), (dict(ep=2), "experts, batch over ep"), (dict(dp=2), "experts, batch over dp"),
    (dict(dp=2, ep=2), "experts over ep"), (dict(dp=2, ep=2), "experts, batch over ep"), (dict(ep=2, tp=2), "experts over ep"),
    (dict(ep=2, tp=2), "experts, batch over ep"), (dict(ep=2, pp=2), "experts over ep")]


# Without ALL each with a stage of zero that uses reals, and one that uses residues.
@pytest.mark.parametrize("mesh, experts, zero", some([(*short, zero) for zero in range(4) for short in SHORT],
                                                     *(number + 16 * (number % 2) for number in range(16))), ids=str)
def test_the_short_form(tmp_path, mesh, experts, zero):
    axes = ", ".join(f"{axis} = {size}" for axis, size in mesh.items())
    lines = [f"mesh {axes}", f"shard {experts}"] + ["shard ff, vocab over tp else seq"] * ("tp" in mesh)
    lines += ["shard batch over dp"] * ("dp" in mesh and "dp" not in experts) + ["pipeline h over pp"] * ("pp" in mesh)
    data = [axis for axis in mesh if axis == "dp" or (axis == "ep" and "batch" in experts)]
    lines += [f"zero {zero} over {', '.join(data)}"] * bool(data)
    text = MODEL + "parallel {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    option = ["--verify-passes", "--verify-passes=exact"][zero % 2]
    assert not verify(tmp_path, "short", text, ["--set", "train.batch=4"], option)


DEEPSEEK = dict(dense_layers=1, layers=2, vocab=16, seq=4, embed=8, heads=2, nope=4, turned=2, vhead=4, q_rank=4, kv_rank=4,
                ff=8, expert_ff=4, experts=8, groups=4, choice=2, limit=2)


@pytest.mark.parametrize("number, mesh", some(enumerate([
    dict(dp=2), dict(ep=2), dict(cp=2), dict(tp=2), dict(dp=2, ep=2), dict(ep=2, tp=2), dict(cp=2, ep=2), dict(pp=2),
    dict(dp=2, pp=2), dict(ep=2, pp=2)]), 1, 2, 3, 4, 8), ids=str)
def test_no_pass_changes_a_state(tmp_path, number, mesh):
    text = (ROOT / "examples" / "deepseek.mdl").read_text()
    axes = ",".join(f"{axis}={size}" for axis, size in mesh.items())
    ranks = mesh.get("dp", 1) * mesh.get("ep", 1)
    said = [f"-D{name}={value}" for name, value in DEEPSEEK.items()] + [f"--mesh={axes}", f"--zero={number % 4}"]
    for setting in (f"batch={4 * ranks}", "microbatch=2", "clip=0.01", "precision=" + ["fp32", "bf16", "fp32"][number % 3]):
        said += ["--set", f"train.{setting}"]
    assert not verify(tmp_path, "deepseek", text, said, ["--verify-passes", "--verify-passes=exact"][number % 2])


@pytest.mark.parametrize("number, mesh", some(enumerate([
    dict(), dict(cp=2), dict(dp=2, tp=2), dict(ep=2), dict(pp=2), dict(dp=2, pp=2)]), 1, 2, 3, 4), ids=str)
def test_no_pass_changes_predictions_of_several_tokens(tmp_path, number, mesh):
    text = (ROOT / "examples" / "deepseek.mdl").read_text()
    said = [f"-D{name}={value}" for name, value in {**DEEPSEEK, "layers": 1, "mtp": 1 + number % 2}.items()]
    said += [f"--mesh={','.join(f'{axis}={size}' for axis, size in mesh.items())}"] * bool(mesh) + [f"--zero={number % 4}"]
    ranks = mesh.get("dp", 1) * mesh.get("ep", 1)
    for setting in (f"batch={2 * ranks}", "microbatch=1", "clip=0.01", "precision=" + ["fp32", "bf16"][number % 2]):
        said += ["--set", f"train.{setting}"]
    assert not verify(tmp_path, "deepseek", text, said, ["--verify-passes", "--verify-passes=exact"][number // 2 % 2])
