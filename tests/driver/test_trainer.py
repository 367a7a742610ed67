"""The trainers that mpc writes: their C, their plan, and that neither memory nor layers nor micro-batches show."""
import json
import platform
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from conftest import HERE, MPC, ROOT, RUNTIME, start

VARIANTS = [
    ("tiny.mdl",),
    ("tiny.mdl", "--recompute=selective"),
    ("tiny.mdl", "--set", "train.microbatch=16", "--recompute=full"),
    ("mixed.mdl",),
    ("mixed.mdl", "--set", "train.precision=bf16"),
    ("mixed.mdl", "--set", "train.precision=fp16", "--set", "train.microbatch=8"),
]
SOURCES = pytest.mark.parametrize("words", VARIANTS, ids=" ".join)


@pytest.fixture
def source(mpc):
    def write(*words):
        mpc("compile", *words, "-o", "out", "--no-cc")
        return mpc.directory / "out/trainer.c"
    return write


@SOURCES
def test_clang_format_changes_nothing(source, words):
    written = source(*words).read_text()
    (source(*words).parent / ".clang-format").write_text((ROOT / ".clang-format").read_text())
    formatted = start(["sh", ROOT / "tests/clang_format.sh", "--style=file", "out/trainer.c"], source(*words).parents[1], 0).stdout
    assert formatted.splitlines() == written.splitlines()


@pytest.mark.parametrize("cc", ["gcc", "clang"])
@SOURCES
def test_no_warnings(source, words, cc):
    path = source(*words)
    done = start([cc, "-std=gnu17", "-Wall", "-Wextra", "-fopenmp", "-fsyntax-only", f"-I{RUNTIME}", path], path.parent, 0)
    assert done.stderr == ""


@SOURCES
def test_same_program_same_bytes(source, words):
    first = source(*words).read_bytes()
    assert source(*words).read_bytes() == first


def test_readable(source):
    text = source("tiny.mdl").read_text()
    assert "/* h.attn.q, tiny.mdl:24:9 */" in text
    assert re.search(r"float \*attn_q = \(float \*\)\(?frame.*; /\* \[batch 4, seq 32, heads 4, head 16\] \*/", text)
    assert re.search(r"for \(int64_t h_copy = 0; h_copy < 3; h_copy\+\+\)", text)
    assert re.search(r"RT_RUN\(rt, \d+, rt_product_with\(rt, \d+, \w+, h_attn_wq, h_attn_bq, NULL, \w+\)\);", text)


def test_products_of_one_left_operand_are_one(source):
    """The weights of q, k and v lie side by side, as their biases and results do: one product a layer, forward."""
    text = source("tiny.mdl").read_text()
    layer = text[text.index("static void run_h_fwd("):]
    layer = layer[:layer.index("\n}\n")]
    assert re.findall(r"rt_product(?:_with)?\(rt, \d+, \w+, (h_attn_\w+),", layer) == ["h_attn_wq", "h_attn_wo"]
    assert "h_attn_wk" not in layer and "h_attn_wv" not in layer and "h_attn_bk" not in layer


def test_layers_do_not_lengthen_it(source):
    calls = [source("tiny.mdl", "-D", f"layers={n}").read_text().count("RT_RUN(") for n in (2, 40)]
    assert calls[0] == calls[1] > 100


# --- plan.json ------------------------------------------------------------------------------------------------

def test_plan(mpc):
    mpc("compile", "tiny.mdl", "-o", "out", "--no-cc", "-D", "layers=2", "--set", "train.batch=8")
    plan = json.loads((mpc.directory / "out/plan.json").read_text())
    settings = {entry["name"]: entry for entry in plan["settings"]}
    assert settings["train.batch"] == {"name": "train.batch", "value": "8", "unit": "sequences", "from": "command line"}
    assert settings["train.microbatch"]["from"].startswith("tiny.mdl:")
    assert settings["const.layers"]["value"] == "2"
    assert plan["model"] == {"name": "tiny", "source": "tiny.mdl", "parameters": 118528, "tensors": 36}
    assert settings["parallel.mesh.dp"]["value"] == "1" and settings["parallel.mesh.dp"]["unit"] == "ranks"
    assert plan["work"]["tokens_per_step"] == 8 * 32 and plan["work"]["micro_batches_per_step"] == 2
    assert "program" not in plan["files"]


def test_plan_memory_adds_up(mpc):
    mpc("compile", "tiny.mdl", "-o", "out", "--no-cc")
    memory = json.loads((mpc.directory / "out/plan.json").read_text())["memory"]
    classes = memory["classes"]
    assert sum(classes.values()) + memory["unused"] == memory["arena"] and memory["unused"] >= 0
    assert classes.pop("master weights") == 0 and min(classes.values()) > 0  # fp32: weights are their own masters
    assert classes["weights"] == 4 * 168512 <= classes["gradients"]  # the sum, and what one micro-batch adds to it
    assert classes["optimizer state"] == 2 * classes["weights"]


def test_plan_flops(mpc):
    """By the convention that it names, worked out by hand: 6 N and 12 L E S a token, N without embeddings looked up."""
    mpc("compile", "tiny.mdl", "-o", "out", "--no-cc")
    work = json.loads((mpc.directory / "out/plan.json").read_text())["work"]
    layers, seq, embed, vocab, tokens = 3, 32, 64, 256, 16 * 32
    products = layers * 12 * embed * embed + vocab * embed
    assert work["flops_per_step"] == tokens * (6 * products + 12 * layers * embed * seq)


CHANNELS = """
dim batch
dim row = 6
dim col = 5
dim c = 8
dim ky = 3
dim kx = 3
model channels {
    input x : f32[batch, row, col, c]
    param w : [ky, kx, c] = normal(0.1)
    loss mean(square(conv(x, w, row -> (row, ky), col -> (col, kx), padding = 1)))
}
train { batch = 4 }
"""


def test_plan_flops_of_channels(mpc):
    """A convolution of each channel by itself runs as a sum of rows, and its work is that of a product all the same."""
    (mpc.directory / "channels.mdl").write_text(CHANNELS)
    mpc("compile", "channels.mdl", "-o", "out", "--no-cc")
    work = json.loads((mpc.directory / "out/plan.json").read_text())["work"]
    assert work["flops_per_step"] == 3 * 2 * 4 * 6 * 5 * 8 * 3 * 3


def test_trainer_prints_its_plan(trainer):
    folder = trainer("tiny.mdl")
    printed = start([folder / "trainer", "--plan"], folder, 0).stdout
    assert printed.rstrip("\n") == (folder / "plan.json").read_text().rstrip("\n")


def test_stale_program_is_removed(mpc):
    (mpc.directory / "out").mkdir()
    (mpc.directory / "out/trainer").write_bytes(b"\177ELF, of another model")
    mpc("compile", "tiny.mdl", "-o", "out", "--no-cc")
    assert not (mpc.directory / "out/trainer").exists()


# --- What it computes -----------------------------------------------------------------------------------------

def losses(log):
    return [entry["loss"] for entry in log], [entry["grad_norm"] for entry in log]


@pytest.mark.parametrize("model, options", [
    ("tiny.mdl", ["--set", "train.microbatch=16"]),
    ("tiny.mdl", ["--set", "train.microbatch=2", "--recompute=selective"]),
    ("tiny.mdl", ["--recompute=full"]),
    ("mixed.mdl", ["--set", "train.microbatch=8"]),
    ("mixed.mdl", ["--set", "train.microbatch=1", "--recompute=full"]),
], ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_neither_micro_batches_nor_recomputation_show(trainer, train, model, options):
    expected, got = train(trainer(model), 5), train(trainer(model, *options), 5)
    for a, b in zip(losses(expected), losses(got)):
        assert a == pytest.approx(b, rel=2e-5) and len(a) == 5
    assert expected[0]["loss"] != expected[1]["loss"]


def renamed(checkpoint, change):
    """A checkpoint (safetensors) whose tensors have other names."""
    length, = struct.unpack("<Q", checkpoint[:8])
    header = {change(name): entry for name, entry in json.loads(checkpoint[8:8 + length]).items()}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + checkpoint[8 + length:]


def test_a_loop_is_its_unrolling(mpc, trainer, train, tmp_path):
    text = (tmp_path / "tiny.mdl").read_text()
    turns = "".join(f"    x = layer(x) as h{i}\n" for i in range(3))
    text = text.replace("    repeat layers { x = layer(x) as h }\n", turns)
    text = text.replace(", pp = 1", "").replace("    pipeline h over pp, schedule = 1f1b\n", "")
    (tmp_path / "unrolled.mdl").write_text(text)
    mpc("compile", "unrolled.mdl", "-o", "unrolled")
    train(trainer("tiny.mdl"), 2, "--save", "two")
    expected = train(trainer("tiny.mdl"), 6, "--load", "two")
    (tmp_path / "log").unlink()
    flat = renamed((tmp_path / "two").read_bytes(), lambda name: re.sub(r"\bh\.(\d)\.", r"h\1.", name))
    (tmp_path / "flat").write_bytes(flat)
    got = train(tmp_path / "unrolled", 6, "--load", "flat")
    for a, b in zip(losses(expected), losses(got)):
        assert a[-4:] == pytest.approx(b, rel=2e-5) and len(b) == 4


@pytest.mark.parametrize("precision, bound", [("bf16", 5e-3), ("fp16", 5e-4)])
def test_narrow_precision_is_near(trainer, train, precision, bound):
    options = ["--set", f"train.precision={precision}"]
    expected, got = train(trainer("mixed.mdl"), 5), train(trainer("mixed.mdl", *options), 5)
    assert losses(got)[0] == pytest.approx(losses(expected)[0], rel=bound)
    assert losses(got)[0] != losses(expected)[0]
    assert ("loss_scale" in got[0]) == (precision == "fp16")


def test_it_learns_and_samples(trainer, train, tmp_path):
    log = train(trainer("tiny.mdl"), 60)
    assert log[-1]["loss"] < log[0]["loss"] - 1.5


def test_threads_do_not_show(trainer, train):
    """Kernels add in one order for any number of threads; oneDNN's products do not without AVX-512, where they may be rounded
    otherwise."""
    one, two = (train(trainer("mixed.mdl", threads=2), 4, "--threads", count) for count in (1, 2))
    has_one_order = "avx512f" in (Path("/proc/cpuinfo").read_text().split())
    for figures, others in zip(losses(one), losses(two)):
        assert figures == (others if has_one_order else pytest.approx(others, rel=1e-6))


# --- Inputs and evaluation --------------------------------------------------------------------------------------------

def read_tensors(path):
    raw = path.read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__")
    return {name: np.frombuffer(raw, "<f4", offset=8 + length + entry["data_offsets"][0],
                                count=int(np.prod(entry["shape"]))).reshape(entry["shape"]).astype(float)
            for name, entry in header.items()}


@pytest.mark.parametrize("options", [(), ("--set", "train.microbatch=8"), ("--set", "train.microbatch=1")], ids=str)
def test_each_input_is_fed_from_its_row(trainer, train, tmp_path, options):
    """The first token of each sequence, the one after it, and all of them: the loss says which."""
    log = train(trainer("first.mdl", *options), 2, "--save", "end")
    weights, text = read_tensors(tmp_path / "end"), np.frombuffer((tmp_path / "text").read_bytes(), np.uint8)
    for step, line in enumerate(log):
        rows = np.array([text[(8 * step + n) * 8:][:9] for n in range(8)])
        logits = weights["c"][rows[:, :-1]]
        scores = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, rows[:, 1:, None], -1)[..., 0]
        expected = (weights["a"][rows[:, 0]] + 2 * weights["b"][rows[:, 1]]).mean() + scores.mean()
        assert line["loss"] == pytest.approx(expected, rel=1e-5)


def test_evaluation_is_the_same_whatever_the_micro_batch(trainer, train, tmp_path):
    """Of so many batches, not micro-batches; the data differ from one to the next."""
    losses = {}
    for micro in (1, 4, 16):
        folder = trainer("tiny.mdl", "--set", f"train.microbatch={micro}")
        for batches in (1, 3):
            said = start([folder / "trainer", "--steps", 0, "--eval-data", "text", "--eval-batches", batches], tmp_path, 0)
            losses[micro, batches] = float(said.stdout.removeprefix("eval loss "))
    for batches in (1, 3):
        assert losses[1, batches] == pytest.approx(losses[16, batches], abs=2e-6)
        assert losses[4, batches] == pytest.approx(losses[16, batches], abs=2e-6)
    assert losses[16, 1] != pytest.approx(losses[16, 3], abs=1e-4)


def test_evaluation_of_a_batch_is_its_loss(trainer, train):
    """Whatever counts in a micro-batch, and if the loss is a sum; nothing is learned."""
    found = []
    for micro in (1, 4, 16):
        folder = trainer("masked.mdl", "--set", f"train.microbatch={micro}")
        log = train(folder, 1, "--eval-data", "text", "--eval-batches", 1)
        assert log[0]["eval_loss"] == pytest.approx(log[0]["loss"], rel=1e-6)
        found.append(log[0]["loss"])
    assert found == pytest.approx([found[0]] * 3, rel=1e-6)


def masked_loss(weights, text, sequences):
    """Of masked.mdl, in NumPy: over all labels that count, and the sum of squares for each batch of 16."""
    rows = text[np.arange(sequences)[:, None] * 8 + np.arange(9)]
    x = weights["wte"][rows[:, :-1]]
    logits = x @ weights["wte"].T
    scores = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, rows[:, 1:, None], -1)[..., 0]
    counts = rows[:, :-1] >= 105
    return (scores * counts).sum() / max(counts.sum(), 1) + 0.001 * (x ** 2).sum() * 16 / sequences, counts.sum()


def evaluated(folder, directory, *options, status=0):
    done = start([folder / "trainer", "--steps", 0, "--eval-data", "part", "--data-format", "bytes", *options], directory, status)
    return done.stdout.removeprefix("eval loss "), done.stderr


@pytest.mark.parametrize("micro", [1, 4, 16])
@pytest.mark.parametrize("sequences", [1, 3, 16, 27])
def test_evaluation_of_a_part_of_a_batch(trainer, tmp_path, micro, sequences):
    """Weighted by its labels, whatever a micro-batch is."""
    text = np.random.default_rng(sequences).integers(0, 256, sequences * 8 + 1).astype(np.uint8)
    text.tofile(tmp_path / "part")
    loss, _ = evaluated(trainer("masked.mdl", "--set", f"train.microbatch={micro}"), tmp_path, "--save", "a")
    assert float(loss) == pytest.approx(masked_loss(read_tensors(tmp_path / "a"), text, sequences)[0], rel=1e-5)


def test_where_no_label_counts(trainer, tmp_path):
    """A loss of 0 is said to be none: of steps, the first of them in a note, and of an evaluation."""
    folder = trainer("masked.mdl", "--set", "train.microbatch=4")
    bytes_of = {"all": range(16 * 8 + 1), "none": [50] * (16 * 8 + 1)}
    for name, numbers in bytes_of.items():
        (tmp_path / name).write_bytes(bytes(numbers))
    data = ["--data", "none", "--data-format", "bytes", "--print-every", 1]
    done = start([folder / "trainer", *data, "--eval-data", "none", "--steps", 3, "--log", "log"], tmp_path, 0)
    assert done.stderr.count("no label of the batch counts") == 1 and "note: step 1: no label" in done.stderr
    assert len(re.findall(r"step \d/3  loss [\d.]+ \(no label counts\)", done.stdout)) == 3
    assert re.search(r"  eval loss [\d.]+ \(no label counts\)", done.stdout)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["labels"] for line in lines] == [[0]] * 3 and lines[-1]["eval_labels"] == [0]
    (tmp_path / "part").write_bytes(bytes(bytes_of["none"]))
    assert evaluated(folder, tmp_path)[0].endswith(" (no label counts)\n")
    done = start([folder / "trainer", "--data", "all", *data[2:], "--steps", 1, "--log", "log", "--overwrite"], tmp_path, 0)
    assert "no label" not in done.stdout + done.stderr
    assert json.loads((tmp_path / "log").read_text())["labels"] == [128 - 105]


@pytest.mark.parametrize("place, line", [("x = wte[vocab = tokens]", "x = wte[vocab = tokens] - mean(wte[vocab = tokens], batch)"),
                                         (" + 0.001 * sum(square(x))", " + sqrt(0.001 * sum(square(x)))")])
def test_what_mixes_sequences_is_evaluated_by_batches(edited, tmp_path, place, line):
    """The part of a batch is left out, with a note that says where they are mixed."""
    program = edited(place, line, "masked.mdl")
    said = []
    for sequences in (16, 21):
        (tmp_path / "part").write_bytes(bytes(i * 89 % 251 for i in range(8 * sequences + 1)))
        said.append(evaluated(program.parent, tmp_path))
    assert said[0][0] == said[1][0] and "leaves out" not in said[0][1]
    assert re.search(r"note: evaluation leaves out the last 5 of 21 sequences: model.mdl:\d+:\d+ mixes those of a batch, so "
                     r"that only whole batches of 16 are evaluated", said[1][1])
    assert "leaves out" not in evaluated(program.parent, tmp_path, "--eval-batches", 1)[1]
    (tmp_path / "part").write_bytes(bytes(8 * 3 + 1))
    assert "one batch needs 129 tokens" in evaluated(program.parent, tmp_path, status=1)[1]


def test_a_penalty_beside_the_mean_is_evaluated_once(edited, tmp_path):
    """Whatever part of a batch is evaluated."""
    said = []
    for penalty in ("0", "0.5 * sum(square(wte))"):
        program = edited("0.001 * sum(square(x))", penalty, "masked.mdl")
        (tmp_path / "part").write_bytes(bytes(i * 89 % 251 for i in range(8 * 21 + 1)))
        said.append(float(evaluated(program.parent, tmp_path, "--save", "a", "--overwrite")[0]))
    weights = read_tensors(tmp_path / "a")["wte"]
    assert said[1] - said[0] == pytest.approx(0.5 * (weights ** 2).sum(), rel=1e-5)


# --- Indices and quotients --------------------------------------------------------------------------------------------

@pytest.fixture
def edited(tmp_path):
    """edited(old, new, model): the trainer of a model with another line, in tmp_path/out, beside a text."""
    def make(old, new, model="tiny.mdl", *options):
        (tmp_path / "text").write_bytes(bytes(i * 7 % 97 for i in range(20000)))
        source = (HERE / model).read_text()
        assert source.count(old) == 1
        (tmp_path / "model.mdl").write_text(source.replace(old, new))
        start([MPC, "compile", "model.mdl", "-o", "out", "--cflags=-O0", *options], tmp_path, 0, OMP_NUM_THREADS="1")
        return tmp_path / "out" / "trainer"
    return make


@pytest.mark.parametrize("index, bad", [("tokens + 200", range(256, 297)), ("tokens - 1", [-1])])
def test_computed_index_out_of_range(edited, tmp_path, index, bad):
    """Of a step and of an evaluation; an index in range is no error, whatever makes it."""
    trainer = edited("wte[vocab = tokens]", f"wte[vocab = {index}]")
    for options in (["--data", "text", "--steps", 2, "--save", "a"], ["--eval-data", "text", "--steps", 0]):
        errors = [line for line in start([trainer, *options], tmp_path, 1).stderr.splitlines() if line.startswith("error")]
        found = re.fullmatch(r"error: model.mdl:51:13: index (-?\d+) of dim 'vocab' is out of range: it must be from 0 to 255; "
                             r"fix the expression that computes it \(nothing was saved from this step on\)", errors[0])
        assert len(errors) == 1 and int(found[1]) in bad
    assert not (tmp_path / "a").exists()
    start([edited("wte[vocab = tokens]", "wte[vocab = tokens + 150]"), "--data", "text", "--steps", 1], tmp_path, 0)


def test_computed_index_of_a_dim_that_it_has(edited, tmp_path):
    """The compiler's own name of the dim, which the index has too, is nothing to a user."""
    errors = start([edited("wte[vocab = tokens]", "wte[vocab = tokens][seq = tokens + 30]"), "--data", "text", "--steps", 1], tmp_path, 1).stderr
    assert re.search(r"error: model.mdl:51:\d+: index \d+ of dim 'seq' is out of range: it must be from 0 to 31;", errors)


@pytest.mark.parametrize("options", [(), ("--set", "train.precision=bf16")], ids=str)
def test_computed_label_out_of_range(edited, tmp_path, options):
    trainer = edited("cross_entropy(logits, labels, vocab)", "cross_entropy(logits, labels + 200, vocab)", "tiny.mdl", *options)
    errors = start([trainer, "--data", "text", "--steps", 2], tmp_path, 1).stderr
    assert re.search(r"error: model.mdl:54:\d+: index (25[6-9]|2[6-9]\d) of dim 'vocab' is out of range", errors)
    for label in ("labels + 150", "where(labels > 90, -100, labels + 150)"):
        good = edited("cross_entropy(logits, labels, vocab)", f"cross_entropy(logits, {label}, vocab)", "tiny.mdl", *options)
        start([good, "--data", "text", "--steps", 1, "--log", "log", "--overwrite"], tmp_path, 0)
        assert json.loads((tmp_path / "log").read_text())["loss"] == pytest.approx(5.6, abs=0.2)


def test_label_that_a_repeat_carries(edited, tmp_path):
    """The labels of the first turn are data, those of the second are not."""
    lines = """lab = labels
    entropy = cross_entropy(logits, lab, vocab)
    repeat 2 {
        entropy = entropy + cross_entropy(logits, lab, vocab)
        lab = lab + 200
    }
    loss mean(entropy)"""
    trainer = edited("loss mean(cross_entropy(logits, labels, vocab))", lines)
    errors = start([trainer, "--data", "text", "--steps", 2], tmp_path, 1).stderr
    assert re.search(r"error: model.mdl:57:\d+: index (25[6-9]|2[6-9]\d) of dim 'vocab' is out of range", errors)


def test_quotient_by_zero_is_zero(edited, tmp_path):
    """Tokens are below 97, so that all of these are 0."""
    trainer = edited("wte[vocab = tokens]", "wte[vocab = tokens / (tokens / 100)]")
    start([trainer, "--data", "text", "--steps", 1, "--log", "log"], tmp_path, 0)
    other = edited("wte[vocab = tokens]", "wte[vocab = tokens * 0]")
    start([other, "--data", "text", "--steps", 1, "--log", "other"], tmp_path, 0)
    first, second = (json.loads((tmp_path / name).read_text())["loss"] for name in ("log", "other"))
    assert first == second


def instructions_elsewhere():
    """Flags for instructions that this processor lacks, and what they are called: those of Xeon Phi and of Bulldozer."""
    has = Path("/proc/cpuinfo").read_text()
    return [(flag, name) for flag, name in [("-mavx512er", "avx512er"), ("-mfma4", "fma4")] if name not in has]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="of x86-64")
@pytest.mark.parametrize("cc", ["gcc", "clang-14"])
def test_instructions_that_the_processor_lacks(mpc, cc):
    """The trainer says which, whatever it is asked, and does not end with a signal; nor does that of this processor."""
    flags, names = zip(*instructions_elsewhere())
    mpc("compile", "tiny.mdl", "-o", "out", f"--cc={cc}", f"--cflags=-O0 {' '.join(flags)}")
    for question in ("--version", "--help", "--steps=0"):
        said = start([mpc.directory / "out/trainer", question], mpc.directory, 1)
        assert said.stdout == "" and said.stderr.startswith("error: this processor lacks what the trainer is compiled for: ")
        assert all(name in said.stderr for name in names) and "mpc compile --march=x86-64-v3" in said.stderr
    for march in ([], ["--march=x86-64"]):
        mpc("compile", "tiny.mdl", "-o", "out", f"--cc={cc}", "--cflags=-O0", *march)
        assert "tiny, compiled from" in start([mpc.directory / "out/trainer", "--version"], mpc.directory, 0).stdout


def test_what_is_said_while_the_c_compiler_runs(mpc):
    """Before it has ended: it may take minutes."""
    slow = mpc.directory / "slow"
    slow.write_text('#!/bin/sh\necho "compiler starts"\n')
    slow.chmod(0o755)
    said = mpc("compile", "tiny.mdl", "-o", "out", f"--cc={slow}", status=1).stdout.splitlines()
    line = said.index(f"  cc     {slow} compiles out/trainer.c for this processor (--march names others)")
    assert said[line + 1:] and set(said[line + 1:]) == {"compiler starts"}, "once for each unit, and to link"
    said = mpc("compile", "tiny.mdl", "-o", "out", f"--cc={slow}", "--march=x86-64-v3", status=1).stdout
    assert f"  cc     {slow} compiles out/trainer.c\n" in said


PLURALS = re.compile(r"\b1 (micro-batches|tokens|records|sequences|ranks|tensors|parameters|stages|rounds|steps|files)\b")
ODD = re.compile(r"\b(0\.00|\d{4,}\.\d+|\d\.?\d*e[-+]\d+) ?([kMGTP]?B|[kMGTP]?FLOP)\b")
LEAST = """
dim batch
dim few = 2
model least {
    input x : f32[batch, few]
    param w : [few] = normal(1.0)
    loss mean(mean(w * x, few))
}
train { batch = 1 }
"""
MOST = """
dim batch
dim seq = 4096
dim vocab = 1000000
dim wide = 1000000
model most {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param a : [vocab, wide] = normal(1.0)
    loss mean(cross_entropy(dot(a[vocab = tokens], a, wide), labels, vocab))
}
train {
    batch = 1000
    microbatch = 1000
}
"""


@pytest.mark.parametrize("model", [LEAST, MOST], ids=["least", "most"])
def test_amounts_in_all_that_is_printed(mpc, model):
    """With the unit that fits and the plural that fits, of the smallest model and one that no machine holds."""
    (mpc.directory / "a.mdl").write_text(model)
    name = "w" if model is LEAST else "a"
    for words in (["check"], ["report"], ["explain", name], ["compile", "-o", "out", "--no-cc", "--dump-ir=ir"]):
        done = mpc(words[0], "a.mdl", *words[1:])
        for text in (done.stdout + done.stderr, (mpc.directory / "out/trainer.c").read_text() if "out" in words else ""):
            assert not PLURALS.findall(text) and not ODD.findall(text), text
    assert ("768 B" if model is LEAST else "TB") in mpc("report", "a.mdl").stdout
    for path in (mpc.directory / "ir").iterdir():
        head = path.read_text().split("module")[0]
        assert not ODD.findall(head), head


def test_amounts_of_a_trainer(mpc):
    (mpc.directory / "a.mdl").write_text(LEAST)
    mpc("compile", "a.mdl", "-o", "out", "--cflags=-O0")
    np.save(mpc.directory / "x.npy", np.ones((1, 2), np.float32))
    done = start([mpc.directory / "out/trainer", "--data", "x=x.npy", "--steps", "1"], mpc.directory, 0)
    assert "1 record of x" in done.stderr and not PLURALS.findall(done.stdout + done.stderr) and not ODD.findall(done.stderr)
