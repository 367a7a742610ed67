"""Initial weights do not depend on how many ranks there are, nor are the shards of a tensor alike.

https://github.com/allenai/OLMo-core/pull/307: all ranks drew their shards from one seed, so the shards of a tensor had the
same numbers.  The repair gave each rank a seed of its own, so that the replicas of a shard differed
(https://github.com/allenai/OLMo-core/pull/319).

Here a number is a function of the seed, the tensor's name and the element's place in the whole tensor.  Planted: the place
in the rank's own part; a seed for each place on dp.
"""
import pytest
from conftest import STEPS, is_same

OWN_PLACE = "init.c", r"s/view->part\[d\]/rt_own_part(view->size[d])/; s/^static RtInitial initial_of/static RtPart rt_own_part(int64_t size) { return (RtPart){ 0, size, 0 }; }\n&/"
OWN_SEED = "init.c", r"s/initial_of\((.*), seed\);/initial_of(\1, seed + (uint32_t)rt_coordinate(rt, 0));/"


@pytest.fixture
def weights(train, tmp_path):
    def of(trainer, *options):
        train(trainer, 0, "--save", "saved", *options)
        return (tmp_path / "saved").read_bytes()
    return of


@pytest.mark.parametrize("name", ["dp2-zero3", "tp2-seq"])
def test_right(compiled, weights, name):
    expected = weights(compiled("one"))
    assert weights(compiled(name)) == expected
    assert weights(compiled("one"), "--seed", 7) != expected


@pytest.mark.parametrize("name, plant", [("dp2-zero3", OWN_PLACE), ("tp2-seq", OWN_PLACE), ("dp2-zero3", OWN_SEED)])
def test_planted(compiled, weights, name, plant):
    assert weights(compiled(name, plant)) != weights(compiled("one"))


def test_planted_replicas(compiled, train, weights, alone):
    """A checkpoint has one replica only, so it takes a training to see that they differ."""
    wrong = compiled("dp-tp", OWN_SEED)
    assert weights(wrong) == weights(compiled("one"))
    assert not is_same(train(wrong, STEPS), alone)
