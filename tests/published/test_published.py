"""Predicted steps against measured and published ones: `published.py` prints them.

Of machines/h100.machine and h200.machine, `sustained`, `attention sustained` and `kernels` are from the traces of mpc's own
trainers on one GPU, all else from data sheets and from single kernels and messages; nothing is from steps, and nothing
from the tables of other frameworks.

nanotron runs each op of PyTorch as a kernel of its own, with attention by FlashAttention-2, logits in f32, and gradients
added up in f32 by kernels of their own.  None of this is in mpc's program, so a step takes longer; what
is held is that it takes longer, and that the layout which is predicted to be the fastest is.  The same is true of BLOOM's
sweep and of MPT, of 2022 and 2023; of these tables the memory is held, too.
"""
import statistics

import pytest

import bloom
import mpt
import offload
import published
import zero_bubble
from reports import quantile


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


@pytest.fixture(scope="module")
def sweep():
    return bloom.sweep()


def test_bloom_out_of_memory(sweep):
    """What ran out of memory was not going to fit with 15 % to spare: all but one row of six, which should have fit by the
    published memory of its neighbours, too.  Of what ran, at most 2 % are refused."""
    failed = {row["line"]: bloom.needed(row, report) for row, report in sweep if bloom.out_of_memory(row)}
    ran = [bloom.needed(row, report) for row, report in sweep if not bloom.out_of_memory(row)]
    assert len(failed) == 6 and len(ran) == 136
    assert {line for line, share in failed.items() if share <= 0.85} == {bloom.UNEXPLAINED}
    assert sum(share > 1 for share in ran) <= 0.02 * len(ran)


def test_bloom_memory(sweep):
    """Parameters as published.  The memory of a rank is a tenth less than theirs, as messages are not gathered in buffers; of that,
    layouts differ as published."""
    assert all(round(report["parameters"] / 1e9) == int(row["size"].rstrip("B")) for row, report in sweep
               if row["layers"] and row["gpus"] == "384")
    ratios = bloom.memory_ratios(sweep)
    middle = statistics.median(ratios)
    assert len(ratios) == 97 and 0.88 <= middle <= 0.92
    errors = [abs(ratio / middle - 1) for ratio in ratios]
    assert quantile(errors, 0.5) <= 0.04 and quantile(errors, 0.9) <= 0.16


def test_bloom_choice(sweep):
    assert min(bloom.time_ratios(sweep)) > 1
    chosen = bloom.choices(sweep)
    assert len(chosen) == 26
    assert statistics.median(chosen) <= 1.02 and statistics.mean(chosen) <= 1.08


def test_zero_bubble():
    """Memory, and what zb gains over 1f1b.  Steps took longer than predicted by less than a fifth."""
    found = list(zero_bubble.steps())
    assert len(found) == 24
    assert all(1 < speed / published < 1.2 for _, _, published, speed, _, _ in found)
    errors = [abs(needed / memory - 1) for *_, memory, needed in found]
    assert statistics.median(errors) <= 0.03 and max(errors) <= 0.12
    for plain, zb in zip(found[::2], found[1::2]):
        assert zb[3] / plain[3] == pytest.approx(zb[2] / plain[2], rel=0.04), plain[0]


def test_zero_bubble_actions():
    """F and B, in which most kernels of PyTorch are, took longer than predicted, W, which is products, less long: on an
    A100 these are faster than by the share that an H100 keeps of its products' speed in a program."""
    found = list(zero_bubble.actions())
    assert len(found) == 4
    for row, published, predicted in found:
        assert published[0] > predicted[0] and published[1] > predicted[1], row["model"]
        assert 1 < sum(published) / sum(predicted) < 1.15, row["model"]


def test_mpt(tmp_path):
    """All of these ran, and longer than predicted; a step on 512 ranks is slower than on 128 by as much as predicted."""
    found = list(mpt.steps(tmp_path))
    assert len(found) >= 88
    assert all(time["memory_bytes"] < time["memory_room_bytes"] for _, _, time in found)
    assert all(time["seconds"] < 1.02 * seconds for _, seconds, time in found)
    of_ranks = {(row["model"], row["gpus"]): (seconds, time["seconds"]) for row, seconds, time in found
                if row["table"].startswith("H100 80GB BF16 (Large Scale")}
    for model in ("1b", "3b", "7b", "13b", "30b", "70b"):
        published_ratio, ratio = (of_ranks[model, "512"][i] / of_ranks[model, "128"][i] for i in (0, 1))
        assert ratio == pytest.approx(published_ratio, rel=0.06), model


def test_superoffload():
    """Of a step on one GH200 mpc waits for transfers that SuperOffload hides: it takes longer, and by less than all of these."""
    [(row, made, tflops)] = offload.superoffload()
    assert made["parameters"] == pytest.approx(float(row["parameters"]), rel=0.005)
    measured, seconds = float(row["tflops"]), made["time"]["seconds"]
    assert 0.85 * measured < tflops < measured < tflops * seconds / (seconds - offload.waited(made))


@pytest.mark.parametrize("name", ["Llama 8B", "Qwen3 14B"])
@pytest.mark.parametrize("machine, bandwidth", [("h100", 64e9), ("gh200", 336e9)])
def test_zero_infinity(name, machine, bandwidth):
    """What transfers leave of the speed is ZeRO-Infinity's law, with 24 bytes of a parameter: with 32, the law's, it is less.
    Of the 28 that are moved, 4 are read while the first of the micro-batches is computed."""
    made = offload.step(machine, offload.STATE + offload.NARROW, **offload.SHAPES[name])
    seconds, tokens = made["time"]["seconds"], 16 * 4096
    alone = seconds - offload.waited(made)
    left, speed = alone / seconds, 8 * made["parameters"] * tokens / alone
    law = offload.bandwidth_law(tokens, bandwidth, speed)
    assert law < left < 1.11 * law
    assert left == pytest.approx(offload.bandwidth_law(tokens, bandwidth, speed, 24), rel=0.01)


def test_largest_models():
    """Of 18 bytes of a parameter 6 stay without the optimizer's state; of 14 the host has 480 GB.  By the paper, with whose
    frameworks other things take memory: 3.5, 15, 25 billion parameters."""
    room = 102.63e9
    limits = {"PyTorch DDP": (offload.NONE, room / 18), "ZeRO-Offload": (offload.STATE, room / 6),
              "SuperOffload": (offload.ALL + offload.NARROW, 480e9 / 14)}
    table = {row["system"]: float(row["largest"]) for row in offload.rows("offload.csv") if row["largest"]}
    assert table.keys() == limits.keys()
    for system, (options, limit) in limits.items():
        found = offload.largest("gh200", options)
        assert table[system] < found and 0.9 * limit < found < 1.01 * limit, system
