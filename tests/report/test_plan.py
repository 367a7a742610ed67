"""plan.json: every effective value, and where it came from."""
import json
import re

import pytest

from conftest import MPC, run


@pytest.fixture
def plan(model, tmp_path):
    def make(*options, file=None, command=()):
        run(MPC, "compile", file or model(), "-o", tmp_path / "out", "--no-cc", *options)
        return json.loads((tmp_path / "out/plan.json").read_text())
    return make


def entry(plan, section, name):
    found = [row for row in plan[section] if row["name"] == name]
    assert len(found) == 1, (name, found)
    return found[0]["value"], found[0]["from"]


def test_every_option_is_there(plan):
    made = plan("--mesh=dp=2")
    listed = set(re.findall(r"--([\w-]+)", run(MPC, "help", "compile").stdout.split("\nOptions\n")[1].split("\nPasses")[0]))
    names = {row["name"][2:] for row in made["options"]}
    assert names == listed and {"mesh", "zero", "target", "cc", "set", "define", "no-cc"} <= names
    assert entry(made, "options", "--mesh") == ("dp=2", "command line")
    assert entry(made, "options", "--no-cc") == ("true", "command line")
    assert entry(made, "options", "--target") == ("c", "default")
    assert entry(made, "options", "--verify-passes") == ("false", "default")


def test_repeated_options(plan):
    assert entry(plan("-D", "layers=2", "-D", "ff=64"), "options", "--define") == ("layers=2 ff=64", "command line")


def test_compiler_from_the_environment(plan, monkeypatch):
    from conftest import QUICK
    monkeypatch.setitem(QUICK, "CC", "some-cc")
    assert entry(plan(), "options", "--cc") == ("some-cc", "environment")


def test_layout(plan, model):
    made = plan("--mesh=dp=2,tp=2", "--zero=2")
    value, place = entry(made, "settings", "parallel.shard.tp")
    assert value == "heads, ff, vocab else seq" and re.fullmatch(r"gpt\.mdl:\d+:5", place)
    assert entry(made, "settings", "parallel.zero") == ("2", "command line")
    assert entry(made, "settings", "parallel.zero.over")[0] == "dp"
    assert entry(made, "settings", "parallel.zero.bucket") == ("25000000", "default")
    assert entry(made, "settings", "parallel.zero.overlap_grads") == ("true", "default")
    changed = plan("--mesh=dp=2", file=model("zero 0 over dp", "zero 1 over dp (bucket = 4096, grad_dtype = bf16)"))
    value, place = entry(changed, "settings", "parallel.zero.bucket")
    assert value == "4096" and place.startswith("gpt.mdl:")
    assert entry(changed, "settings", "parallel.zero.grad_dtype")[0] == "bf16"


@pytest.mark.parametrize("zero, micros, grads, params", [(0, 1, True, False), (1, 1, True, True), (2, 1, True, True), (3, 1, True, True),
                                                         (0, 4, False, False), (1, 4, False, True), (2, 4, True, True), (3, 4, True, True)])
@pytest.mark.parametrize("said", [None, False, True])
def test_overlap_by_default(plan, model, zero, micros, grads, params, said):
    """Messages run beside computation where that takes no more than the tensors of a layer, or where the file says so."""
    word = "" if said is None else f" (overlap_grads = {said}, overlap_params = {said})".lower()
    sizes = ("--set=train.batch=8", f"--set=train.microbatch={4 // micros}")
    made = plan("--mesh=dp=2", f"--zero={zero}", *sizes, file=model("zero 0 over dp", f"zero 0 over dp{word}"))
    for name, wanted in ("grads", grads), ("params", params):
        value, place = entry(made, "settings", f"parallel.zero.overlap_{name}")
        assert value == str(wanted if said is None else said).lower()
        assert place == "default" if said is None else place.startswith("gpt.mdl:")


def test_mesh(plan):
    made = plan("--mesh=dp=2,tp=2")
    assert made["mesh"] == {"ranks": 4, "axes": {"dp": 2, "tp": 2}}
    assert plan()["mesh"] == {"ranks": 1, "axes": {}}
