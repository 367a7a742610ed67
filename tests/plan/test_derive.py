"""Layouts for models without one: those of the examples are held against what people wrote there, in what they split and
in what they cost; those of other models, and of random programs, must compile on every axis."""
import re
import subprocess
import sys

import pytest

from texts import BUILD, EXAMPLES, PARALLEL, ROOT, axes_of, derived, example, mpc, report, split_over, with_derived, without_layout

sys.path.insert(0, str(ROOT / "tests"))
from cover import ALL  # noqa: E402

OTHERS = sorted(path.stem for path in (ROOT / "tests/models").glob("*.mdl"))
WHOLE_BATCH = {"resnet", "simclr"}  # norms over the batch, other records of it: one micro-batch

# Where a derived layout splits something else over tp than the example's: what is not split, and what is.
OTHER_DIMS = {
    "chat": ({"vocab"}, set()),        # of a model that is fed records no dim is known as that of tokens; 12 % of the parameters
    "distilbert": (set(), {"inner"}),  # of the layer before the classes: one message less, of [batch, inner]
    "lora": ({"vocab"}, set()),        # the same
    "rwkv": ({"vocab"}, set()),        # 50277 is odd: with it no two ranks could share the model
    "vit": ({"class"}, set()),         # 1.7 % of the parameters
}
OTHER_ELSE = {"vit"}  # `else patch`: a quarter more is sent, as by all examples with `else`, for 12 % less memory


# What a person would split over tp in other models.
OTHERS_SPLIT = {
    "clip": "heads, ff, vocab", "convnext": "f1, f2, f3", "dit": "cond, heads, ff", "dlrm": "hidden, bucket", "lora": "(kv_heads, group), ff, vocab",
    "mixer": "mix, ff", "olmoe": "(kv_heads, group), ff, vocab", "vae": "hidden",
}


def check(path, mesh, name=None):
    batch = ["--set", "train.batch=16", *(() if name in WHOLE_BATCH else ["--set", "train.microbatch=2"])]
    mpc("check", path, *batch, *(["--mesh", mesh] if mesh else []))


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_splits_what_the_example_does(name, tmp_path):
    (block,), text = PARALLEL.findall(example(name)), without_layout(example(name))
    made = with_derived(tmp_path / f"{name}.mdl", text)
    assert set(axes_of(made)) >= set(axes_of(block))
    for axis in axes_of(block):
        (own, own_else), (dims, otherwise) = split_over(block, axis), split_over(made, axis)
        missing, more = OTHER_DIMS.get(name, (set(), set())) if axis == "tp" else (set(), set())
        assert set(dims) == set(own) - missing | more, axis
        assert otherwise == own_else or (axis == "tp" and name in OTHER_ELSE)
    assert ("pipeline" in made) >= ("pipeline" in block)


@pytest.mark.parametrize("name", OTHERS_SPLIT)
def test_it_splits_what_a_person_would(name, tmp_path):
    made = with_derived(tmp_path / f"{name}.mdl", without_layout((ROOT / f"tests/models/{name}.mdl").read_text()))
    assert ", ".join(split_over(made, "tp")[0]) == OTHERS_SPLIT[name]


def cost(path, *options):
    """Bytes of a rank's memory, and what it sends."""
    figures = report(path, "--recompute=none", "--zero=1", *options)
    return figures["memory"]["arena"], figures["communication"]["sent"]


@pytest.mark.parametrize("name, mesh, sizes", [
    ("gpt2", "pp=2,tp=2", ["layers=4"]), ("llama", "dp=2,cp=2,tp=2", ["layers=2"]), ("gemma3", "pp=2,tp=2", []),
    ("mixtral", "ep=2,tp=2", ["layers=2"]), ("deepseek", "dp=2,ep=2,pp=2,tp=2", ["layers=3"]), ("lstm", "dp=2,tp=4", []),
    ("mamba", "tp=4", ["layers=2"]), ("mamba2", "dp=2,tp=2", ["layers=2"]), ("t5", "tp=4", ["layers=2"])])
def test_it_costs_what_the_example_does(name, mesh, sizes, tmp_path):
    with_derived(tmp_path / f"{name}.mdl", without_layout(example(name)))
    options = [f"--mesh={mesh}", *(f"-D{size}" for size in sizes)]
    assert cost(tmp_path / f"{name}.mdl", *options) == cost(ROOT / f"examples/{name}.mdl", *options)


@pytest.mark.parametrize("name", OTHERS + EXAMPLES)
def test_it_compiles_on_every_axis(name, tmp_path):
    """On all at once, with ALL also on each alone; at the sizes that the file has."""
    folder = "examples" if name in EXAMPLES else "tests/models"
    path = tmp_path / f"{name}.mdl"
    axes = axes_of(with_derived(path, without_layout((ROOT / folder / f"{name}.mdl").read_text())))
    for mesh in [",".join(f"{axis}=2" for axis in axes), *((f"{axis}=2" for axis in axes) if ALL else ()), *([None] if ALL else ())]:
        check(path, mesh, name)


TINY = """dim batch
dim seq   = 8
dim vocab = 32
dim embed = 8
dim heads = 4
dim head  = 2
dim ff    = 16
block attention(x: [batch, seq, embed]) {
    param wq, wk, wv : [embed, heads, head] = normal(0.1)
    param wo : [heads, head, embed] = normal(0.1)
    return dot(attend(dot(x, wq, embed), dot(x, wk, embed), dot(x, wv, embed), seq, head, causal = true), wo, heads, head)
}
block mlp(x: [batch, seq, embed]) {
    param up : [embed, ff] = normal(0.1)
    param down : [ff, embed] = normal(0.1)
    return dot(relu(dot(x, up, embed)), down, ff)
}
block layer(x: [batch, seq, embed]) {
    x = x + attention(x)
    return x + mlp(x)
}
model tiny {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param wte : [vocab, embed] = normal(0.1)
    x = wte[vocab = tokens]
    repeat 4 { x = layer(x) as h }
    loss mean(cross_entropy(dot(x, wte, embed), labels, vocab))
}
"""

LAYOUT = """parallel {
    mesh  pp = 1, dp = 1, cp = 1, tp = 1
    shard batch over dp
    shard seq over cp
    shard heads, ff, vocab over tp else seq
    pipeline h over pp
    zero 1 over dp, cp
    recompute none
}
"""

LOW_RANK = ("dim rank = 4\nblock mlp", "    param up : [embed, rank] = normal(0.1)\n    param wide : [rank, ff] = normal(0.1)",
            "dot(dot(x, up, embed), wide, rank)")
TABLE = "    param places : [place, embed] = normal(0.1)\n    x = wte[vocab = tokens] + places[place = tokens % place]"
FROZEN = "    param first : [vocab, embed] = normal(0.1) frozen\n    y = first[vocab = tokens]\n    repeat 4 { y = still(y) as early }\n    x = wte[vocab = tokens] + y"
STILL = "block still(x: [batch, seq, embed]) {\n    param by : [embed] = ones frozen\n    return sin(x * by)\n}\nmodel"
STAGES = "repeat 4 { x = layer(x) as h }\n    repeat 2 { x = layer(x) as g }"
PICK = "block pick(x: [batch, seq, embed]) {\n    param fixed : [vocab, embed] = ones frozen\n    return sum(fixed[vocab = top_k(x, embed, 1 -> best)], best)\n}\nmodel"
NUMBERED = "repeat 4 as i { x = if(i < 2, layer(x) as h, layer(x) as g) }"
CELL = "    param w : [was, embed] = normal(0.1)\n    return tanh(dot(rename(x, embed -> was), w, was))"
WIDE = ("dim ff", "dim wide = 4\ndim ff", "param wq, wk, wv : [embed, heads, head]", "param wv : [embed, heads, wide] = normal(0.1)\n    param wq, wk : [embed, heads, head]",
        "wo : [heads, head,", "wo : [heads, wide,", "wo, heads, head)", "wo, heads, wide)")
GROUPED = ("dim ff", "dim group = 2\ndim ff", "param wq, wk, wv : [embed, heads, head] = normal(0.1)",
           "param wq : [embed, heads, group, head] = normal(0.1)\n    param wk, wv : [embed, heads, head] = normal(0.1)")
WINDOWS = ("dim ff", "dim part = 2\ndim place = 4\ndim ff", *(text for x in ("wq", "wk", "wv") for text in (f"dot(x, {x}, embed)", f"split(dot(x, {x}, embed), seq -> (part, place))")),
           "dot(attend", "dot(merge(attend", "seq, head, causal = true), wo", "place, head, causal = true), (part, place) -> seq), wo")
JOINED = ("dim ff", "dim inner = heads * head\ndim ff", "wv : [embed, heads, head]", "wv : [embed, inner]", "wo : [heads, head, embed]", "wo : [inner, embed]",
          *(text for x in ("wq", "wk", "wv") for text in (f"dot(x, {x}, embed)", f"split(dot(x, {x}, embed), inner -> (heads, head))")),
          "dot(attend", "dot(merge(attend", "causal = true), wo, heads, head)", "causal = true), (heads, head) -> inner), wo, inner)")

CASES = [  # what the edits show, edits, lines that the layout has, names that no line of it has
    ("odd heads are not split", ("heads = 4", "heads = 3"), ["shard ff, vocab over tp else seq"], "heads"),
    ("an odd sequence is not", ("seq   = 8", "seq = 7"), ["shard heads, ff, vocab over tp", "zero 1 over dp"], "cp else"),
    ("an odd vocabulary is not", ("vocab = 32", "vocab = 31"), ["shard heads, ff over tp else seq"], "vocab"),
    ("its size in memory counts", ("vocab = 32", "vocab = 31 padded 8"), ["shard heads, ff, vocab over tp else seq"], ""),
    ("one copy has no stages", ("repeat 4", "repeat 1"), ["mesh  dp = 1, cp = 1, tp = 1"], "pp"),
    ("a renamed dim has both names", ("block mlp", "dim wide = ff\nblock mlp", "[ff, embed]", "[wide, embed]", "relu(dot(x, up, embed)), down, ff",
     "rename(relu(dot(x, up, embed)), ff -> wide), down, wide"), ["shard heads, ff, wide, vocab over tp else seq"], ""),
    ("what an op needs whole is not split", ("relu(dot(x, up, embed))", "cumsum(dot(x, up, embed), ff)"), ["shard heads, vocab over tp else seq"], "ff"),
    ("between two products of weights, the larger is", ("block mlp", LOW_RANK[0], "    param up : [embed, ff] = normal(0.1)", LOW_RANK[1],
     "dot(x, up, embed)", LOW_RANK[2]), ["shard heads, ff, vocab over tp else seq"], "rank"),
    ("queries' own heads take what those of keys leave", (*GROUPED, "wo : [heads,", "wo : [heads, group,", "wo, heads, head)", "wo, heads, group, head)"), ["shard (heads, group), ff, vocab over tp else seq"], ""),
    ("rows of a large table are split", ("dim ff", "dim place = 4096\ndim ff", "    x = wte[vocab = tokens]", TABLE), ["shard heads, ff, vocab, place over tp else seq"], ""),
    ("those of a small one are not", ("dim ff", "dim place = 4\ndim ff", "    x = wte[vocab = tokens]", TABLE), ["shard heads, ff, vocab over tp else seq"], "place"),
    ("a scanned sequence is no axis's", ("x = wte[vocab = tokens]", "e = wte[vocab = tokens]\n    m : [batch, embed] = 0\n    scan seq {\n        m = 0.9 * m + e\n        yield x = m\n    }"),
     ["shard heads, ff, vocab over tp", "zero 1 over dp"], "cp else"),
    ("repeats share the stages, in order", ("repeat 4 { x = layer(x) as h }", STAGES), ["pipeline h, g over pp"], ""),
    ("a frozen repeat has none", ("model", STILL, "    x = wte[vocab = tokens]", FROZEN), ["pipeline h over pp"], "early"),
    ("one that begins with what is frozen has some", ("normal(0.1)\n    x = wte", "normal(0.1) frozen\n    x = wte"), ["pipeline h over pp"], ""),
    ("nor has one that picks places alone", ("model", PICK, "    repeat 4", "    x = x + layer(x) as first\n    repeat 4 { x = pick(x) as early }\n    repeat 4"),
     ["pipeline h over pp"], "early"),
    ("runs of a numbered repeat have one name", ("repeat 4 { x = layer(x) as h }", NUMBERED), ["pipeline h over pp"], "g"),
    ("of dims that are always together, the first is outside", ("dim ff", "dim group = 2\ndim ff", "[embed, heads, head]", "[embed, heads, group, head]",
     "wo : [heads,", "wo : [heads, group,", "wo, heads, head)", "wo, heads, group, head)"), ["shard (heads, group), ff, vocab over tp else seq"], ""),
    ("but not where heads have two names", (*GROUPED, "dim ff", "dim more = heads\ndim ff", "wo : [heads,", "wo : [more, group,", "dot(attend", "dot(rename(attend",
     "causal = true), wo, heads, head)", "causal = true), heads -> more), wo, more, group, head)"), ["shard heads, more, ff, vocab over tp else seq"], "group"),
    ("windows of a sequence are not split", WINDOWS, ["shard heads, ff, vocab over tp"], "cp place"),
    ("features of values alone split no scores", WIDE, ["shard heads, ff, vocab over tp else seq"], "wide"),
    ("heads that are parts of a dim are split with it", JOINED, ["shard heads, inner, ff, vocab over tp else seq"], ""),
    ("a state that repeats carry, where there is nothing else", ("block attention", "dim was = embed\nblock attention", "    x = x + attention(x)\n    return x + mlp(x)", CELL),
     ["shard embed, vocab over tp"], "else heads ff was"),
    ("but not if a norm is over it", ("block attention", "dim was = embed\nblock attention", "    x = x + attention(x)\n    return x + mlp(x)",
     CELL.replace("rename(x,", "rename(rmsnorm(x, embed),")), ["shard vocab over tp"], "else heads ff was embed"),
]


def edited(*edits):
    text = TINY
    for old, new in zip(edits[::2], edits[1::2]):
        assert old in text, old
        text = text.replace(old, new)
    return text


def test_the_layout_of_a_small_model(tmp_path):
    assert with_derived(tmp_path / "tiny.mdl", TINY) == LAYOUT


@pytest.mark.parametrize("edits, lines, without", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_choices(edits, lines, without, tmp_path):
    path, text = tmp_path / "tiny.mdl", edited(*edits)
    if "x = x + attention" not in text:  # blocks that are not called are errors
        text = re.sub(r"block (attention|mlp).*?^}\n", "", text, flags=re.M | re.S)
        text = re.sub(r"^dim (heads|head|ff) .*\n", "", text, flags=re.M)
    block = with_derived(path, text)
    assert [line for line in lines if f"    {line}\n" not in block] == [], block
    assert [word for word in without.split() if re.search(rf"\b{word}\b", block)] == [], block
    check(path, ",".join(f"{axis}=2" for axis in axes_of(block)))


def test_many_dims_are_named_in_several_lines(tmp_path):
    blocks = "".join(f"dim f{i} = 4\nblock mlp{i}(x: [batch, seq, embed]) {{\n    param a : [embed, f{i}] = normal(0.1)\n"
                     f"    param b : [f{i}, embed] = normal(0.1)\n    return x + dot(relu(dot(x, a, embed)), b, f{i})\n}}\n" for i in range(9))
    calls = "    x = x + attention(x)\n" + "".join(f"    x = mlp{i}(x)\n" for i in range(9))
    path = tmp_path / "tiny.mdl"
    block = with_derived(path, edited("block layer", f"{blocks}block layer", "    x = x + attention(x)\n", calls))
    assert "    shard heads, ff, f0, f1, f2, f3, f4, f5 over tp\n    shard f6, f7, f8, vocab over tp else seq\n" in block
    check(path, "tp=2")


def test_a_model_that_cannot_be_split(tmp_path):
    (tmp_path / "one.mdl").write_text("dim batch\nmodel one {\n    param w : [] = ones\n    loss square(w)\n}\n")
    assert derived(tmp_path / "one.mdl") == "nothing can be split\n"


def test_sizes_on_the_command_line_count(tmp_path):
    (tmp_path / "tiny.mdl").write_text(TINY)
    assert derived(tmp_path / "tiny.mdl", "heads=3") == LAYOUT.replace("heads, ff", "ff")


# Experts that are scanned; repeats whose copies hand on no gradient: to what is not trained, or by stop_gradient alone.
CHOSEN = [146, 199, 262, 424]


@pytest.mark.parametrize("seed", range(1, 401) if ALL else [*range(1, 21), *CHOSEN])
def test_random_programs(seed, tmp_path):
    sys.path.insert(0, str(ROOT / "tests/random"))
    from generate import generate
    from printer import program_text
    path = tmp_path / "m.mdl"
    text = without_layout(program_text(generate(seed, 0.1)))
    path.write_text(text)
    if derived(path) == "nothing can be split\n":
        return
    for axis in axes_of(with_derived(path, text)):
        batch = ["--set", "train.batch=8", "--set", "train.microbatch=4"] if axis in ("dp", "ep") else []
        words = [BUILD / "mpc", "check", path, "--mesh", f"{axis}=2", *batch]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        if axis == "pp" and "help: schedule = naive" in done.stderr:  # stages need more of each other than a repeat carries
            done = subprocess.run(list(map(str, [*words, "--schedule=naive"])), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_stages_that_need_more_of_each_other(tmp_path):
    """A schedule cannot have two micro-batches in stages of this program: mpc plan derives no pipeline."""
    sys.path.insert(0, str(ROOT / "tests/random"))
    from generate import generate
    from printer import program_text
    path = tmp_path / "m.mdl"
    path.write_text(without_layout(program_text(generate(424, 0.1))))
    assert "pp" in axes_of(derived(path))
    refused = subprocess.run([BUILD / "mpc", "plan", path, "--ranks=2", "--machine=h100", "--keep=pp=2"], capture_output=True, text=True)
    assert refused.returncode == 1 and "--keep=pp=2: there is nothing of that name" in refused.stderr
    done = subprocess.run([BUILD / "mpc", "plan", path, "--ranks=4", "--machine=h100", "--write"], capture_output=True, text=True)
    assert done.returncode == 0 and "; 0 cannot be compiled;" in done.stdout
    assert "pp" not in axes_of(path.read_text()) and "pipeline" not in path.read_text()
