"""gpt2, llama and bert under layouts with every pair of choices, and in pipelines: no pass may change what two steps compute."""
import itertools
import re

import pytest

import layouts
from layouts import ALL


def test_layouts_cover_what_they_say():
    seen = list(layouts.layouts())
    assert len(seen) == (51 if ALL else len({str(layout) for layout in seen}))
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
    assert {(layout["zero"], layout["kept"]) for layout in seen} == set(itertools.product(range(4), layouts.KEPT))
    for key in ("zero", "recompute", "precision"):
        assert {(layout[key], layout["loss"]) for layout in seen} == set(itertools.product({layout[key] for layout in seen}, layouts.LOSSES))


@pytest.mark.skipif(ALL, reason="draws them")
@pytest.mark.parametrize("choices, found", [(layouts.CHOICES, layouts.layouts), (layouts.CHOICES_OF_PIPELINES, layouts.pipelines)])
def test_every_pair_of_choices(choices, found):
    seen = list(found())
    for a, b in itertools.combinations(choices, 2):
        wanted = {(x, y) for x in choices[a] for y in choices[b] if layouts.is_small({a: x, b: y})}
        assert {(layout[a], layout[b]) for layout in seen} >= wanted, (a, b)
    assert all(layouts.ranks_of(layout) <= 8 for layout in seen)


def test_passes_keep_the_meaning(tmp_path):
    """With reals, and for a third of the layouts, another third of each model's, modulo a prime too."""
    cases = list(layouts.cases())
    exactly = cases[::3]
    failures = layouts.verify_all(tmp_path, exactly, "--verify-passes=exact")
    failures += layouts.verify_all(tmp_path, [case for case in cases if case not in exactly])
    assert not failures, f"{len(failures)} of {len(cases)} fail\n\n" + "\n\n".join(failures[:5])


def test_chosen_residuals(tmp_path):
    cases = list(layouts.auto_cases(tmp_path))
    assert len(cases) == (18 if ALL else 3) and layouts.verify_all(tmp_path, cases, "--verify-passes=exact") == []


def test_more_ranks_than_heads(tmp_path):
    assert layouts.verify_all(tmp_path, layouts.pair_cases()) == []


def test_messages_cross_borders(tmp_path):
    cases = list(layouts.border_cases())
    for name, text, said in cases:
        (tmp_path / f"{name}.mdl").write_text(text)
        program = layouts.run([layouts.MPC, "compile", tmp_path / f"{name}.mdl", *said, "--compile-to=overlap", "-o", "-"]).stdout
        assert re.search(r"func @h\.(fwd|bwd)\(.*\.whole: .* in_flight", program), name
    assert layouts.verify_all(tmp_path, cases) == []


def test_padding_stays_out(tmp_path):
    assert layouts.verify_all(tmp_path, layouts.padded_cases(), "--verify-passes=exact") == []


def test_pipelines_cover_what_they_say():
    seen = list(layouts.pipelines())
    assert {(layout["schedule"], layout["chunks"]) for layout in seen} >= set(layouts.CHUNKED)
    for axis in ("pp", "dp", "tp", "model"):
        kinds = {(layout[axis], layout["schedule"]) for layout in seen if layout["chunks"] == 1}
        assert len(kinds) == len({kind for kind, _ in kinds}) * len(layouts.SCHEDULES)
    assert {layout["pp"] for layout in seen} == {2, 4}
    assert {layout["attend"] for layout in seen if layout["cp"] > 1} == {"gather", "ring"}
    assert {layout["zero"] for layout in seen if layout["dp"] > 1} == {0, 1, 2, 3}
    assert {layout["otherwise"] for layout in seen if layout["tp"] > 1} == {False, True}
    for key in ("recompute", "precision", "accumulation"):
        assert len({layout[key] for layout in seen}) == {"accumulation": 2, "recompute": 3, "precision": 4}[key]


def test_pipelines(tmp_path):
    """With reals, and of each schedule, with and without chunks, what takes least time modulo a prime too."""
    cases = list(layouts.pipeline_cases())
    longest_first = sorted(zip(layouts.pipelines(), cases), key=lambda both: layouts.time_of(both[0]), reverse=True)
    exactly = list({(layout["schedule"], layout["chunks"]): case for layout, case in longest_first}.values())
    failures = layouts.verify_all(tmp_path, exactly, "--verify-passes=exact")
    failures += layouts.verify_all(tmp_path, [case for case in cases if case not in exactly])
    assert not failures, f"{len(failures)} of {len(cases)} fail\n\n" + "\n\n".join(failures[:5])
