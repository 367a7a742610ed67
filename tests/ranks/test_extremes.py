"""The most unbalanced router there can be: all tokens choose one expert, and nothing is dropped.  One rank then does all the
work of experts, and others get no token at all; results are those of one process, and memory is what was planned.

Ranks wait without spinning (--comm=tcp): eight of them may share two cores.
"""
import json

import numpy as np
import pytest
from conftest import MPC, TCP, options_of, read_log, some, start
from test_tcp import ranks  # noqa: F401  (a fixture)

STEPS = 4
SIZES = (("experts", 8), ("choice", 1))
EDIT = (r"softmax\(dot\(x, w, embed\), experts\)(?s:(.*))capacity = capacity, within = batch(?s:(.*))capacity = capacity, within = batch",
        r"softmax(dot(x, w, embed) + 1000 * cast(iota(experts) == 5, f32), experts)\1capacity = none\2capacity = none")
ROUNDS = '''    y = 0 * x
    repeat 4 {
        xe = dispatch(x, chosen, experts, slots, capacity = none, rounds = true)
        pe = dispatch(p / sum(p, choice), chosen, experts, slots, capacity = none, rounds = true)
        ye = dot(silu(dot(xe, w_gate, embed)) * dot(xe, w_up, embed) * pe, w_down, ff)
        y = y + sum(combine(ye, chosen), choice)
    }
    return y'''
IN_ROUNDS = (r"softmax\(dot\(x, w, embed\), experts\)(?s:(.*))    xe = dispatch(?s:.*)return sum\(combine\(ye, chosen\), choice\)",
             r"softmax(dot(x, w, embed) + 1000 * cast(iota(experts) == 5, f32), experts)\1" + ROUNDS)
RULES = dict(dp="shard batch over dp", cp="shard seq over cp", ep="shard experts over ep", pp="pipeline layers over pp",
             tp="shard kv_heads, ff, vocab over tp else seq")


def layout(zero=0, folded=False, **mesh):
    """folded: ep splits the batch elsewhere, so that rows travel to their experts and back."""
    lines = ["mesh " + ", ".join(f"{axis} = {size}" for axis, size in mesh.items())] + [RULES[axis] for axis in mesh]
    lines = [line.replace("shard experts over", "shard experts, batch over") if folded else line for line in lines]
    data = [axis for axis in mesh if axis in ("dp", "cp") or (axis == "ep" and folded)]
    return tuple(lines + [f"zero {zero} over {', '.join(data)}"] * bool(data and zero))


@pytest.fixture
def run(compiled, ranks):
    """run(layout, micro-batch): its Trainer, and its log."""
    def run(its, micro, edit=EDIT):
        trainer = compiled("mixtral", its, SIZES, (("microbatch", micro),), *TCP, edit=edit)
        options = ["--steps", STEPS, "--log", "log", "--overwrite"]
        ranks.processes.clear()
        if trainer.ranks == 1:
            ranks.add(trainer.program, *options)
        else:
            ranks.add_numbered(trainer, *options, ranks=range(trainer.ranks), count=trainer.ranks)
        status, _, stderr = ranks.end(timeout=300)
        assert set(status) == {0}, stderr
        return trainer, read_log(ranks.directory / "log")
    return run


@pytest.fixture(scope="module")
def alone():
    return {}


@pytest.mark.parametrize("its, micro", some([
    (layout(ep=2), 8),
    (layout(ep=2, folded=True, zero=3), 2),
    (layout(ep=4), 4),
    (layout(dp=2, ep=2, zero=1), 2),
    (layout(dp=2, ep=2, folded=True, zero=2), 1),
    (layout(cp=2, ep=2, zero=3), 8),
    (layout(ep=2, tp=2), 4),
    (layout(ep=2, pp=2), 2),
    (layout(ep=8, folded=True), 1),
    (layout(dp=2, ep=2, tp=2, zero=3), 2),
    (layout(ep=4, pp=2, folded=True, zero=1), 1),
], 1, 3, 4, 5, 6, 7, 10), ids=str)
def test_all_tokens_to_one_expert(its, micro, run, alone):
    check(*run(its, micro), run, alone)


@pytest.mark.parametrize("its, micro", some([((), 8), (layout(ep=2, folded=True, zero=3), 2), (layout(dp=2, ep=2), 4),
                                             (layout(ep=2, pp=2), 2)], 1, 3), ids=str)
def test_rounds(its, micro, run, alone):
    """The same, each expert's rows in four turns."""
    check(*run((*its, "recompute full"), micro, IN_ROUNDS), run, alone)


def test_empty_rows_are_not_sent(run):
    """Of eight experts one has rows: seven eighths of what is planned for messages are zeros."""
    trainer, log = run(layout(ep=2, folded=True), 4)
    words = options_of("mixtral", dict(SIZES), {"microbatch": 4})
    report = json.loads(start([MPC, "report", trainer.source, "--json", *words], trainer.source.parent).stdout)
    (experts,), planned = report["experts"], report["communication"]["sent"]
    assert experts["sent_bytes"] > planned / 2 and experts["sent_bytes_balanced"] == experts["sent_bytes"] / 8
    sent = log[-1]["sent_bytes"] - (planned - experts["sent_bytes"])
    # A rank sends all rows of its tokens, or gets them back: at most twice those of a balanced router; and maps.
    assert experts["sent_bytes"] / 32 < sent < experts["sent_bytes"] / 3


def check(trainer, log, run, alone):
    if not alone:
        alone["log"] = run((), 8)[1]
    for line, expected in zip(log, alone["log"], strict=True):
        np.testing.assert_allclose([line["loss"], line["grad_norm"]], [expected["loss"], expected["grad_norm"]], rtol=1e-5)
        assert line["expert_load"] == expected["expert_load"] == [8, 8], "eight times the mean, in both layers"
    plan = json.loads((trainer.source.parent / "out" / "plan.json").read_text())["memory"]
    planned = max(kind["arena"] + kind["messages"] for kind in plan.get("kinds") or [plan])
    beside = log[-1]["peak_bytes"] - planned  # what products need for themselves
    assert 0 <= beside < 2 ** 18, f"{beside} bytes beside {planned} that are planned"
