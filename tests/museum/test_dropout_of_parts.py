"""Ranks that hold different parts of a tensor drop the same places of their parts.

https://github.com/NVIDIA/Megatron-LM/issues/1256: for over a year, dropout under sequence parallelism was not drawn from
the generator that differs from rank to rank, because two contexts were joined by `and` where a comma belongs.  Each rank
dropped the same places of its part of the sequence.  The other way round is as wrong, and was reported as well
(https://github.com/tenstorrent/tt-metal/issues/55947): ranks that hold copies must draw alike.

Here a mask is a function of an element's place in the whole tensor.  Planted: the place in the rank's own part.
"""
from conftest import STEPS, is_same

OWN_PLACE = "trainer.c", r"/_i_at =/,/;/s/offset_\w+\.first|\w+_of_\w+|rt_coordinate\([^)]*\)/0/g"


def test_right(compiled, train, alone):
    assert is_same(train(compiled("tp2-seq"), STEPS), alone)
    assert is_same(train(compiled("dp2"), STEPS), alone)


def test_planted(compiled, train, alone):
    assert not is_same(train(compiled("tp2-seq", OWN_PLACE), STEPS), alone)
    assert not is_same(train(compiled("dp2", OWN_PLACE), STEPS), alone)
