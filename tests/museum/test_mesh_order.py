"""The last axis of a mesh is the fastest over ranks, as it is written.

https://github.com/pytorch/torchtitan/issues/286: the mesh was built as (dp, tp) where the launcher puts neighbours of another
order side by side: tensor parallelism went across machines.  Nothing failed; it was slow.

Planted: the first axis is the fastest.  The training is the same; `--print-mesh` shows it.
"""
import pytest
from conftest import LAYOUTS, is_same, ranks

FIRST_IS_FASTEST = "comm.c", r"s/(for \(int i = )program->naxes - 1; i > axis; i--\)/\10; i < axis; i++)/"
OUTER_FIRST, INNER_FIRST = [(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.fixture
def places(text, tmp_path):
    """places(trainer, axes): the coordinates of rank 0, 1, ... as the trainer prints them."""
    def of(trainer, axes):
        said = trainer.command("--steps", 0, "--save", "saved", "--print-mesh")
        rows = [line.split() for line in ranks.start(said, tmp_path).stdout.splitlines()]
        head = next(at for at, row in enumerate(rows) if row[:1] == ["rank"])
        columns = [rows[head].index(axis) for axis in axes]
        return [tuple(int(row[column]) for column in columns) for row in rows[head + 1:head + 1 + trainer.ranks]]
    return of


@pytest.mark.parametrize("axes", [("dp", "tp"), ("tp", "dp")], ids="-".join)
def test_right(compiled, places, axes):
    assert places(compiled("-".join(axes)), axes) == OUTER_FIRST


def test_planted(compiled, places, train, alone):
    wrong = compiled("dp-tp", FIRST_IS_FASTEST)
    assert is_same(train(wrong, 1), alone[:1])
    assert places(wrong, ("dp", "tp")) == INNER_FIRST
