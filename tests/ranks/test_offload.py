"""Tensors offloaded to disk: trainers do what they do with all of them in memory, in less of it.

Optimizer state and master weights are where kernels read and write them element by element: results are equal bit for
bit.  Weights that the model reads are fetched one by one, so that products which were one over several of them are
several: sums in another order, to the tolerances of test_layouts.py.  So are activations that one product makes.
"""
import json
import re

import pytest
from conftest import TCP, error_of, layout_of, read_log, some, start
from test_layouts import TOLERANCE, same_training

STEPS = 8
OPTIMIZER, PARAMS, BOTH, ACTIVATIONS = "optimizer", "params", "optimizer, params", "activations"
ALL = f"{BOTH}, {ACTIVATIONS}"
SETTINGS = (("batch", 16), ("microbatch", 2))
LAYOUTS = [dict(ranks=dict(dp=1)), dict(ranks=dict(dp=1), recompute="full"), dict(ranks=dict(dp=4), zero=0), dict(ranks=dict(dp=4), zero=1),
           dict(ranks=dict(dp=2, tp=2), zero=2), dict(ranks=dict(dp=4), zero=3), dict(ranks=dict(dp=2, tp=2), zero=3, options="gather = step"),
           dict(ranks=dict(tp=4), otherwise=" else seq"), dict(ranks=dict(dp=2, pp=2)), dict(ranks=dict(pp=4), schedule="zb"),
           dict(ranks=dict(pp=2, dp=2), zero=1, schedule="interleaved", chunks=2), dict(ranks=dict(cp=2, dp=2), attend="ring")]
CASES = [(model, precision, what, layout) for model in ("llama", "gpt2") for precision in ("fp32", "bf16", "fp16") for what in (OPTIMIZER, PARAMS, BOTH, ACTIVATIONS, ALL)
         for layout, how in enumerate(LAYOUTS) if ACTIVATIONS not in what or "pp" not in how["ranks"]]
PICKED = [CASES.index(case) for case in (
    ("llama", "fp32", OPTIMIZER, 0), ("gpt2", "bf16", OPTIMIZER, 4), ("llama", "fp32", BOTH, 10), ("llama", "bf16", BOTH, 5), ("gpt2", "fp16", PARAMS, 9),
    ("gpt2", "bf16", ACTIVATIONS, 1), ("llama", "fp16", ALL, 11))]


def sizes_of(layout):
    return (("layers", 4),) if "pp" in layout["ranks"] else ()


def pair(compiled, model, layout, precision, what, sizes=(), settings=()):
    """Two trainers: without offload, and with it."""
    lines, settings = layout_of(model, **layout), SETTINGS + (("precision", precision), *settings)
    sizes = (*sizes_of(layout), *sizes)
    return [compiled(model, (*lines, *offload), sizes, settings, *TCP) for offload in ((), (f"offload {what} to disk",))]


@pytest.mark.parametrize("model,precision,what,layout", some(CASES, *PICKED))
def test_training(model, precision, what, layout, compiled, train, tmp_path):
    plain, trainer = pair(compiled, model, LAYOUTS[layout], precision, what)
    logs, saved = [], []
    for one in (plain, trainer):
        logs.append(train(one, STEPS, "--save", "saved"))
        saved.append((tmp_path / "saved").read_bytes())
    memory = [json.loads((one.source.parent / "out/plan.json").read_text())["memory"] for one in (plain, trainer)]
    assert "offloaded" not in memory[0] and memory[1]["offloaded"]["bytes"] > 0 and memory[1]["offloaded"]["read"] > 0
    same_training(logs[1], logs[0], precision)
    if what == OPTIMIZER:
        assert [(line["loss"], line["grad_norm"], line.get("loss_scale")) for line in logs[0]] == \
            [(line["loss"], line["grad_norm"], line.get("loss_scale")) for line in logs[1]]
        assert saved[0] == saved[1]


@pytest.mark.parametrize("precision", some(["fp32", "bf16"], 1))
@pytest.mark.parametrize("model", some(["gpt2", "llama"], 0))
def test_chosen_one_by_one(model, precision, compiled, train, tmp_path):
    """`recompute auto` keeps, offloads and recomputes activations of one layer."""
    settings = (*SETTINGS, ("precision", precision))
    def memory_of(recompute):
        trainer = compiled(model, layout_of(model, **{**LAYOUTS[0], "recompute": recompute}), (), settings)
        return json.loads((trainer.source.parent / "out/plan.json").read_text())["memory"]["arena"]
    budget = (memory_of("none") + memory_of("full")) // 2
    lines = layout_of(model, **{**LAYOUTS[0], "recompute": f"auto({budget})"})
    logs = []
    for offload in ((), ("offload activations to disk",)):
        trainer = compiled(model, (*lines, *offload), (), settings)
        logs.append(train(trainer, STEPS))
        plan = json.loads((trainer.source.parent / "out/plan.json").read_text())
        assert plan["memory"]["arena"] <= budget
    chosen = plan["recompute"]
    assert 0 < len(chosen["offloaded"]["h.fwd"]) < len(chosen["saved"]["h.fwd"]) and set(chosen["offloaded"]["h.fwd"]) < set(chosen["saved"]["h.fwd"])
    assert plan["memory"]["offloaded"]["read"] == plan["memory"]["offloaded"]["written"] > 0
    same_training(logs[1], logs[0], precision)


def test_skipped_steps(compiled, train):
    """Steps of fp16 whose gradients overflow change nothing, on disk either: the first scale of 65,536 times a loss of a
    million does."""
    edited = [compiled("gpt2", (*layout_of("gpt2", **LAYOUTS[0]), *offload), (), (*SETTINGS, ("precision", "fp16")), edit=(r"loss mean\(", "loss 1e3 * mean("))
              for offload in ((), ("offload optimizer to disk",))]
    logs = [train(one, STEPS) for one in edited]
    assert any(line["grad_norm"] is None for line in logs[0]), "no step was skipped"
    assert [(line["loss"], line["grad_norm"], line["loss_scale"]) for line in logs[0]] == [(line["loss"], line["grad_norm"], line["loss_scale"]) for line in logs[1]]


def test_padded_rows(compiled, train, tmp_path):
    """The state of a table of 300 words, which are 384 rows in memory, moves in blocks of rows, padding and all."""
    logs, saved = [], []
    for one in pair(compiled, "gpt2", LAYOUTS[0], "bf16", OPTIMIZER, (("vocab", 300),)):
        logs.append([(line["loss"], line["grad_norm"]) for line in train(one, STEPS, "--save", "saved")])
        saved.append((tmp_path / "saved").read_bytes())
    text = (one.source.parent / "out/trainer.c").read_text()
    assert re.search(r"\[vocab\.row\d+ (\d+), embed", text) and "vocab.block16" in text
    assert logs[0] == logs[1] and saved[0] == saved[1]


def test_checkpoints(compiled, train, text):
    """What one saves the other loads, and goes on as if nothing had been; evaluation and samples read it, too."""
    plain, trainer = pair(compiled, "gpt2", LAYOUTS[0], "bf16", OPTIMIZER)
    whole = train(plain, STEPS, "--eval-data", text, "--eval-batches", 2)
    for first, then in ((plain, trainer), (trainer, plain)):
        train(first, STEPS // 2, "--save", "half")
        log = train(then, STEPS, "--load", "half", "--eval-data", text, "--eval-batches", 2)
        assert [line["loss"] for line in log[STEPS // 2:]] == [line["loss"] for line in whole[STEPS // 2:]]
        assert log[-1]["eval_loss"] == whole[-1]["eval_loss"]


# --- Updates that wait for the next step --------------------------------------------------------------------------------

LATER = [(model, precision, micros, layout) for model in ("llama", "gpt2") for precision in ("fp32", "bf16", "fp16") for micros in (1, 2, 4)
         for layout, how in enumerate(LAYOUTS) if "pp" not in how["ranks"] or micros == 4]
LATER_PICKED = [LATER.index(case) for case in (
    ("gpt2", "bf16", 1, 0), ("llama", "fp32", 1, 1), ("llama", "bf16", 2, 2), ("gpt2", "fp16", 4, 0), ("gpt2", "bf16", 4, 5), ("gpt2", "fp16", 1, 3), ("gpt2", "fp32", 1, 5), ("llama", "bf16", 1, 11),
    ("gpt2", "bf16", 4, 8), ("llama", "fp16", 4, 10))]


def later(compiled, model, layout, settings, *more):
    """Two trainers or more: with the state of the optimizer on disk, and with updates in the next step, too."""
    return [compiled(model, (*layout_of(model, **layout), f"offload optimizer to disk{when}"), sizes_of(layout), settings, *TCP) for when in ("", " just_in_time", *more)]


def numbers_of(log):
    return [[line.get(key) for key in ("loss", "grad_norm", "loss_scale", "eval_loss", "skipped_steps")] for line in log]


@pytest.mark.parametrize("model,precision,micros,layout", some(LATER, *LATER_PICKED))
def test_just_in_time(model, precision, micros, layout, compiled, train, text, tmp_path):
    """Bit for bit: at the end, and where evaluations and checkpoints between read the weights before the next step; also if forward
    passes of several micro-batches, or of all, run with the updates."""
    ranks = LAYOUTS[layout]["ranks"].get("dp", 1)
    logs, saved = [], []
    comes_first = "pp" in LAYOUTS[layout]["ranks"] or LAYOUTS[layout].get("zero") in (1, 2) or "options" in LAYOUTS[layout]
    together = {1: (), 2: (" just_in_time 2",), 4: (" just_in_time 3",)}[1 if comes_first else micros]
    for one in later(compiled, model, LAYOUTS[layout], (("batch", 16), ("microbatch", 16 // ranks // micros), ("precision", precision)), *together):
        logs.append(train(one, 20, "--save", "saved", "--save-every", 7, "--keep", 9, "--eval-data", text, "--eval-every", 6, "--eval-batches", 2))
        saved.append({path.name: path.read_bytes() for path in sorted(tmp_path.glob("saved*")) if path.is_file()})
    assert numbers_of(logs[0]) == numbers_of(logs[1]) == numbers_of(logs[-1]) and len(logs[0]) == 20
    assert len(saved[0]) > 2 and saved[0] == saved[1] == saved[-1]
    moved = [log[-4]["offload_bytes"] for log in logs]  # behind a step that neither evaluates nor saves
    assert moved[1] < moved[0] if precision != "fp32" else moved[1] <= moved[0]  # casts are made where weights are updated


def test_just_in_time_skips(compiled, train):
    """The next step knows which steps of fp16 change nothing."""
    edited = [compiled("gpt2", (*layout_of("gpt2", **LAYOUTS[0]), f"offload optimizer to disk{when}"), (), (*SETTINGS, ("precision", "fp16")), edit=(r"loss mean\(", "loss 1e3 * mean("))
              for when in ("", " just_in_time")]
    logs = [train(one, STEPS) for one in edited]
    assert any(line["grad_norm"] is None for line in logs[0]) and any(line["grad_norm"] for line in logs[0])
    assert numbers_of(logs[0]) == numbers_of(logs[1])


def test_just_in_time_in_parts(compiled, train, tmp_path):
    """A run that is stopped and goes on, and one whose mean of weights is evaluated and sampled, in either trainer."""
    saved = []
    for one in later(compiled, "gpt2", LAYOUTS[0], (*SETTINGS, ("precision", "bf16"), ("ema", 0.9))):
        for steps, options in ((1, ()), (5, ("--load", "saved")), (6, ("--load", "saved", "--ema", "--sample", 8, "--prompt", "3 4"))):
            train(one, steps, "--save", "saved", *options)
        saved.append((tmp_path / "saved").read_bytes())
    assert saved[0] == saved[1]


def test_mean_of_weights(compiled, train, text):
    """--ema exchanges weights and their mean, which are on disk."""
    logs = [train(one, STEPS, "--ema", "--eval-data", text, "--eval-batches", 2) for one in pair(compiled, "gpt2", LAYOUTS[0], "bf16", OPTIMIZER, settings=(("ema", 0.9),))]
    assert [line.get("eval_loss") for line in logs[0]] == [line.get("eval_loss") for line in logs[1]] and logs[0][-1]["eval_loss"]


def test_budget(compiled, train):
    """What is kept is the smallest first, and as much as was said."""
    def offloaded(keep):
        trainer = compiled("gpt2", (*layout_of("gpt2", **LAYOUTS[0]), f"offload optimizer to disk keep {keep}"), (), SETTINGS)
        return json.loads((trainer.source.parent / "out/plan.json").read_text())["memory"]["offloaded"]["bytes"]
    assert offloaded(0) - offloaded(100_000) <= 100_000 + 64 * 4096  # whole pages of some tensors
    assert 0 < offloaded(100_000) < offloaded(50_000) < offloaded(0)


def test_traffic_is_logged(compiled, text, tmp_path):
    """Bytes as planned, and seconds of each step in which the computation waited: is the disk the limit?"""
    plain, trainer = pair(compiled, "gpt2", LAYOUTS[0], "bf16", OPTIMIZER)
    options = ("--data", text, "--data-format", "bytes", "--steps", 4, "--log", "log", "--overwrite", "--eval-data", text, "--eval-batches", 2)
    done = start(trainer.command(*options), tmp_path)
    log, planned = read_log(tmp_path / "log"), json.loads((trainer.source.parent / "out/plan.json").read_text())["memory"]["offloaded"]
    assert [line["offload_bytes"] for line in log] == 4 * [planned["read"] + planned["written"]]
    assert all(0 < line["offload_wait_ms"] < line["step_ms"] for line in log)
    [(waited, seconds)] = re.findall(r"^offloaded: .* from and to disk, for which the computation waited ([\d.]+) s of the ([\d.]+) s of steps$", done.stderr, re.M)
    for told, key in ((waited, "offload_wait_ms"), (seconds, "step_ms")):
        assert float(told) == pytest.approx(sum(line[key] for line in log) / 1e3, abs=0.0051)
    done = start(plain.command(*options), tmp_path)
    assert "offloaded" not in done.stderr and not any("offload_bytes" in line for line in read_log(tmp_path / "log"))


# --- Larger than memory -----------------------------------------------------------------------------------------------

def within(limit, command):
    """The command, in a process that may have so many bytes of its own."""
    return ["sh", "-c", f'ulimit -d {limit // 1024}; exec "$@"', "sh", *command]


SIZE = dict(layers=36, embed=192, heads=4, seq=16)
LARGE = (("precision", "bf16"), ("grad_storage", "bf16"), ("batch", 1), ("microbatch", 1))


def test_larger_than_memory(compiled, text, tmp_path):
    """16 million weights, 12 bytes of state for each, in less than half of that: gradients in bf16, two bytes each, and a
    layer's weights and state are what is in memory, beside what libraries take."""
    LIBRARIES = 40_000_000
    sizes = tuple(SIZE.items())
    plain, trainer = (compiled("chars", (*layout_of("chars", dict(dp=1)), *offload), sizes, LARGE) for offload in ((), (f"offload {BOTH} to disk",)))
    memory = [json.loads((one.source.parent / "out/plan.json").read_text())["memory"] for one in (plain, trainer)]
    state = sum(memory[0]["classes"][name] for name in ("master weights", "optimizer state"))
    limit = memory[1]["arena"] + memory[1]["offloaded"]["buffers"] + LIBRARIES
    assert limit < state / 2
    options = ("--data", text, "--data-format", "bytes", "--steps", 2, "--threads", 1, "--log", "log", "--overwrite")
    done = start(within(limit, plain.command(*options)), tmp_path, status=1)
    assert "out of memory" in done.stderr
    start(within(limit, trainer.command(*options)), tmp_path)
    log = read_log(tmp_path / "log")
    start(plain.command(*options), tmp_path)
    deeper = (SIZE["layers"] / 2) ** 0.5  # as many roundings, of random sign, as in test_layouts.py's models of two layers
    for line, expected in zip(log, read_log(tmp_path / "log"), strict=True):
        assert line["loss"] == pytest.approx(expected["loss"], rel=deeper * TOLERANCE["bf16"]["loss"])
    assert log[-1]["peak_bytes"] - memory[1]["arena"] - memory[1]["offloaded"]["buffers"] < 2 ** 21  # libraries


# --- What is not there ------------------------------------------------------------------------------------------------

def test_no_folder(compiled, refused, text):
    trainer = pair(compiled, "gpt2", LAYOUTS[0], "bf16", OPTIMIZER)[1]
    said = refused(trainer, "--offload-folder", "none", "--data", text, "--data-format", "bytes", "--steps", 1)
    assert said.startswith("error: cannot create a file for offloaded tensors in 'none': No such file or directory; --offload-folder names another folder")


def test_a_full_disk(compiled, text, tmp_path):
    """As far as the system lets files grow here."""
    trainer = pair(compiled, "gpt2", LAYOUTS[0], "bf16", OPTIMIZER)[1]
    done = start(["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *trainer.command("--data", text, "--data-format", "bytes", "--steps", 1)], tmp_path, status=1)
    assert error_of(done.stderr).startswith("error: cannot make room for a file for offloaded tensors in '.': File too large")


def test_nothing_is_left(compiled, train, tmp_path):
    """The file has no name, so that a run which is killed leaves none, and one folder serves several runs."""
    trainer = pair(compiled, "gpt2", LAYOUTS[0], "bf16", OPTIMIZER)[1]
    (tmp_path / "far").mkdir()
    train(trainer, 2, "--offload-folder", "far")
    assert not list((tmp_path / "far").iterdir())


def test_the_model_names_the_folder(compiled, refused, text):
    trainer = compiled("gpt2", (*layout_of("gpt2", **LAYOUTS[0]), 'offload optimizer to disk "elsewhere"'), (), SETTINGS)
    assert "in 'elsewhere'" in refused(trainer, "--data", text, "--data-format", "bytes", "--steps", 1)


def test_nothing_for_the_folder(compiled, refused, text):
    trainer = pair(compiled, "gpt2", LAYOUTS[0], "bf16", OPTIMIZER)[0]
    said = refused(trainer, "--offload-folder", ".", "--data", text, "--data-format", "bytes", "--steps", 1, status=2)
    assert said.startswith("error: --offload-folder has no effect")
