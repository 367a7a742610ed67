"""Attention by the kernel for Hopper: taken where it is right and fastest, and otherwise left alone; on one rank and on two.

The emulator checks the kernel (tests/cuda/test_hopper.c); here a whole trainer makes tensor maps for it and launches it."""
import re

import pytest
from conftest import Trainer, again, emulated, read_log, some
from test_attention import BF16, WINDOW, bits, own_cache, said  # noqa: F401: own_cache is a fixture
from test_one_rank import STEPS, assert_same, train
from test_ranks import run

pytestmark = emulated
GENERAL = "*_attend?(_v[0-9])"  # names of the general kernels of the forward
FAST = {"EMULATED_SLOW_KERNELS": GENERAL, "EMULATED_CUDNN": "none"}
COMPUTES = r"attention: mpc's kernel for Hopper computes (\d) of \d \(--no-hopper: none\)"


def computed(notes):
    """How many attentions are computed by it; None: it is not tried."""
    found = [re.fullmatch(COMPUTES, note) for note in notes]
    return next((int(match[1]) for match in found if match), None)


# More than one tile of keys of both kernels, so that their bits differ.
@pytest.mark.parametrize("model,precision,edit", some([("llama", "bf16", ("", "")), ("chars", "fp16", WINDOW), ("bert", "bf16", ("", ""))], 0), ids=str)
def test_training(model, precision, edit, compiled, data, tmp_path, own_cache):  # noqa: F811
    reference, trainer = (compiled(model, target, (("precision", precision),), ("-D", "seq=140", "-D", "layers=1"), edit=edit)
                          for target in ("c", "cuda"))
    trainer = Trainer(trainer.folder, "cuda", own_cache)
    expected = train(reference, data, tmp_path / "c")
    notes, _, log = said(trainer, data, tmp_path / "cuda", "--no-cudnn", environment=FAST)
    tried = [note for note in notes if re.search(r"\d features: \S+ ms by mpc, \S+ ms by mpc's kernel for Hopper$", note)]
    assert tried and computed(notes) >= len(tried)
    assert_same(log, expected, precision)
    own = bits(said(trainer, data, tmp_path / "own", "--no-cudnn", "--no-hopper")[2])
    assert own != bits(log), "it was not that kernel that computed"
    if model == "llama":
        assert bits(said(trainer, data, tmp_path / "graphless", "--no-graph", "--no-cudnn", environment=FAST)[2]) == bits(log)


@again
def test_where_it_does_not_help(compiled, data, tmp_path, own_cache):  # noqa: F811
    """It is not taken, whatever is wrong with it, and the general kernels give the bits that they give without it."""
    trainer = Trainer(compiled("llama", "cuda", BF16).folder, "cuda", own_cache)
    own = bits(said(trainer, data, tmp_path / "own", "--no-cudnn", "--no-hopper")[2])
    wrong = "results of mpc's kernel for Hopper are not those of the program's general kernels: it is not used for this shape"
    for what, environment, expected in (("none", {"EMULATED_MAPS": "none"}, None), ("wrong", {"EMULATED_MAPS": "wrong"}, 0),
                                        ("slow", {"EMULATED_SLOW_KERNELS": "*_hopper"}, 0), ("ada", {"EMULATED_ARCHITECTURE": "89"}, None)):
        for path in own_cache.glob("*.attention"):
            path.unlink()
        notes, text, log = said(trainer, data, tmp_path / what, "--no-cudnn", environment={**FAST, **environment})
        assert computed(notes) == expected and (wrong in text) == (what == "wrong"), (what, notes)
        assert bits(log) == own, what


def test_the_fastest_of_three(compiled, data, tmp_path, own_cache):  # noqa: F811
    trainer = Trainer(compiled("llama", "cuda", BF16).folder, "cuda", own_cache)
    for slow, cudnn, winner in (("*", "", "cuDNN"), (GENERAL, "slow", "Hopper")):
        for path in own_cache.glob("*.attention"):
            path.unlink()
        notes, _, _ = said(trainer, data, tmp_path / winner, environment={"EMULATED_SLOW_KERNELS": slow, "EMULATED_CUDNN": cudnn})
        assert (computed(notes) > 0) == (winner == "Hopper"), notes
        assert ("computes 0 of" in notes[-1]) == (winner == "Hopper"), notes


def test_the_answer_is_kept(compiled, data, tmp_path, own_cache):  # noqa: F811
    """A later start does not try again: what it would find now does not count, and the maps are those of each launch."""
    trainer = Trainer(compiled("llama", "cuda", BF16).folder, "cuda", own_cache)
    first = said(trainer, data, tmp_path / "first", "--no-cudnn", environment=FAST)
    kept = sorted(path.name for path in own_cache.glob("*.attention"))
    second = said(trainer, data, tmp_path / "second", "--no-cudnn")
    wrong = said(trainer, data, tmp_path / "wrong", "--no-cudnn", environment={"EMULATED_MAPS": "wrong"})
    assert kept and computed(first[0]) == computed(second[0]) == computed(wrong[0]) > 0
    assert bits(first[2]) == bits(second[2]) != bits(wrong[2])
    assert sorted(path.name for path in own_cache.glob("*.attention")) == kept


@again
def test_ranks(compiled, data, tmp_path, own_cache):  # noqa: F811
    """All ranks use it, or none does."""
    mesh = ("-D", "kv_heads=2", "--mesh", "dp=2")
    one, two = (compiled("llama", "cuda", BF16, options) for options in ((), mesh))
    reference = said(Trainer(one.folder, "cuda", own_cache), data, tmp_path / "one", "--no-cudnn", "--no-hopper")[2]
    trainer = Trainer(two.folder, "cuda", own_cache)
    for what, of_rank in (("all", ""), ("half", "test $OMPI_COMM_WORLD_RANK = 1 && export EMULATED_MAPS=none;")):
        done = run(trainer, "dp=2", data, tmp_path / what, "--no-cudnn", steps=STEPS, of_rank=f"export EMULATED_SLOW_KERNELS='{GENERAL}';{of_rank}")
        assert bool(computed(done.stderr.splitlines())) == (what == "all"), done.stderr
        assert_same(read_log(tmp_path / what / "log"), reference, "bf16")
