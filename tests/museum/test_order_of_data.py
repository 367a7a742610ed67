"""Each sequence of an epoch is read once, by one rank, however many there are; and again so after a resume.

https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/5944: where the sequences did not divide among the data ranks, one rank was
still in the first epoch while others had begun the second: a batch held a sequence twice, and a resumed run read others than
the unbroken one.

https://github.com/deepspeedai/DeepSpeed/issues/99: the loader used the rank among all processes, so that tensor-parallel ranks, which
work on the same sequences, read different ones.  https://github.com/vllm-project/speculators/pull/427: it used the rank within
the machine, so that all machines read the same sequences.

Planted: each rank counts the sequences of an epoch from its own rank on; ranks of tp read different sequences; ranks of dp read the same.
"""
import pytest
from conftest import is_same

STEPS, BEFORE, SEQUENCES = 8, 5, 27  # of 8: more than two epochs, and neither divides the other
AT = "run->place.position + n"
OWN_EPOCH = "train.c", (r"s/run->place.position \+ n\)/" +
                        rf"({AT} + run->rt.rank) \/ {SEQUENCES} * {SEQUENCES} + ({AT}) % {SEQUENCES})/")
OF_THE_WORLD = "train.c", rf"s/{AT.replace('+', '[+]')}\)/run->place.position + (n + run->rt.rank) % batch)/"
OF_THE_MACHINE = "train.c", rf"s/{AT.replace('+', '[+]')}\)/run->place.position + n % (batch \/ 2))/"


@pytest.fixture
def short(text, tmp_path):
    path = tmp_path / "short"
    path.write_bytes(text.read_bytes()[:16 * SEQUENCES + 1])
    return path


def test_right(compiled, train, short):
    expected = train(compiled("one"), STEPS, data=short)
    assert is_same(train(compiled("dp2"), STEPS, data=short), expected)
    train(compiled("dp2"), BEFORE, "--save", "saved", data=short)
    assert is_same(train(compiled("dp2-zero3"), STEPS, "--load", "saved", data=short), expected)


def test_planted(compiled, train, short):
    """The end of the first epoch lies in the fourth step."""
    right, wrong = train(compiled("one"), STEPS, data=short), train(compiled("dp2", OWN_EPOCH), STEPS, data=short)
    assert is_same(wrong[:3], right[:3]) and not is_same(wrong[3:4], right[3:4])


@pytest.mark.parametrize("name, plant", [("tp2-seq", OF_THE_WORLD), ("dp2", OF_THE_MACHINE)], ids=["of-the-world", "of-the-machine"])
def test_planted_rank(compiled, train, alone, name, plant):
    assert not is_same(train(compiled(name, plant), 1), alone[:1])
