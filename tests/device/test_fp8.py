"""Products of numbers of 8 bits: taken where they are right and faster, and otherwise left alone; on one rank and on several."""
import array
import json
import re

import pytest
from conftest import BUILD, Trainer, copy_kernels, emulated, planned_bytes, read_log, start
from test_one_rank import assert_same, train
from test_ranks import run

STEPS = 3
FAST = {"EMULATED_FP8": "fast"}  # 16 bits are slow

MODEL = """
dim batch
dim seq   = 128
dim embed = 128
dim ff    = FF
dim vocab = 240

block mlp(x: [..., embed]) {
    param up   : [embed, ff] = normal(0.02)
    param bias : [ff]        = zeros
    param down : [ff, embed] = normal(0.02)
    return dot(gelu_tanh(dot(x, up, embed) + bias), down, ff)
}

model m {
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param wte    : [vocab, embed]  = normal(0.02)
    x = wte[vocab = tokens]
    repeat 2 {
        x = x + (mlp(x) as h)
    }
    loss mean(cross_entropy(dot(x, wte, embed), labels, vocab))
}

train {
    optimizer = adamw(lr = 1e-3)
    precision = fp8
    batch     = 2
}

parallel {
    mesh dp = 1
    shard batch over dp
}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """made(target, *options, ff=256): its trainer, made once."""
    trainers = {}

    def make(target, *options, ff=256):
        key = (target, options, ff)
        if key not in trainers:
            folder = tmp_path_factory.mktemp("fp8")
            (folder / "m.mdl").write_text(MODEL.replace("FF", str(ff)))
            flags = "-O0 -rdynamic" if target == "cuda" else "-O0"
            start([BUILD / "mpc", "compile", "m.mdl", "--target", target, f"--cflags={flags}", *options, "-o", folder], folder)
            trainers[key] = Trainer(folder, target, None)
        return trainers[key]
    return make


@pytest.fixture
def own_cache(cache, tmp_path):
    """The compiled kernels without what was found about products."""
    folder = tmp_path / "cache"
    folder.mkdir()
    copy_kernels(cache, folder)
    yield folder
    copy_kernels(folder, cache)


def said(trainer, data, folder, *options, environment=FAST, status=0):
    """(what is said of products, the whole, the log)"""
    folder.mkdir(exist_ok=True)
    done = start(trainer.command("--data", data, "--data-format", "bytes", "--steps", STEPS, "--log", "log", "--overwrite", *options),
                 folder, status, environment=environment.items())
    return [line for line in done.stderr.splitlines() if line.startswith("products:")], done.stderr, read_log(folder / "log")


def bits(log):
    return [(line["loss"], line["grad_norm"]) for line in log]


def in_eight_bits(notes):
    return tuple(map(int, re.search(r"^products: (\d+) of (\d+) in 8 bits \(--no-fp8: none\)$", notes[-1], re.M).groups()))


@pytest.mark.parametrize("ff", [256, 208])  # 208: the last tile of lines is not full, and ff has no blocks of 128
def test_training(ff, made, data, tmp_path, own_cache):
    trainer = Trainer(made("cuda", ff=ff).folder, "cuda", own_cache)
    reference = train(made("c", ff=ff), data, tmp_path / "c")
    notes, _, log = said(trainer, data, tmp_path / "cuda")
    used, described = in_eight_bits(notes)
    assert used == described == (6 if ff == 208 else 9) and len(notes) == described + 1
    assert all(re.search(r"\d+ x \d+ x \d+: \S+ ms in 8 bits( by squares)?, \S+ ms in 16$", note) for note in notes[:-1]), notes
    assert_same(log, reference, "fp8")
    assert bits(said(trainer, data, tmp_path / "graphless", "--no-graph")[2]) == bits(log)
    own = said(trainer, data, tmp_path / "own", "--no-fp8")
    assert not own[0]
    assert_same(own[2], reference, "fp8")


# x is read by two products, which need not be computed alike.
SHARED = MODEL.replace("    return dot(gelu", "    param one : [embed, side] = normal(0.02)\n    param two : [side, embed] = normal(0.02)\n"
                       "    return dot(tanh(dot(x, one, embed)), two, side) + dot(gelu").replace("dim ff ", "dim side = 128\ndim ff ")
SHARED = SHARED.replace("embed = 128", "embed = 256").replace("lr = 1e-3", "lr = 0.05, eps = 1e-12")  # tiny gradients count
CHANGES = {"none": lambda program: program,
           "rounded": lambda program: re.sub(r"(dot_e4m3 (%\S+), (%\S+), )%\S+, %\S+ \{", r"\1\2, \3 {", program)}


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """changed(how, ff): the trainer of SHARED whose products of 8 bits read what CHANGES gives them."""
    trainers = {}

    def make(how, ff=256):
        if (how, ff) not in trainers:
            folder = tmp_path_factory.mktemp("changed")
            (folder / "m.mdl").write_text(SHARED.replace("FF", str(ff)))
            start([BUILD / "mpc", "compile", "m.mdl", "--target=cuda", "--compile-to=fuse", "-o", "m.mir"], folder)
            program = CHANGES[how]((folder / "m.mir").read_text())
            assert "dot_e4m3" in program and (how == "none") == (program == (folder / "m.mir").read_text())
            (folder / "m.mir").write_text(program)
            start([BUILD / "mpc", "compile", "--compile-from=m.mir", "--target=cuda", "--cflags=-O0 -rdynamic", "-o", folder], folder)
            trainers[how, ff] = Trainer(folder, "cuda", None)
        return trainers[how, ff]
    return make


def write_uneven(checkpoint, path, ff):
    """Its weights, with every other column of `up` far below the largest numbers of its squares: these are rounded to zero."""
    raw = checkpoint.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header, parts, at = {}, [], 0
    for name, entry in json.loads(raw[8:begin]).items():
        if name != "__metadata__" and not name.startswith("optimizer."):
            first, end = entry["data_offsets"]
            values = array.array("f", raw[begin + first:begin + end])
            if name.endswith(".up"):
                values = array.array("f", (x * 2.0**-20 if i % ff % 2 else x for i, x in enumerate(values)))
            header[name] = {**entry, "data_offsets": [at, at := at + end - first]}
            parts.append(values.tobytes())
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def kernels_run(trace):
    """How often each row of a trace's table of kernels that is no product has run."""
    events = [event["args"]["kernel"] for event in json.loads(trace.read_text())["traceEvents"] if event.get("cat") == "fused"]
    return {kernel: events.count(kernel) for kernel in events}


@emulated
@pytest.mark.parametrize("ff, fp8, squares", [(256, "fast", "fast"), (256, "fast", "slow"), (256, "wide", "fast"), (208, "fast", "fast")])
def test_products_round_their_operands(ff, fp8, squares, changed, data, tmp_path, own_cache):
    """The bits are those of products whose operands kernels have rounded, whichever products are computed in 8 bits;
    these kernels run only where one of them is not."""
    environment = {"EMULATED_FP8": fp8, "EMULATED_SQUARES": squares}
    run = {}
    for how in CHANGES:
        trainer = Trainer(changed(how, ff).folder, "cuda", own_cache)
        if how == "none":
            start(trainer.command("--data", data, "--data-format", "bytes", "--steps", 0, "--no-fp8", "--save", "start.safetensors"), tmp_path)
            write_uneven(tmp_path / "start.safetensors", tmp_path / "uneven.safetensors", ff)
        notes, _, log = said(trainer, data, tmp_path / how, "--load", tmp_path / "uneven.safetensors", "--trace", "trace",
                             environment=environment)
        run[how] = bits(log), in_eight_bits(notes), sum(kernels_run(tmp_path / how / "trace").values())
    (own, used, launches), (rounded, as_many, more) = run["none"], run["rounded"]
    assert own == rounded and used == as_many
    assert 0 < used[0] and (used[0] == used[1]) == (fp8 == "fast") and launches < more, (used, launches, more)


@emulated
@pytest.mark.parametrize("ff, products", [(256, 7), (208, 0)])  # 208: squares would be of 104 x 128
def test_squares(ff, products, made, data, tmp_path, own_cache):
    """Weights have a scale for 128 x 128 elements where that is the fastest way that is right: in both products with a
    weight, not in its gradient.  The other way gives the same."""
    trainer = Trainer(made("cuda", ff=ff).folder, "cuda", own_cache)
    reference = train(made("c", ff=ff), data, tmp_path / "c")
    for how, expected in (("fast", products), ("slow", 0), ("none", 0), ("wrong", 0)):
        for path in own_cache.glob("*.fp8"):
            path.unlink()
        notes, _, log = said(trainer, data, tmp_path / how, environment={**FAST, "EMULATED_SQUARES": how})
        used, described = in_eight_bits(notes)
        assert used == described and sum("by squares" in note for note in notes) == expected, (how, notes)
        assert_same(log, reference, "fp8")


@emulated
def test_where_it_does_not_help(made, data, tmp_path, own_cache):
    """It is not taken, whatever is wrong with it, and products in 16 bits give the bits that they give without it."""
    trainer = Trainer(made("cuda").folder, "cuda", own_cache)
    own = bits(said(trainer, data, tmp_path / "own", "--no-fp8", environment={})[2])
    not_right = "in 8 bits is not what it is in 16 bits: 16 bits are used"
    for how, first in (("none", "0 of"), ("slow", "0 of"), ("wrong", not_right), ("varies", not_right), ("unknown", None)):
        for path in own_cache.glob("*.fp8"):
            path.unlink()
        notes, text, log = said(trainer, data, tmp_path / how, environment={"EMULATED_FP8": how})
        assert any(first in note for note in notes) if first else not notes, (how, notes)
        assert bits(log) == own and "33.55 MB workspace of libraries" in text, how


@emulated
def test_the_answer_is_kept(made, data, tmp_path, own_cache):
    """A later start does not try again: what it would find now does not count."""
    trainer = Trainer(made("cuda").folder, "cuda", own_cache)
    first = said(trainer, data, tmp_path / "first")
    kept = sorted(path.name for path in own_cache.glob("*.fp8"))
    second = said(trainer, data, tmp_path / "second", environment={"EMULATED_FP8": "slow"})
    assert kept and len(second[0]) == 1 and in_eight_bits(second[0]) == in_eight_bits(first[0]) and bits(second[2]) == bits(first[2])
    assert sorted(path.name for path in own_cache.glob("*.fp8")) == kept


@emulated
def test_the_fastest_kernel(made, data, tmp_path, own_cache):
    """Of those that cuBLASLt finds; a later start takes it, too."""
    trainer = Trainer(made("cuda").folder, "cuda", own_cache)
    kernels = {**FAST, "EMULATED_KERNELS": "4", "EMULATED_SLOW": "1", "EMULATED_CHOICES": "choices"}
    for where, fastest in (("first", "3"), ("second", "1")):
        notes, _, _ = said(trainer, data, tmp_path / where, environment={**kernels, "EMULATED_FASTEST": fastest})
        recorded = [line for line in (tmp_path / where / "choices").read_text().splitlines() if "recorded" in line]
        assert in_eight_bits(notes) == (9, 9) and recorded.count("3 recorded") >= 9, (where, recorded)


@emulated
def test_memory(made, data, tmp_path, own_cache):
    """Encoded operands are beside the planned memory, in the log; without room 16 bits are used."""
    trainer = Trainer(made("cuda").folder, "cuda", own_cache)
    _, _, log = said(trainer, data, tmp_path / "much")
    codes = 2 * 128 * 128 + 2 * 128 * 256  # of the largest pair: a byte each, and 4 for the scale of each 128
    assert log[-1]["peak_bytes"] == planned_bytes(trainer) + codes + codes // 32
    little = {**FAST, "EMULATED_BYTES": str(planned_bytes(trainer) + (1 << 30) + 50_000)}
    notes, text, _ = said(trainer, data, tmp_path / "little", environment=little)
    assert not notes and "33.55 MB workspace of libraries" in text


@emulated
def test_ranks(made, data, tmp_path, own_cache):
    """All ranks use it, or none does: what they compute redundantly stays equal."""
    reference = said(Trainer(made("cuda").folder, "cuda", own_cache), data, tmp_path / "one")[2]
    trainer = Trainer(made("cuda", "--mesh", "dp=2").folder, "cuda", own_cache)
    done = run(trainer, "dp=2", data, tmp_path / "two", steps=STEPS, of_rank="export EMULATED_FP8=fast;")
    assert in_eight_bits([done.stderr]) == (7, 7)
    assert_same(read_log(tmp_path / "two/log"), reference, "fp8")
    done = run(trainer, "dp=2", data, tmp_path / "half", steps=STEPS,
               of_rank="export EMULATED_FP8=fast; test $OMPI_COMM_WORLD_RANK = 1 && export EMULATED_FP8=unknown;")
    assert "in 8 bits" not in done.stderr
    assert_same(read_log(tmp_path / "half/log"), reference, "fp8")


def test_the_option_has_an_effect(compiled, data, tmp_path):
    trainer = compiled("chars", "cuda", (("precision", "bf16"),))
    done = start(trainer.command("--data", data, "--steps", 1, "--no-fp8"), tmp_path, 2)
    assert "--no-fp8 has no effect: the model was compiled with precision = bf16" in done.stderr
