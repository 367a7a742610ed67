"""Predicted steps against measured and published ones: `published.py` prints them.

Of machines/h100.machine and h200.machine, `sustained`, `attention sustained` and `kernels` are from the traces of mpc's own
trainers on one GPU, all else from data sheets and from single kernels and messages; nothing is from steps, and nothing
from the tables of other frameworks.

nanotron runs each op of PyTorch as a kernel of its own, with attention by FlashAttention-2, logits in f32, and gradients
added up in f32 by kernels of their own.  None of this is in mpc's program, so a step takes longer; what
is held is that it takes longer, and that the layout which is predicted to be the fastest is.
"""
import statistics

import pytest

import published


@pytest.fixture(scope="module")
def dgx():
    return published.dgx()


def test_own_trainers_on_one_gpu():
    """The whole step, of which no constant is; and its parts, by whose mean constants are."""
    found = list(published.own())
    assert len(found) >= 7
    for name, ms, trace, time in found:
        assert 1e3 * time["seconds"] == pytest.approx(ms, rel=0.10 if "fp8" in name else 0.05), name
        for part, measured in trace.items():
            assert 1e3 * time["parts"][part] == pytest.approx(measured, rel=0.12), (name, part)


def test_dgx_cloud(dgx):
    """Llama 3.1 8B, 70B, 405B by NeMo and Megatron-Core, on 8 to 2,048 GPUs."""
    errors = published.errors(dgx)
    assert len(errors) == 17
    assert statistics.median(errors) <= 0.04 and errors[15] <= 0.09


def test_dgx_cloud_more_ranks(dgx):
    """The same work for each rank: as published, a step takes as long on 2,048 ranks as on 64."""
    found = {(row["title"], row["gpus"]): (seconds, time["seconds"]) for row, seconds, time in dgx}
    for title, few, many in (("Llama 3.1 70b BF16", "64", "2048"), ("Llama 3.1 405b BF16", "512", "2048")):
        published_ratio, ratio = (found[title, many][i] / found[title, few][i] for i in (0, 1))
        assert ratio == pytest.approx(published_ratio, rel=0.02)


def test_nanotron(tmp_path):
    found = published.nanotron(tmp_path)
    assert len(found) > 100
    of_group = {}
    for row, seconds, time in found:
        of_group.setdefault(published.group_of(row), []).append((seconds, time["seconds"]))
    assert all(predicted < 1.02 * seconds for pairs in of_group.values() for seconds, predicted in pairs)
    chosen = [min(pairs, key=lambda pair: pair[1])[0] / min(seconds for seconds, _ in pairs) for pairs in of_group.values()]
    assert statistics.median(chosen) <= 1.02 and statistics.mean(chosen) <= 1.08
