"""A checkpoint of several ranks has each element of each tensor, and the optimizer's state belongs to its parameter.

https://github.com/NVIDIA/Megatron-LM/issues/4378: a plan of who writes what was kept from the first checkpoint of a run.  Where
another shard was added later, nobody wrote it; the job ended normally, and the next one could not load the file.
https://github.com/NVIDIA/Megatron-LM/pull/5077: with more than one bucket of gradients, offsets into the optimizer's state counted
padding that the state did not have.  Every parameter behind the first bucket got the state of others, and zeros where
the state ended.
https://github.com/areal-project/AReaL/pull/1468: a load that was asked for the optimizer's moments left them at zero.

Planted into the runtime:

* A rank leaves its shard of a tensor out.  The number of elements that all ranks have written is not that of the tensor: an error
  of `--save`, which leaves the file there before as it is.
* A rank counts its shard, and it does not reach the file; or it is written where another rank's is.  The file has another
  checksum than what was written: an error of `--load`.
* The load reads the state of another shard, or no state.  The file that is saved again has other bytes.  Only a test sees this: a
  trainer that has loaded something wrong, and nothing else, has no second opinion about what it should have loaded.
"""
import pytest
from conftest import STEPS, is_same, ranks

BEFORE = 3
LEFT_OUT = "checkpoint.c", r"s/= views\[i\]\.is_owner \?/= views[i].is_owner \&\& !(rt->rank == 1 \&\& i == 3) ?/"
OTHERS = r'strcmp(view->name, "attend.0.wq")'
LOST = "checkpoint.c", rf"s/^( +)rt_output_write\(output, part, /\1if (rt->rank == 0 || {OTHERS})\n    &/"
OVERWRITTEN = "checkpoint.c", rf"s/begin \+ 4 \* range\.whole/begin + 4 * ({OTHERS} ? range.whole : range.own)/"
STATE_OF_ANOTHER = "checkpoint.c", r"s/stored->data \+ 4 \* range\.whole/stored->data + 4 * (view->is_state ? range.own : range.whole)/"
NO_STATE = "checkpoint.c", r"s/weights_only && views\[i\]\.is_state/views[i].is_state/"


@pytest.fixture
def refused(text, tmp_path):
    """refused(trainer, option, ...): the error with which it ends."""
    def run(trainer, *options):
        return ranks.error_of(ranks.start(trainer.command(*options), tmp_path, status=1).stderr)
    return run


@pytest.fixture
def again(train, tmp_path):
    """again(trainer): the bytes of a checkpoint that it makes of the one that is there."""
    def run(trainer):
        train(trainer, 0, "--load", "saved", "--save", "again")
        return (tmp_path / "again").read_bytes()
    return run


def test_right(compiled, train, again, tmp_path):
    """Shards of zero 3 over dp are read as those of tp and seq, and written as they were."""
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
    """The loss of the next step is right: it takes a step until the state matters."""
    wrong = compiled("dp2-zero3", plant)
    train(compiled("one"), BEFORE, "--save", "saved")
    assert again(wrong) != (tmp_path / "saved").read_bytes()
    log = train(wrong, STEPS, "--load", "saved")
    assert is_same(log[BEFORE:BEFORE + 1], alone[BEFORE:BEFORE + 1]) and not is_same(log[BEFORE:], alone[BEFORE:])
