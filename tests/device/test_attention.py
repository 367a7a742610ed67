"""Attention by cuDNN: taken where it is right and faster, and otherwise left alone; on one rank and on several.  Whether it
is faster does not depend on the machine that the tests run on: kernels take 1000 seconds."""
import re

import pytest
from conftest import Trainer, again, copy_kernels, emulated, planned_bytes, read_log, some, start
from test_one_rank import STEPS, assert_same, train
from test_ranks import run

BF16 = (("precision", "bf16"),)


@pytest.fixture
def own_cache(cache, tmp_path):
    """The compiled kernels without what was found about attention."""
    folder = tmp_path / "cache"
    folder.mkdir()
    copy_kernels(cache, folder)
    return folder


def said(trainer, data, folder, *options, environment=(), status=0):
    """(what is said of attention, the whole, the log)"""
    folder.mkdir(exist_ok=True)
    done = start(trainer.command("--data", data, "--data-format", "bytes", "--steps", STEPS, "--log", "log", "--overwrite", *options),
                 folder, status, environment={"EMULATED_SLOW_KERNELS": "*", **dict(environment)}.items())
    return [line for line in done.stderr.splitlines() if line.startswith("attention:")], done.stderr, read_log(folder / "log")


def bits(log):
    return [(line["loss"], line["grad_norm"]) for line in log]


WINDOW = ("causal = true", "causal = true, window = 5")


@pytest.mark.parametrize("model,precision,edit", some([
    ("llama", "bf16", ("", "")),  # queries share keys
    ("chars", "fp16", ("", "")),
    ("bert", "bf16", ("", "")),   # not causal
    ("chars", "bf16", WINDOW),
], 0, 2, 3), ids=str)
def test_training(model, precision, edit, compiled, data, tmp_path, own_cache):
    settings = (("precision", precision),)
    trainers = [compiled(model, target, settings, edit=edit) for target in ("c", "cuda")]
    assert "RT_ATTEND(" in (trainers[1].folder / "trainer.c").read_text()
    trainer = Trainer(trainers[1].folder, "cuda", own_cache)
    reference = train(trainers[0], data, tmp_path / "c")
    notes, _, log = said(trainer, data, tmp_path / "cuda")
    assert all(re.search(r"\d queries, .* features: \S+ ms by mpc, (\S+ ms by mpc's kernel for Hopper, )?\S+ ms by cuDNN$", note)
               for note in notes[:-2]) and len(notes) > 3
    assert re.fullmatch(r"attention: mpc's kernel for Hopper computes 0 of \d \(--no-hopper: none\)", notes[-2])
    assert re.fullmatch(r"attention: cuDNN \S+ computes (\d) of \1 \(--no-cudnn: none\)", notes[-1]), notes
    assert_same(log, reference, precision)
    assert bits(said(trainer, data, tmp_path / "graphless", "--no-graph")[2]) == bits(log)
    own = said(trainer, data, tmp_path / "own", "--no-cudnn", "--no-hopper")
    assert not own[0] and bits(own[2]) != bits(log), "it was not cuDNN that computed"
    assert_same(own[2], reference, precision)


@emulated
def test_where_it_does_not_help(compiled, data, tmp_path, own_cache):
    """It is not taken, whatever is wrong with it, and the program's kernels give the bits that they give without it."""
    trainer = Trainer(compiled("llama", "cuda", BF16).folder, "cuda", own_cache)
    own = bits(said(trainer, data, tmp_path / "own", "--no-cudnn", "--no-hopper")[2])
    not_right = "results of cuDNN are not those of the program's general kernels: it is not used for this shape"
    for how, first in (("none", "computes 0 of"), ("late", "computes 0 of"), ("slow", "computes 0 of"), ("wrong", not_right),
                       ("varies", not_right), ("old", "by the program's own kernels, since cuDNN is older than 9.12")):
        for path in own_cache.glob("*.attention"):
            path.unlink()
        notes, _, log = said(trainer, data, tmp_path / how, environment={"EMULATED_CUDNN": how})
        assert any(first in note for note in notes), (how, notes)
        assert bits(log) == own, how


@emulated
@again
def test_the_answer_is_kept(compiled, data, tmp_path, own_cache):
    """A later start does not try again: what it would find now does not count.  Another version of cuDNN does."""
    trainer = Trainer(compiled("llama", "cuda", BF16).folder, "cuda", own_cache)
    first = said(trainer, data, tmp_path / "first")
    kept = sorted(path.name for path in own_cache.glob("*.attention"))
    second = said(trainer, data, tmp_path / "second", environment={"EMULATED_CUDNN": "slow"})
    assert kept and "computes 4 of 4" in second[0][-1] and bits(second[2]) == bits(first[2])
    assert sorted(path.name for path in own_cache.glob("*.attention")) == kept


@emulated
def test_memory(compiled, data, tmp_path, own_cache):
    """Its workspace is beside the planned memory, in what the trainer says and in the log; without room it is not taken."""
    trainer = Trainer(compiled("llama", "cuda", BF16).folder, "cuda", own_cache)
    room = {"EMULATED_CUDNN_BYTES": "2000000"}
    _, text, log = said(trainer, data, tmp_path / "much", environment=room)
    assert "35.55 MB workspace of libraries" in text
    assert log[-1]["peak_bytes"] == planned_bytes(trainer) + 2000000
    for path in own_cache.glob("*.attention"):
        path.unlink()
    little = planned_bytes(trainer) + (1 << 30) + 1000000
    notes, text, _ = said(trainer, data, tmp_path / "little", environment={**room, "EMULATED_BYTES": str(little)})
    assert "computes 0 of 4" in notes[-1] and "33.55 MB workspace of libraries" in text
    assert not list(own_cache.glob("*.attention")), "with more memory the answer may be another one"


@emulated
def test_ranks(compiled, data, tmp_path, own_cache):
    """All ranks use it, or none does: what they compute redundantly stays equal."""
    mesh = ("-D", "kv_heads=2", "--mesh", "dp=2")
    one, two = (compiled("llama", "cuda", BF16, options) for options in ((), mesh))
    reference = said(Trainer(one.folder, "cuda", own_cache), data, tmp_path / "one")[2]
    for path in own_cache.glob("*.attention"):
        path.unlink()
    trainer = Trainer(two.folder, "cuda", own_cache)
    slow = {"EMULATED_SLOW_KERNELS": "*"}.items()
    done = run(trainer, "dp=2", data, tmp_path / "two", steps=STEPS, environment=slow)
    assert re.search(r"attention: cuDNN \S+ computes (\d) of \1", done.stderr)
    assert_same(read_log(tmp_path / "two/log"), reference, "bf16")
    done = run(trainer, "dp=2", data, tmp_path / "half", steps=STEPS, environment=slow,
               of_rank='test $OMPI_COMM_WORLD_RANK = 1 && export EMULATED_CUDNN=old;')
    assert not re.search(r"cuDNN \S+ computes", done.stderr)
    assert_same(read_log(tmp_path / "half/log"), reference, "bf16")
