"""What mpc plan finds, held against all layouts compiled (--exhaustive), and against mpc report of the layouts."""
import copy
import json
import re
import sys

import pytest

from spaces import LARGER, SPACES, meshes, most_below, plan
from texts import BUILD, PARALLEL, ROOT, report, run

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests/published"))
from cover import ALL  # noqa: E402
from published import DGX  # noqa: E402
from reports import sizes  # noqa: E402

STRUCTURE_ERROR = float(re.search(r"#define STRUCTURE_ERROR ([\d.]+)", (ROOT / "driver/planner/planner.h").read_text())[1])
TRIED = SPACES + (LARGER if ALL else [])


def check_sums(answer):
    """Every layout is accounted for."""
    space = answer["space"]
    assert space["layouts"] == space["do_not_fit"] + space["refused"] + space["slower"] + space["open"] + len(answer["best"])
    assert space["by_a_bound"] <= space["do_not_fit"] and len(answer["best"]) <= space["meshes"] - space["indivisible_meshes"]


@pytest.mark.parametrize("space", TRIED, ids=[space.name for space in TRIED])
def test_it_is_the_best_of_all(space, tmp_path):
    """The first is as fast as any; of each mesh there is a layout that is the fastest to STRUCTURE_ERROR; bounds are below times and bytes."""
    found, every = (space.plan(tmp_path, "--top=100", *options) for options in ((), ("--exhaustive",)))
    first = space.plan(tmp_path, "--top=1")  # for which no memory is planned of layouts that are slower than one that fits
    for answer in found, every, first:
        check_sums(answer)
    assert first["best"] == found["best"][:1] and first["proved"]
    assert found["proved"] and found["overrun"] == 0
    assert every["overrun"] == every["overrun_memory"] == 0  # all bounds of all layouts, though most are never looked at
    assert every["space"]["compiled"] == every["space"]["layouts"] > found["space"]["compiled"]
    assert found["best"][0]["seconds"] == pytest.approx(every["best"][0]["seconds"], rel=1e-9)
    assert meshes(found).keys() == meshes(every).keys()
    for mesh, row in meshes(found).items():
        best = meshes(every)[mesh]["seconds"]
        assert best * (1 - 1e-9) <= row["seconds"] <= best / (1 - STRUCTURE_ERROR), mesh
        assert row["bound"] <= row["seconds"] and row["fits"]
    for count in "meshes", "indivisible_meshes", "layouts":
        assert found["space"][count] == every["space"][count]
    for count in "do_not_fit", "refused":  # that is proved of as many at most; others are slower
        assert found["space"][count] <= every["space"][count]
    assert not space.prunes or 0 < found["space"]["by_a_bound"]
    assert every["space"]["do_not_fit"] > 0 if space.prunes else every["space"]["do_not_fit"] == 0


DEEPSEEK = "dp=8 cp=1 microbatch=1 recompute=full zero=1 overlap=1 schedule=1f1b chunks=1"


@pytest.mark.parametrize("keep, share", [(f"{DEEPSEEK} ep=8 pp=32 tp=1", 0.9), (f"{DEEPSEEK} ep=16 pp=16 tp=1", 0.9),
                                         ("dp=256 cp=4 ep=1 pp=2 microbatch=1 recompute=full zero=3 overlap=1 attend=gather schedule=1f1b", 0.6)])
def test_bounds_of_experts_are_close(keep, share):
    """Stages inside of the ranks of experts put these on several machines; zero gathers their weights, too."""
    row = plan(ROOT / "examples/deepseek.mdl", "--set=train.batch=4096", "--ranks=2048", "--machine=h200", "--memory=1e15",
               *(f"--keep={kept}" for kept in keep.split()))["best"][0]
    assert share * row["seconds"] <= row["bound"] <= row["seconds"]


def test_bounds_of_divided_actions_are_close():
    """What only the last stage has, as sums of labels, has no bytes on the first one."""
    (row,) = plan(ROOT / "examples/bert.mdl", "--set=train.batch=32", "--ranks=2", "--machine=h100", "--keep=pp=2", "--keep=microbatch=4", "--keep=recompute=none",
                  "--keep=schedule=zb", "--keep=chunks=2", "--exhaustive")["best"]
    assert 0.85 * row["seconds"] <= row["bound"] <= row["seconds"]


def test_bounds_know_packing(tmp_path):
    """Of several sequences, what goes to experts is copied into messages, which takes 2 % of these steps."""
    space = next(space for space in SPACES if space.name == "messages that are packed")
    assert most_below(space.plan(tmp_path)) < 0.025


def test_bounds_of_memory_know_the_ends():
    """The embedding is on the first stage, where a backward layer has values of its own."""
    words = [ROOT / "tests/published/llama.mdl", *sizes(layers=80, seq=8192, vocab=128256, head=128, **DGX["70b"]), "--set=train.batch=64", "--ranks=16",
             "--machine=h100", "--offload=none", "--json"]
    words += [f"--keep={kept}" for kept in "pp=4 tp=4 microbatch=1 recompute=full schedule=1f1b".split()]
    (row,) = json.loads(run(BUILD / "mpc", "plan", *words, "--memory=1e15"))["best"]
    answer = json.loads(run(BUILD / "mpc", "plan", *words, f"--memory={0.98 * (row['arena_bytes'] + row['beside_bytes'])}", status=1))
    assert answer["space"]["compiled"] == 0 and answer["space"]["by_a_bound"] == 1


def test_zero_2_of_one_micro_batch(tmp_path):
    """With overlap it is what zero 1 is, and left out unless it is asked for."""
    words = [ROOT / "examples/gpt2.mdl", "-Dlayers=2", "--ranks=2", "--machine=h100", "--keep=dp=2", "--keep=recompute=none", "--keep=overlap=1", "--exhaustive"]
    one, several = (plan(*words, f"--set=train.batch={batch}", "--keep=microbatch=2")["space"]["layouts"] for batch in (4, 8))
    assert (one, several) == (3, 4)
    first, second = (plan(*words, "--set=train.batch=4", "--keep=microbatch=2", f"--keep=zero={zero}")["best"][0] for zero in (1, 2))
    assert first["seconds"] == second["seconds"] and first["arena_bytes"] == second["arena_bytes"]


def test_bounds_of_memory_know_scratch():
    """A fifth less than it needs, and the layout is not even compiled: what a backward layer has at once is much of it."""
    words = [ROOT / "examples/llama.mdl", "-Dlayers=2", "-Dseq=2048", "-Dvocab=256", "--set=train.batch=32", "--ranks=2", "--machine=h100", "--offload=none",
             "--keep=tp=2", "--keep=cp=1", "--keep=microbatch=8", "--keep=recompute=full", "--json"]
    (row,) = json.loads(run(BUILD / "mpc", "plan", *words, "--memory=1e15"))["best"]
    answer = json.loads(run(BUILD / "mpc", "plan", *words, f"--memory={0.8 * (row['arena_bytes'] + row['beside_bytes'])}", status=1))
    assert answer["space"]["compiled"] == 0 and answer["space"]["by_a_bound"] == answer["space"]["layouts"] == 1


REPORTED = [space for space in SPACES if space.name in ("all axes of a dense model", "more stages than a machine has ranks", "experts",
                                                         "records", "derived, with pairs", "little memory, stages", "messages in pieces", "micro-batches abreast", "abreast in stages")]


def test_pieces_where_they_pay(tmp_path):
    """The text of a layout says how many, and whole messages, which it has without being asked, take longer."""
    space = next(space for space in SPACES if space.name == "messages in pieces")
    without = copy.copy(space)
    without.options = [option for option in space.options if option != "--keep=pieces=4"]
    (row,), (whole,) = (each.plan(tmp_path)["best"] for each in (space, without))
    assert row["pieces"] == 4 and f"else seq (overlap = {row['pieces']})" in row["parallel"]
    assert whole["pieces"] == 1 and "(overlap =" not in whole["parallel"] and row["seconds"] < whole["seconds"]


def test_abreast_where_it_pays(tmp_path):
    """As --keep says, --set or the file; with it a step takes less; other layouts stay as they are."""
    space = next(space for space in SPACES if space.name == "micro-batches abreast")
    without, set_so, written = copy.copy(space), copy.copy(space), copy.copy(space)
    for other in without, set_so, written:
        other.options = [option for option in space.options if option != "--keep=abreast=2"]
    set_so.sizes = space.sizes + ["--set=train.abreast=2"]
    written.edit = "train {", "train {\n    abreast = 2"
    rows = [each.plan(tmp_path)["best"] for each in (space, without, set_so, written)]
    assert rows[0][0]["abreast"] == 2 and rows[1][0]["abreast"] == 1 and rows[0][0]["seconds"] < rows[1][0]["seconds"]
    assert rows[2] == rows[3] == rows[0]
    assert "abreast" not in plan(space.path(tmp_path), *space.sizes[:-1], "--set=train.batch=2", *space.options)["best"][0]


def with_layout(path, row, folder):
    """A copy of the file with the layout of a row."""
    text, block = path.read_text(), row["parallel"]
    text = PARALLEL.sub(lambda _: block, text) if PARALLEL.search(text) else f"{text}\n{block}"
    copy = folder / f"with_{path.name}"
    copy.write_text(text)
    return copy


@pytest.mark.parametrize("space", REPORTED, ids=[space.name for space in REPORTED])
def test_rows_are_as_reported(space, tmp_path):
    """Memory to the byte, and times, of each layout that is listed, when it is in the file."""
    answer = space.plan(tmp_path, *([] if ALL else ["--top=3"]))
    machine = next(option for option in space.options if option.startswith("--machine"))
    for row in answer["best"]:
        path = with_layout(space.path(tmp_path), row, tmp_path)
        found = report(path, *space.sizes, f"--set=train.microbatch={row['microbatch']}", f"--set=train.abreast={row.get('abreast', 1)}", f"--target={answer['target']}", machine)
        memory, time = found["memory"], found["time"]
        assert row["arena_bytes"] <= memory["arena"]  # the largest, which the kind of rank that needs most in all need not have
        assert row["beside_bytes"] <= memory["messages"] + memory.get("products", 0) + memory.get("offloaded", {}).get("buffers", 0)
        assert row["arena_bytes"] + row["beside_bytes"] == time["memory_bytes"]
        assert row["seconds"] == pytest.approx(time["seconds"], rel=1e-9)
        assert row["mfu"] == pytest.approx(time["mfu"], rel=1e-9)
        for part, seconds in row["parts"].items():
            assert seconds == pytest.approx(time["parts"][part], rel=1e-9, abs=1e-12), part
        assert {axis: size for axis, size in row["mesh"].items() if size > 1} == {
            axis: size for axis, size in found["mesh"]["axes"].items() if size > 1}

