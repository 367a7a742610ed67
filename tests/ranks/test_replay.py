"""--replay: a bit that flips in a step is noticed, wherever it is, and the same run again has the same results."""
import re

import pytest
from conftest import QUICK, ROOT, error_of, layout_of, read_log, start

FLIPPING = (f"{QUICK} -I{ROOT}/runtime -include {ROOT}/tests/ranks/flip.h", "--comm=tcp")
PLAIN = (QUICK, "--comm=tcp")
LAYOUTS = {"dp2": layout_of("gpt2", dict(dp=2)), "tp2": layout_of("gpt2", dict(tp=2)), "dp2-zero3": layout_of("gpt2", dict(dp=2), zero=3),
           "pp2": layout_of("gpt2", dict(pp=2))}
SAVE = ("--save", "a", "--save-every", 1000)


def trainer(compiled, name, options=FLIPPING):
    return compiled("gpt2", LAYOUTS[name], dict(layers=2, embed=16, heads=2, seq=8), {"microbatch": 4}, *options)


@pytest.fixture
def run(text, tmp_path):
    """run(trainer, steps, option, ..., status=0, FLIP_...=value): what it says on stderr."""
    def go(trainer, steps, *options, status=0, **environment):
        command = trainer.command("--data", text, "--data-format", "bytes", "--steps", steps, "--log", "log", "--overwrite", *options)
        return start(command, tmp_path, status, {name: str(value) for name, value in environment.items()}.items()).stderr
    return go


def flips_in(folder):
    """[(step, run, rank, tensor, element, before or after)]"""
    rows = [line.split() for line in (folder / "flips").read_text().splitlines()]
    return [(int(step), int(number), int(rank), tensor, int(element), when) for step, number, rank, tensor, element, when in rows]


@pytest.mark.parametrize("name", ["dp2", "pp2"])
def test_each_of_a_hundred_flips_is_found(compiled, run, tmp_path, name):
    """In any tensor on any rank, before a run or after it; the step runs again, and training is that without flips."""
    one = trainer(compiled, name)
    run(one, 100, "--save", "a")
    right = (tmp_path / "a").read_bytes()
    said = run(one, 100, "--save", "a", "--replay", 1, "--replay-retries", 1, FLIPS="flips", FLIP_EVERY=1)
    flips = flips_in(tmp_path)
    assert len(flips) == 100 and {rank for _, _, rank, *_ in flips} == {0, 1} and len({flip[3] for flip in flips}) > 30
    found = [int(step) for step in re.findall(r"note: step (\d+): two runs from one state have other results", said)]
    assert found == [flip[0] for flip in flips] == list(range(1, 101))
    assert (tmp_path / "a").read_bytes() == right
    assert [line["runs"] for line in read_log(tmp_path / "log")] == [3] * 100


def test_without_replay_they_are_not(compiled, run, tmp_path):
    """The control: the same flips change the training, and nothing is said."""
    one = trainer(compiled, "dp2")
    run(one, 5, "--save", "a")
    right = (tmp_path / "a").read_bytes()
    said = run(one, 5, "--save", "a", FLIPS="flips", FLIP_EVERY=1, FLIP_ONLY="after")
    assert (tmp_path / "a").read_bytes() != right and "two runs" not in said


@pytest.mark.parametrize("name", ["dp2", "tp2"])
def test_what_differs_is_named(compiled, run, tmp_path, name):
    """Rank, tensor and at most 64 elements of it, in which the one is that has flipped."""
    said = run(trainer(compiled, name), 20, "--replay", 1, "--replay-retries", 1, FLIPS="flips", FLIP_EVERY=1, FLIP_ONLY="after")
    notes = re.findall(r"step \d+: two runs .*?: rank (\d) \(.*?\): '(.*?)' in the (\d+) elements from \[(.*?)\] on; 1 of 2 ranks differ", said)
    flips = flips_in(tmp_path)
    assert [(int(rank), tensor) for rank, tensor, *_ in notes] == [(rank, tensor) for _, _, rank, tensor, *_ in flips] and len(flips) == 20
    for (_, _, elements, place), flip in zip(notes, flips):
        assert int(elements) <= 64
        if name == "dp2" and "," not in place:
            assert int(place) <= flip[4] < int(place) + int(elements)


def test_no_two_runs_are_the_same(compiled, run, tmp_path):
    """The run ends with the state before the step."""
    one = trainer(compiled, "dp2")
    run(one, 5, "--save", "a")
    right = (tmp_path / "a").read_bytes()
    said = run(one, 10, "--save", "a", "--replay", 3, "--replay-retries", 1, status=1, FLIPS="flips", FLIP_EVERY=6, FLIP_RUNS=3, FLIP_ONLY="after")
    assert "step 6: of 3 runs from one state, no two have the same results: " in error_of(said)
    assert "ended at step 5: resume with --load a" in error_of(said) and (tmp_path / "a").read_bytes() == right
    assert [(line["step"], line["runs"]) for line in read_log(tmp_path / "log")] == [(1, 1), (2, 1), (3, 2), (4, 1), (5, 1)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_runs_that_differ_in_nothing(compiled, run, tmp_path, name):
    """Data, random numbers and counters are the same in both runs."""
    one = trainer(compiled, name, PLAIN)
    run(one, 6, "--save", "a")
    right = (tmp_path / "a").read_bytes()
    said = run(one, 6, "--save", "a", "--replay", 2, "--save-every", 1)
    assert "differ" not in said and "other results" not in said and (tmp_path / "a").read_bytes() == right


def test_refused_with_what_is_on_disk(compiled, text, refused):
    one = compiled("gpt2", ("mesh dp = 2", "shard batch over dp", "offload optimizer to disk"), (), {"microbatch": 4}, *PLAIN)
    assert "--replay 1: the layout offloads to disk" in refused(one, "--data", text, "--data-format", "bytes", "--steps", 2, "--replay", 1)
