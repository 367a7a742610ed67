"""A run that is repeated has the same bits, in whatever order messages arrive.

https://github.com/vllm-project/vllm/issues/51290: a mode that promises the same bits had others in each run under tensor
parallelism.  A fused all-reduce and norm, chosen on some GPUs only, added up what the ranks sent in an order that varied from
run to run.  Two terms have the same sum in both orders, so it takes more than two ranks.

Here sums over ranks are in the order of ranks.  Planted: a sum begins with a rank that the clock chooses, as if that had been the
first to arrive.  No check of types or of meaning can notice it, since neither rounds, nor does a comparison with one process,
which has to allow for rounding: what notices it is a second run.  For GPUs, tests/device/test_ranks.py does the same.
"""
from conftest import STEPS, is_same

ARRIVAL = "exchange.c", r"""1i #include <time.h>
s/load\(c->type, from\[0\]\.data/struct timespec now;\n    clock_gettime(CLOCK_MONOTONIC, \&now);\n    const int start = (int)(now.tv_nsec % n);\n    load(c->type, from[start].data/
s/load\(c->type, from\[q\]\.data/load(c->type, from[(start + q) % n].data/"""


def run(train, trainer, folder):
    """Its log, and the bytes of weights and optimizer after it."""
    return train(trainer, STEPS, "--save", "saved"), (folder / "saved").read_bytes()


def test_right(compiled, train, alone, tmp_path):
    trainer = compiled("tp4")
    (log, once), (_, again) = run(train, trainer, tmp_path), run(train, trainer, tmp_path)
    assert once == again and is_same(log, alone)


def test_planted(compiled, train, alone, tmp_path):
    trainer = compiled("tp4", ARRIVAL)
    (log, once), (_, again) = run(train, trainer, tmp_path), run(train, trainer, tmp_path)
    assert once != again and is_same(log, alone)
