"""Two runs give the same bits, in whatever order messages arrive.

https://github.com/vllm-project/vllm/issues/51290: a mode that guarantees identical bits gave different ones in each run under
tensor parallelism.  On some GPUs it used a fused kernel for all-reduce and norm, which summed the ranks' terms in an order that
varied from run to run.

mpc sums in the order of ranks.  Injected: the sum starts with a rank chosen by the clock, as if that rank's message had arrived
first.  Four ranks are needed: a sum of two terms does not depend on their order.  The verifier and the interpreter do not
detect the bug, because they do not round, and the comparison with one process tolerates rounding; a second run does.
tests/device/test_ranks.py has the same test for GPUs.
"""
from conftest import STEPS, is_same

ARRIVAL = "exchange.c", r"""1i #include <time.h>
s/load\(c->type, from\[0\]\.data/struct timespec now;\n    clock_gettime(CLOCK_MONOTONIC, \&now);\n    const int start = (int)(now.tv_nsec % n);\n    load(c->type, from[start].data/
s/load\(c->type, from\[q\]\.data/load(c->type, from[(start + q) % n].data/"""


def run(train, trainer, folder):
    """Its log, and the bytes of its checkpoint."""
    return train(trainer, STEPS, "--save", "saved"), (folder / "saved").read_bytes()


def test_right(compiled, train, alone, tmp_path):
    trainer = compiled("tp4")
    (log, once), (_, again) = run(train, trainer, tmp_path), run(train, trainer, tmp_path)
    assert once == again and is_same(log, alone)


def test_planted(compiled, train, alone, tmp_path):
    trainer = compiled("tp4", ARRIVAL)
    (log, once), (_, again) = run(train, trainer, tmp_path), run(train, trainer, tmp_path)
    assert once != again and is_same(log, alone)
