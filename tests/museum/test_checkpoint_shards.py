"""A checkpoint of several ranks contains every element of every tensor, and each parameter gets its own optimizer state.

https://github.com/NVIDIA/Megatron-LM/issues/4378: the plan of which rank writes what was computed for the first checkpoint of a run
and reused.  A shard that appeared later was not written; the job ended normally, and the next job could not load the file.
https://github.com/NVIDIA/Megatron-LM/pull/5077: with more than one bucket of gradients, offsets into the optimizer's state included
padding that the state does not have.  Parameters after the first bucket were saved with the state of other parameters, and with
zeros where the state ended.
https://github.com/areal-project/AReaL/pull/1468: loading a checkpoint silently dropped the optimizer's moments.

Injected into the runtime:

* A rank does not write its shard of a tensor.  `--save` fails, because the ranks together have written fewer elements than the
  tensor has; the previous file is unchanged.
* A rank counts its shard as written, but it does not reach the file, or it overwrites the shard of another rank.  `--load` fails,
  because the checksum of what was written is not that of the file.
* Loading reads the optimizer state of another shard, or none.  A file that is loaded and saved again has different bytes.  A run does
  not detect this by itself: the trainer has nothing to compare the state with.
"""
import pytest
from conftest import STEPS, is_same, ranks

BEFORE = 3
OTHERS = r'strcmp(view->name, "attend.0.wq")'
LEFT_OUT = "save.c", rf"s/if \(!is_among\(s, view, which\)/\0 || (s->rt->rank == 1 \&\& !{OTHERS})/"
LOST = "save.c", rf"s/^( +)rt_output_write\(output, values, /\1if (s->rt->rank == 0 || {OTHERS})\n    \0/"
OVERWRITTEN = "save.c", rf"s/begin \+ 4 \* \(range\.whole/begin + 4 * (({OTHERS} ? range.whole : range.own)/"
STATE_OF_ANOTHER = "checkpoint.c", r"s/stored->data \+ 4 \* range\.whole/stored->data + 4 * (view->is_state ? range.own : range.whole)/"
NO_STATE = "checkpoint.c", r"s/weights_only && views\[i\]\.is_state/views[i].is_state/"


@pytest.fixture
def refused(text, tmp_path):
    """refused(trainer, option, ...): its error."""
    def run(trainer, *options):
        return ranks.error_of(ranks.start(trainer.command(*options), tmp_path, status=1).stderr)
    return run


@pytest.fixture
def again(train, tmp_path):
    """again(trainer): the bytes of the checkpoint that it writes after loading `saved`."""
    def run(trainer):
        train(trainer, 0, "--load", "saved", "--save", "again")
        return (tmp_path / "again").read_bytes()
    return run


def test_right(compiled, train, again, tmp_path):
    """Saved by ZeRO 3 over dp, loaded and saved by tensor and sequence parallelism: the same bytes."""
    train(compiled("dp2-zero3"), BEFORE, "--save", "saved")
    assert again(compiled("tp2-seq")) == (tmp_path / "saved").read_bytes()


def test_planted_shard_left_out(compiled, refused, train, tmp_path):
    train(compiled("one"), 0, "--save", "saved")
    before = (tmp_path / "saved").read_bytes()
    said = refused(compiled("dp2-zero3", LEFT_OUT), "--steps", 0, "--save", "saved", "--overwrite")
    assert "--save saved: the ranks have written 128 elements of tensor 'attend.0.wq'" in said, said
    assert (tmp_path / "saved").read_bytes() == before and not (tmp_path / "saved.tmp").exists()


@pytest.mark.parametrize("plant", [LOST, OVERWRITTEN], ids=["lost", "overwritten"])
def test_planted_shard_in_the_file(compiled, refused, train, tmp_path, plant):
    train(compiled("dp2-zero3", plant), 0, "--save", "saved")
    assert "tensor 'attend.0.wq' has a wrong checksum; the file is damaged" in refused(compiled("one"), "--steps", 0, "--load", "saved")


@pytest.mark.parametrize("plant", [STATE_OF_ANOTHER, NO_STATE], ids=["of-another", "none"])
def test_planted_state(compiled, train, again, alone, tmp_path, plant):
    """The first step after loading has the right loss: the state affects the following steps."""
    wrong = compiled("dp2-zero3", plant)
    train(compiled("one"), BEFORE, "--save", "saved")
    assert again(wrong) != (tmp_path / "saved").read_bytes()
    log = train(wrong, STEPS, "--load", "saved")
    assert is_same(log[BEFORE:BEFORE + 1], alone[BEFORE:BEFORE + 1]) and not is_same(log[BEFORE:], alone[BEFORE:])
