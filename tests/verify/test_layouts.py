"""gpt2, llama and bert under 51 layouts, and in pipelines: no pass may change what two steps compute."""
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
    assert {(layout["cp"], layout["attend"]) for layout in seen} >= {(2, "ring"), (4, "ring"), (2, "gather"), (4, "gather")}
    assert {layout["zero"] for layout in seen if layout["cp"] > 1 and layout["attend"] == "ring"} == {0, 1, 2, 3}
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


def test_pipelines_cover_what_they_say():
    seen = list(layouts.pipelines())
    assert {(layout["schedule"], layout["chunks"]) for _, layout in seen} >= set(layouts.CHUNKED)
    for axis in ("pp", "dp", "tp", "model"):
        kinds = {(model if axis == "model" else layout[axis], layout["schedule"]) for model, layout in seen
                 if layout["chunks"] == 1}
        assert len(kinds) == len({kind for kind, _ in kinds}) * len(layouts.SCHEDULES)
    assert {layout["pp"] for _, layout in seen} == {2, 4}
    assert {layout["attend"] for _, layout in seen if layout["cp"] > 1} == {"gather", "ring"}
    assert {layout["zero"] for _, layout in seen if layout["dp"] > 1} == {0, 1, 2, 3}
    assert {layout["otherwise"] for _, layout in seen if layout["tp"] > 1} == {False, True}
    for key in ("recompute", "precision", "accumulation"):
        assert len({layout[key] for _, layout in seen}) == {"accumulation": 2, "recompute": 3, "precision": 4}[key]


def test_pipelines(tmp_path):
    """With reals, and one of each schedule modulo a prime too."""
    cases = list(layouts.pipeline_cases())
    exactly = cases[:6:2] + cases[6:9]
    failures = layouts.verify_all(tmp_path, exactly, "--verify-passes=exact")
    failures += layouts.verify_all(tmp_path, [case for case in cases if case not in exactly])
    assert not failures, f"{len(failures)} of {len(cases)} fail\n\n" + "\n\n".join(failures[:5])
