"""A checkpoint replaces the previous one only when it is complete.

https://github.com/KempnerInstitute/KempnerForge/issues/102: checkpoints were written in the background.  The link `latest` was moved
to the new checkpoint, and the oldest one removed, as soon as writing had started.  A run that was killed in the next minute
could not be resumed.

Injected into the runtime: the new file is renamed before it is complete, and the trainer is killed at this point.  The old checkpoint is
lost, and `--load` rejects the new one.  Without the bug, a trainer that is killed at the same point leaves the old file
unchanged.
"""
from conftest import ranks

KILLED = "output.c", r"s/^    if \(!output->error \&\& rename\(output->partial/    _exit(9);\n\0/"
NAMED_FIRST = "output.c", r"s/^    if \(output->file >= 0\)/    rename(output->partial, output->target);\n    _exit(9);\n&/"


def first_checkpoint(train, compiled, folder):
    """Saves a checkpoint; returns its bytes."""
    train(compiled("one"), 0, "--save", "saved")
    return (folder / "saved").read_bytes()


def test_right(compiled, train, tmp_path):
    before = first_checkpoint(train, compiled, tmp_path)
    ranks.start(compiled("one", KILLED).command("--steps", 0, "--seed", 7, "--save", "saved", "--overwrite"), tmp_path, 9)
    assert (tmp_path / "saved").read_bytes() == before


def test_planted(compiled, train, tmp_path):
    before = first_checkpoint(train, compiled, tmp_path)
    ranks.start(compiled("one", NAMED_FIRST).command("--steps", 0, "--seed", 7, "--save", "saved", "--overwrite"), tmp_path, 9)
    assert (tmp_path / "saved").read_bytes() != before
    said = ranks.start(compiled("one").command("--steps", 0, "--load", "saved"), tmp_path, 1).stderr
    assert "--load saved: " in ranks.error_of(said) and "complete" in said, said
