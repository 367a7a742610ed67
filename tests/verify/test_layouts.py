"""gpt2, llama and bert under 51 layouts each: no pass may change what two steps compute."""
import pytest

import layouts


def test_layouts_cover_what_they_say():
    seen = list(layouts.layouts())
    assert len(seen) >= 40
    for axis in ("dp", "cp", "tp"):
        assert {layout[axis] for layout in seen} == {1, 2, 4}
        assert {(layout[axis] > 1, layout["zero"]) for layout in seen} >= {(True, stage) for stage in range(4)}
        for key in ("otherwise", "accumulation", "recompute", "precision"):
            split = {layout[key] for layout in seen if layout[axis] > 1}
            assert split == {layout[key] for layout in seen} and len(split) > 1
    assert {(layout["zero"], layout["recompute"]) for layout in seen} == {
        (stage, policy) for stage in range(4) for policy in ("none", "full", "selective")}


def test_passes_keep_the_meaning(tmp_path):
    """With reals, and for a third of the layouts, another third of each model's, modulo a prime too."""
    cases = list(layouts.cases())
    exactly = cases[::3]
    failures = layouts.verify_all(tmp_path, exactly, "--verify-passes=exact")
    failures += layouts.verify_all(tmp_path, [case for case in cases if case not in exactly])
    assert not failures, f"{len(failures)} of {len(cases)} fail\n\n" + "\n\n".join(failures[:5])


@pytest.mark.parametrize("option", ["--verify-passes", "--verify-passes=exact"])
def test_chosen_residuals(tmp_path, option):
    cases = list(layouts.auto_cases(tmp_path))
    assert len(cases) == 18 and layouts.verify_all(tmp_path, cases, option) == []


def test_more_ranks_than_heads(tmp_path):
    assert layouts.verify_all(tmp_path, layouts.pair_cases()) == []


def test_padding_stays_out(tmp_path):
    assert layouts.verify_all(tmp_path, layouts.padded_cases(), "--verify-passes=exact") == []
