"""A mixture of experts as one process and as several: the same tokens are dropped, if any, and nothing else differs."""
import re
import shlex

import pytest
from test_layouts import STEPS, reference, same_training  # noqa: F401  (reference is a fixture)
from conftest import MPC, QUICK, TCP, options_of, read_log, some, start

WITHIN = "capacity = capacity, within = batch"
DROPLESS = (WITHIN, "capacity = none")
WHOLE = (WITHIN, "capacity = 0.75")
# Every token chooses the first two experts, the others get none.
EXTREME = (r"softmax\(dot\(x, w, embed\), experts\)",
           "softmax(0.1 * dot(x, w, embed) - cast(iota(experts), f32), experts)")
RULES = ["shard batch over dp", "shard seq over cp", "shard experts over ep", "shard kv_heads, ff, vocab over tp{}",
         "pipeline layers over pp"]
AXES = ["dp", "cp", "ep", "tp", "pp"]


def layout(otherwise="", zero=0, recompute="none", folded=False, **mesh):
    lines = ["mesh " + ", ".join(f"{axis} = {mesh[axis]}" for axis in AXES if axis in mesh)]
    lines += [rule.format(otherwise) for axis, rule in zip(AXES, RULES) if axis in mesh]
    if folded:  # the axis that splits the batch elsewhere splits the experts
        lines = [line.replace("batch over dp", "experts, batch over dp") for line in lines]
    lines += [f"zero {zero} over dp"] * ("dp" in mesh)
    return tuple(lines + [f"recompute {recompute}"])


@pytest.mark.parametrize("edit, settings, its", some([
    (WHOLE, (), layout(dp=2)),
    (WHOLE, (), layout(ep=2)),
    (WHOLE, (), layout(cp=2, ep=2)),
    (WHOLE, (), layout(dp=2, folded=True, zero=1)),
    (WHOLE, (), layout(dp=2, tp=2, otherwise=" else seq", zero=3, recompute="selective")),
    (WHOLE, (), layout(dp=2, ep=2, zero=2, recompute="full")),
    (None, (("microbatch", 2),), layout(ep=2, pp=2)),
    (None, (("microbatch", 2),), layout(dp=2, pp=2, zero=1)),
    (DROPLESS, (("microbatch", 2),), layout(ep=2, tp=2)),
    (DROPLESS, (("microbatch", 1),), layout(dp=4, folded=True, zero=3)),
    (EXTREME, (("microbatch", 4),), layout(dp=2)),
    (EXTREME, (), layout(ep=4)),
    (EXTREME, (), layout(dp=2, ep=2, zero=3)),
], 2, 3, 4, 5, 6, 8, 9, 12), ids=str)
def test_experts_train_alike(edit, settings, its, compiled, reference, text, tmp_path):
    # A layout's micro-batch is that of a rank; the whole batch is the same.
    trainer = compiled("mixtral", its, (), tuple(settings) or (("microbatch", 4 if "dp = 2" in its[0] else 8),), *TCP, edit=edit)
    start(trainer.command("--data", text, "--data-format", "bytes", "--steps", STEPS, "--log", "log"), tmp_path)
    same_training(read_log(tmp_path / "log"), reference("mixtral", edit=edit))


@pytest.mark.parametrize("edit", [WHOLE, DROPLESS], ids=str)
def test_rows_without_tokens_are_left_out(edit, compiled, text, tmp_path):
    """The same program computes the same with every row."""
    source = compiled("mixtral", (), (), (("microbatch", 8),), edit=edit).source
    words = options_of("mixtral", {}, {"microbatch": 8})
    said = start([MPC, "compile", source, "-o", "out", "--verbose", *words, QUICK], tmp_path).stdout
    trainer = tmp_path / "out" / "trainer.c"
    every, count = re.subn(r",\s*\.counted = RT_COUNTED_[MK]", "", trainer.read_text())
    assert count > 5 and "RT_COUNTED" not in every
    for name, program in (("counted", trainer.read_text()), ("every", every)):
        trainer.write_text(program)
        start(shlex.split(next(line for line in said.splitlines() if " -o " in line)), tmp_path)
        start([tmp_path / "out" / "trainer.tmp", "--data", text, "--data-format", "bytes", "--steps", STEPS, "--log", name], tmp_path)
    same_training(read_log(tmp_path / "counted"), read_log(tmp_path / "every"))


def test_the_reference_learns(reference):
    for edit in (None, WHOLE, DROPLESS, EXTREME):
        losses = [line["loss"] for line in reference("mixtral", edit=edit)]
        assert losses[-1] < 0.97 * losses[0]
    assert [line["loss"] for line in reference("mixtral", edit=WHOLE)] != [
        line["loss"] for line in reference("mixtral", edit=DROPLESS)], "some should be dropped"


@pytest.mark.parametrize("settings, lines", [
    ({}, ("mesh dp = 2", "shard batch over dp", "zero 3 over dp")),
    ({"microbatch": 2}, ("mesh ep = 2, tp = 2", "shard experts, batch over ep", "shard heads, ff, expert_ff, vocab over tp else seq", "zero 2 over ep")),
    ({"microbatch": 2}, ("mesh dp = 2, pp = 3", "shard batch over dp", "pipeline dense_layers, layers over pp", "zero 1 over dp")),
], ids=str)
def test_a_state_is_of_the_whole_batch(settings, lines, compiled, reference, text, tmp_path):
    """The bias moves the choice of experts, and so the loss: by the load of all micro-batches and ranks."""
    trainer = compiled("deepseek", lines + ("recompute selective",), (), tuple({"microbatch": 4, **settings}.items()), *TCP)
    start(trainer.command("--data", text, "--data-format", "bytes", "--steps", STEPS, "--log", "log"), tmp_path)
    same_training(read_log(tmp_path / "log"), reference("deepseek"))


@pytest.mark.parametrize("settings, lines", [
    ({"microbatch": 2}, ("mesh pp = 3", "pipeline dense_layers, layers over pp")),
    ({"microbatch": 4}, ("mesh cp = 2, tp = 2", "shard seq over cp", "shard heads, ff, expert_ff, vocab over tp else seq",
                         "zero 3 over cp")),
    ({"microbatch": 2}, ("mesh ep = 2, pp = 2", "shard experts, batch over ep", "pipeline layers over pp", "zero 2 over ep")),
], ids=str)
def test_several_tokens_are_predicted(settings, lines, compiled, reference, text, tmp_path):
    """The table and the head, which the first and the last stage share, have gradients of all predictions."""
    trainer = compiled("deepseek", lines + ("recompute selective",), (("mtp", 2),), tuple(settings.items()), *TCP)
    start(trainer.command("--data", text, "--data-format", "bytes", "--steps", STEPS, "--log", "log"), tmp_path)
    same_training(read_log(tmp_path / "log"), reference("deepseek", (("mtp", 2),)))


def test_the_state_moves(reference):
    still = (r"pace \* sign", "0 * pace * sign")
    assert [line["loss"] for line in reference("deepseek")] != [line["loss"] for line in reference("deepseek", edit=still)]


# --- Evaluation ---------------------------------------------------------------------------------------------------

LEFT_OUT = (r"balance_weight \* unbalanced", "balance_weight * training(unbalanced, 0)")


def evaluated(trainer, text, folder):
    """(loss, notes) of 13 sequences: a batch of 8, and a part of another."""
    (folder / "part").write_bytes(text.read_bytes()[:13 * 16 + 1])
    done = start(trainer.command("--steps", 0, "--eval-data", "part", "--data-format", "bytes"), folder)
    return float(re.search(r"^eval loss ([\d.]+)$", done.stdout, re.M)[1]), done.stderr


@pytest.mark.parametrize("its, settings, options", [
    ((), (("microbatch", 2),), ()),
    (layout(dp=2, ep=2, zero=1), (("microbatch", 2),), TCP),
    (layout(cp=2, tp=2), (), TCP),
    (layout(ep=2, pp=2), (("microbatch", 2),), ()),
])
def test_evaluation_without_the_balance(compiled, text, tmp_path, its, settings, options):
    """The loss of evaluation is cross-entropy alone, under every layout; else a note says that it is not."""
    plain, said = evaluated(compiled("mixtral", (), (("balance_weight", 0),), (("batch", 1), ("microbatch", 1))), text, tmp_path)
    with_it, more = evaluated(compiled("mixtral", (), (("balance_weight", 1),)), text, tmp_path)
    assert with_it > plain + 1 and "note: the loss of evaluation includes the balance of experts (model.mdl:" in more
    assert "note: evaluation drops what is beyond the capacity of an expert" in more
    loss, said = evaluated(compiled("mixtral", its, (("balance_weight", 1),), settings, *options, edit=LEFT_OUT), text, tmp_path)
    assert loss == pytest.approx(plain, rel=1e-6) and "includes the balance" not in said


def test_capacity_is_a_const(compiled, text, tmp_path):
    """With `none` nothing is dropped, and no note says so."""
    trainer = compiled("mixtral", (), (("capacity", "none"),), (("microbatch", 2),))
    assert "drops" not in evaluated(trainer, text, tmp_path)[1]
    start(trainer.command("--data", text, "--data-format", "bytes", "--steps", 2, "--log", "log"), tmp_path)
    assert all("dropped" not in line for line in read_log(tmp_path / "log"))
