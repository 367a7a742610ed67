"""Eight steps as one process and as several: no layout changes the loss or the gradient norm of any step.

The learning rate, 1e-3 of AdamW, moves the loss by some hundredths within the eight steps, a thousand times the tolerance
of fp32, so that a wrong gradient or update of any tensor shows in the next step; at ten times as much the runs are
chaotic: rounding grows from step to step.

Tolerances.  fp32: 1e-5.  The norm is the root of sums of 8192 squares (the embedding), each addition rounded by
2^-24: sqrt(8192) 2^-24 = 5e-6 where they are added in another order, and half of it after the root.

bf16 and fp16, with u the largest relative error of one rounding (2^-8, 2^-11): a term of a gradient goes through about
50 roundings, forward and back, of random sign, and a gradient is a mean of such terms over 128 tokens: its norm errs
by about sqrt(50 / 128) u, and 2 u is three times that.  The loss has 25 roundings behind each logit, whose size is half
at most here: 0.5 sqrt(25 / 128) u of a loss of 5, so 0.045 u; u / 8 is near three times that.
"""
import itertools
import json
import re

import pytest
from conftest import EXTRA, HEADS, TCP, layout_of, read_log, some, start

STEPS = 8
ROUNDING = {"fp32": None, "bf16": 2.0**-8, "fp16": 2.0**-11}
TOLERANCE = {p: {"loss": u / 8, "grad_norm": 2 * u} if u else {"loss": 1e-5, "grad_norm": 1e-5}
             for p, u in ROUNDING.items()}
SEQ = " else seq"
TWO_PIECES, PIECES = " else seq (overlap = 2)", " else seq (overlap = 4)"
COMM = {"llama": (), "gpt2": TCP, "bert": TCP}  # over MPI, or not


def same_training(log, reference, precision="fp32"):
    """Says which step differs first, and by how much."""
    assert [line["step"] for line in log] == [line["step"] for line in reference]
    for line, expected in zip(log, reference):
        for key in ("loss_scale", "labels"):  # of bert: 15 % of all, drawn at random
            assert line.get(key) == expected.get(key), f"step {line['step']}: {key}"
        for key, tolerance in TOLERANCE[precision].items():
            if expected[key] is None:  # fp16: gradients that overflow
                assert line[key] is None
                continue
            error = abs(line[key] - expected[key]) / abs(expected[key])
            assert error <= tolerance, f"step {line['step']}: {key} {line[key]}, not {expected[key]} (off by {error:.1e})"


@pytest.fixture(scope="session")
def reference(compiled, text, tmp_path_factory):
    """reference(model, sizes, settings): the log of one process, which has no micro-batches and recomputes nothing."""
    logs = {}

    def run(model, sizes=(), settings=(), edit=None):
        key = repr((model, sizes, settings, edit))
        if key not in logs:
            trainer, folder = compiled(model, (), sizes, settings, edit=edit), tmp_path_factory.mktemp("reference")
            start(trainer.command("--data", text, "--data-format", "bytes", "--steps", STEPS, "--log", "log"), folder)
            logs[key] = read_log(folder / "log")
        return logs[key]
    return run


def test_the_reference_learns(reference):
    """Else equal losses would mean little."""
    for model in ("llama", "gpt2", "bert"):
        losses = [line["loss"] for line in reference(model)]
        assert losses[-1] < 0.98 * losses[0]
        assert any(line["grad_norm"] > 1 for line in reference(model)), "clipping should be seen at work"


# --- Kinds of layout, each for every model -------------------------------------------------------------------------

KINDS = {  # mesh, accumulation, settings of layout_of
    "dp2": (dict(dp=2), 1, {}),
    "dp2-zero1-acc4": (dict(dp=2), 4, dict(zero=1)),
    "dp2-zero2-acc4": (dict(dp=2), 4, dict(zero=2, recompute="full")),
    "dp2-zero3": (dict(dp=2), 1, dict(zero=3, recompute="full")),
    "tp2": (dict(tp=2), 1, {}),
    "tp2-seq": (dict(tp=2), 4, dict(otherwise=SEQ, recompute="selective")),
    "cp2": (dict(cp=2), 1, dict(recompute="full")),
    "dp4-zero1": (dict(dp=4), 1, dict(zero=1)),
    "cp4": (dict(cp=4), 1, {}),
    "tp4-seq": (dict(tp=4), 1, dict(otherwise=SEQ)),
    "dp2-cp2-zero2": (dict(dp=2, cp=2), 1, dict(zero=2)),
    "dp2-tp2-zero3-acc4": (dict(dp=2, tp=2), 4, dict(zero=3, otherwise=SEQ, recompute="selective")),
    "cp2-ring": (dict(cp=2), 4, dict(attend="ring", recompute="full")),
    "cp4-ring": (dict(cp=4), 1, dict(attend="ring")),
    "dp2-cp2-tp2-zero3-ring": (dict(dp=2, cp=2, tp=2), 1, dict(zero=3, otherwise=SEQ, attend="ring")),
    "dp2-cp2-tp2-zero3": (dict(dp=2, cp=2, tp=2), 1, dict(zero=3, otherwise=SEQ, recompute="selective")),
    "tp2-pieces": (dict(tp=2), 4, dict(otherwise=PIECES, recompute="selective")),
    "dp2-tp2-zero3-pieces": (dict(dp=2, tp=2), 4, dict(zero=3, otherwise=PIECES)),
    "dp2-tp2-zero1-sequences": (dict(dp=2, tp=2), 1, dict(zero=1, otherwise=PIECES)),  # pieces are some of several
}


def microbatch(ranks, accumulation):
    return 8 // (ranks.get("dp", 1) * accumulation)


MODELS = ["llama", "gpt2", "bert"]


# Without ALL some kinds, each for one of the models: every axis, stage of zero and policy, with and without micro-batches.
@pytest.mark.parametrize("model, kind", some(itertools.product(MODELS, KINDS), *(number % 3 * len(KINDS) + number
                                                                                 for number in (1, 2, 3, 4, 5, 8, 10, 11, 13, 14, 16, 17, 18))))
def test_layout(compiled, train, reference, model, kind):
    ranks, accumulation, how = KINDS[kind]
    trainer = compiled(model, layout_of(model, ranks, **how), (), {"microbatch": microbatch(ranks, accumulation)}, *COMM[model])
    same_training(train(trainer, STEPS), reference(model))


# --- Layouts of one model ------------------------------------------------------------------------------------------

ROWS = f"shard {HEADS['llama']} over a"
LLAMA = {  # lines of parallel { }, sequences a micro-batch, sizes
    "embed-over-second-axis": (("mesh a = 2, b = 2", ROWS, "shard embed over b"), 8, {}),
    "embed-over-second-axis-seq": (("mesh a = 2, b = 2", ROWS + SEQ, "shard embed over b", "recompute full"), 8, {}),
    "embed-over-second-axis-dp-zero3":
        (("mesh dp = 2, a = 2, b = 2", "shard batch over dp", ROWS, "shard embed over b", "zero 3 over dp"), 4, {}),
    "more-ranks-than-heads": (("mesh tp = 4", "shard (kv_heads, group), ff, vocab over tp"), 8, {"kv_heads": 2}),
    "more-ranks-than-heads-dp-zero1":
        (("mesh dp = 2, tp = 4", "shard batch over dp", "shard (kv_heads, group), ff, vocab over tp" + SEQ,
          "zero 1 over dp"), 4, {"kv_heads": 2}),
    "seq-over-two-axes": (("mesh a = 2, b = 2", "shard seq over a", "shard seq over b"), 8, {}),
    "ring-of-exchanges":
        (("mesh out = 2, inner = 2", "shard seq over out (attend = ring)", "shard seq over inner (attend = all_to_all)"), 8, {}),
    "heads-of-queries": (("mesh cp = 4", "shard seq over cp (attend = all_to_all)"), 8, {"kv_heads": 2, "group": 4}),
    "ring-of-parts": (("mesh out = 2, inner = 2", "shard seq over out (attend = ring)", "shard seq over inner"), 8, {}),
    "ring-of-six": (("mesh cp = 6", "shard seq over cp (attend = ring)"), 8, {"seq": 24}),
    "ring-of-blocks": (("mesh cp = 2", "shard seq over cp (attend = ring, blocks = 8)"), 8, {}),
    "gather-of-blocks": (("mesh dp = 2, cp = 4", "shard batch over dp", "shard seq over cp (blocks = 4)", "zero 3 over dp, cp"), 4, {}),
    "blocks-of-parts": (("mesh out = 2, inner = 2", "shard seq over out (blocks = 4)", "shard seq over inner"), 8, {}),
    "blocks-and-heads": (("mesh cp = 2, tp = 2", "shard seq over cp (blocks = 4)", f"shard {HEADS['llama']} over tp{SEQ}"), 8, {}),
    "one-block": (("mesh cp = 2", "shard seq over cp (blocks = 1)"), 8, {}),
    "straight-ring": (("mesh cp = 4", "shard seq over cp (attend = ring)"), 8, {"seq": 12}),
    "batch-over-two-axes": (("mesh a = 2, b = 2", "shard batch over a", "shard batch over b", "zero 2 over a"), 2, {}),
    "zero3-ahead":
        (("mesh dp = 2, tp = 2", "shard batch over dp", f"shard {HEADS['llama']} over tp{SEQ}",
          "zero 3 over dp (overlap_params, overlap_grads)", "recompute selective"), 4, {}),
    "zero3-over-two-axes":
        (("mesh dp = 2, cp = 2, tp = 2", "shard batch over dp", "shard seq over cp",
          f"shard {HEADS['llama']} over tp{SEQ}", "zero 3 over dp, cp"), 4, {}),
    "other-order-of-axes":
        (("mesh tp = 2, cp = 2, dp = 2", "shard seq over cp", "shard batch over dp",
          f"shard {HEADS['llama']} over tp{SEQ}", "zero 2 over dp"), 4, {}),
}


@pytest.mark.parametrize("name", some(LLAMA, *range(0, len(LLAMA), 2)))
def test_layout_of_llama(compiled, train, reference, name):
    layout, micro, sizes = LLAMA[name]
    same_training(train(compiled("llama", layout, sizes, {"microbatch": micro}, *TCP), STEPS), reference("llama", sizes))


def matrices(path):
    """The bytes of each weight of a product, and of its optimizer's state."""
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = {name: entry for name, entry in json.loads(raw[8:begin]).items() if name != "__metadata__"}
    return {name: raw[slice(*(begin + at for at in entry["data_offsets"]))] for name, entry in header.items()
            if len(entry["shape"]) > 1 and "h." in name}


@pytest.mark.parametrize("micro, comm, ways", [(1, (), (SEQ, PIECES)), (4, TCP, (TWO_PIECES, PIECES))])
def test_pieces_change_no_bit_of_a_product(compiled, train, tmp_path, micro, comm, ways):
    """Of one sequence, whose pieces lie one behind the other, and of several.  Products have the same sums, and so have the
    gradients of weights, and weights after a step.  What ranks sum over their own rows first, and these are others, are the
    loss and the gradients of gains, biases and embeddings.  Sizes are those of the example: for a few rows the library has other kernels.
    (Without pieces, several sequences have another order in memory, and gradients of weights another order of sums.)"""
    trained = []
    sizes = {"layers": 1, "seq": 128, "embed": 128}
    for otherwise in ways:
        layout = layout_of("chars", dict(tp=2), otherwise=otherwise)
        log = train(compiled("chars", layout, sizes, {"batch": 4, "microbatch": micro, "clip": 0}, *comm), 1, "--save", tmp_path / "a.safetensors")
        trained.append((log[0]["loss"], matrices(tmp_path / "a.safetensors")))
    (loss, weights), (other_loss, others) = trained
    assert loss == pytest.approx(other_loss, rel=1e-6)
    assert len(weights) > 10 and weights.keys() == others.keys()
    assert not [name for name in weights if weights[name] != others[name]]


def test_as_the_user_compiles(compiled, train, reference):
    """With mpc's own flags for the C compiler: vectors, and other orders within sums."""
    ranks, accumulation, how = KINDS["dp2-cp2-tp2-zero3"]
    layout = layout_of("llama", ranks, **how)
    trainer = compiled("llama", layout, (), {"microbatch": microbatch(ranks, accumulation)}, f"--cflags={EXTRA}")
    same_training(train(trainer, STEPS), reference("llama"))


# --- Short floats --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("model, precision, kind", some([(*how, kind) for how in [("llama", "bf16"), ("gpt2", "fp16"), ("bert", "bf16")]
                                                         for kind in ["dp2-zero2-acc4", "tp2-seq", "dp2-cp2-zero2"]], 2, 3, 7))
def test_short_floats(compiled, train, reference, model, precision, kind):
    ranks, accumulation, how = KINDS[kind]
    settings = {"precision": precision, "microbatch": microbatch(ranks, accumulation)}
    log = train(compiled(model, layout_of(model, ranks, **how), (), settings, *COMM[model]), STEPS)
    same_training(log, reference(model, (), {"precision": precision}), precision)


@pytest.mark.parametrize("kind", ["dp2-zero2-acc4", "tp2-seq"])
def test_overflow_of_fp16(compiled, train, reference, kind):
    """A gradient that one rank cannot represent: all of them skip the step and halve the loss scale."""
    larger = (r"loss mean\((.*)\)\n", r"loss 1000 * mean(\1)\n")
    ranks, accumulation, how = KINDS[kind]
    expected = reference("llama", (), {"precision": "fp16"}, larger)
    scales = [line["loss_scale"] for line in expected]
    assert scales[0] == 32768 and scales[-1] < scales[0] and expected[0]["grad_norm"] is None, scales
    settings = {"precision": "fp16", "microbatch": microbatch(ranks, accumulation)}
    log = train(compiled("llama", layout_of("llama", ranks, **how), (), settings, *TCP, edit=larger), STEPS)
    same_training(log, expected, "fp16")


# --- Gradients that are kept in bf16 -------------------------------------------------------------------------------

KEPT = {  # mesh, settings of layout_of, roundings of a gradient: by each micro-batch, and by each sum of two ranks
    "one": ({}, {}, 4),
    "dp2-zero1": (dict(dp=2), dict(zero=1), 5),
    "dp2-zero2": (dict(dp=2), dict(zero=2), 4),
    "tp2-seq": (dict(tp=2), dict(otherwise=SEQ, recompute="full"), 5),
    "cp2-zero3": (dict(cp=2), dict(zero=3, over="cp"), 4),
    "pp2-dp2-zero1-early": (dict(pp=2, dp=2), dict(zero=1, options="overlap_grads"), 6),
    "pp2-zb": (dict(pp=2), dict(schedule="zb"), 5),
    "pp2-dp2-zero2": (dict(pp=2, dp=2), dict(zero=2, schedule="gpipe"), 5),
}


@pytest.mark.parametrize("kind", some(KEPT, 0, 1, 3, 5, 7))
def test_kept_gradients(compiled, train, reference, kind):
    """Each rounding changes each number by at most 2^-9 of it, so all of them the norm by as much, and an update of AdamW,
    a ratio of means of gradients, by twice that.  The loss falls by a tenth at most in all steps together, and errs by as much of
    what it has fallen: 2 roundings 2^-9 / 10.  Beside that, what a layout changes in fp32."""
    ranks, how, roundings = KEPT[kind]
    settings = {"microbatch": 2 // ranks.get("dp", 1), "grad_storage": "bf16"}
    log = train(compiled("llama", layout_of("llama", ranks, **how) if ranks else (), (), settings, *(TCP if ranks else ())), STEPS)
    for line, expected in zip(log, reference("llama"), strict=True):
        assert line["loss"] == pytest.approx(expected["loss"], rel=roundings * 2.0**-9 / 5 + 1e-5)
        assert line["grad_norm"] == pytest.approx(expected["grad_norm"], rel=roundings * 2.0**-9 + 1e-5)
    assert any(abs(line["loss"] - expected["loss"]) > 1e-6 * line["loss"] for line, expected in zip(log, reference("llama"))), \
        "as if nothing were rounded"


CHUNKS = {  # model, mesh, micro-batches, chunks, how
    "one": ("llama", {}, 1, 4, {}),
    "one-tied-acc4": ("gpt2", {}, 4, 2, dict(recompute="full")),
    "dp2-zero2-acc4": ("bert", dict(dp=2), 4, 2, dict(zero=2, recompute="full")),
    "dp2-tp2-zero3": ("llama", dict(dp=2, tp=2), 1, 4, dict(zero=3, otherwise=SEQ)),
    "cp2-tp2": ("gpt2", dict(cp=2, tp=2), 2, 2, dict(otherwise=SEQ, recompute="selective")),
    "pp2-dp2-zero1": ("gpt2", dict(pp=2, dp=2), 2, 4, dict(zero=1)),
    "pp2-zb": ("llama", dict(pp=2), 4, 4, dict(schedule="zb")),
}


@pytest.mark.parametrize("kind", some(CHUNKS, 1, 2, 3, 4, 5))
def test_loss_in_chunks(compiled, train, reference, kind):
    """Against one process, which has all logits at once."""
    model, ranks, accumulation, chunks, how = CHUNKS[kind]
    settings = {"microbatch": microbatch(ranks, accumulation), "loss_chunks": chunks}
    log = train(compiled(model, layout_of(model, ranks, **how) if ranks else (), (), settings, *(TCP if ranks else ())), STEPS)
    same_training(log, reference(model))


def test_a_group_over_five_axes(compiled, train, reference):
    """The loss is a sum over all of them: over more than split any one dim."""
    layout = ("mesh a = 2, b = 2, c = 2, d = 2, e = 2", *(f"shard batch over {axis}" for axis in "abc"),
              *(f"shard seq over {axis}" for axis in "de"))
    log = train(compiled("chars", layout, {"layers": 1}, {"microbatch": 1}, *TCP), 3, "--timeout", 100)
    same_training(log, reference("chars", (("layers", 1),))[:3])


# --- Evaluation and samples ----------------------------------------------------------------------------------------

SAMPLED = {  # of chars: ranks, settings of layout_of
    "dp2-zero3": (dict(dp=2), dict(zero=3)),
    "tp4-seq": (dict(tp=4), dict(otherwise=SEQ)),
    "cp4": (dict(cp=4), {}),
    "dp2-cp2-tp2": (dict(dp=2, cp=2, tp=2), dict(zero=1)),
}


@pytest.fixture(scope="session")
def alone(compiled, text, tmp_path_factory):
    """Of one process: a folder with a checkpoint, and the lines that it prints."""
    folder, trainer = tmp_path_factory.mktemp("alone"), compiled("chars", (), (), {"optimizer.lr": 1e-2})
    start(trainer.command("--data", text, "--data-format", "bytes", "--steps", STEPS, "--save", "a"), folder)
    return folder, sampled(trainer, text, folder)


def sampled(trainer, text, folder):
    """(eval loss, sample): evaluated on 19 batches and 5 sequences, and 40 bytes, more than the model sees at once."""
    (folder / "part").write_bytes(text.read_bytes()[:(19 * 8 + 5) * 16 + 1])
    done = start(trainer.command("--steps", 0, "--load", folder / "a", "--eval-data", folder / "part", "--data-format", "bytes",
                                 "--sample", 40, "--prompt", "abc", "--temperature", 0.5), folder)
    evaluated, sample = done.stdout.splitlines()
    return float(re.fullmatch(r"eval loss ([\d.]+)", evaluated)[1]), sample


@pytest.mark.parametrize("kind", SAMPLED)
def test_evaluation_and_sample(compiled, text, alone, kind):
    """A byte is drawn by comparing a number with sums of probabilities: rounding of 1e-6 does not turn 40 of them."""
    folder, (loss, sample) = alone
    ranks, how = SAMPLED[kind]
    settings = {"optimizer.lr": 1e-2, "microbatch": microbatch(ranks, 1)}
    other, other_sample = sampled(compiled("chars", layout_of("chars", ranks, **how), (), settings, *TCP), text, folder)
    assert abs(other - loss) < 1e-5 * loss and other_sample == sample
    assert sample.startswith("abc") and len(set(sample)) > 5


def test_evaluation_on_the_way(compiled, train, text):
    layout = layout_of("llama", dict(dp=2, tp=2), zero=2, otherwise=SEQ)
    options = ["--eval-data", text, "--eval-every", 5, "--eval-batches", 3]
    lines = train(compiled("llama", layout, (), {"microbatch": 4}, *TCP), 10, *options)
    expected = train(compiled("llama"), 10, *options)
    same_training(lines, expected)
    losses = [(line["step"], line["eval_loss"]) for line in lines if "eval_loss" in line]
    assert [step for step, _ in losses] == [5, 10]
    for line, other in zip(lines, expected):
        assert line.get("eval_loss", 0) == pytest.approx(other.get("eval_loss", 0), rel=1e-5)
