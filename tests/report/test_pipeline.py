"""The pipeline in the report: stages, times and memory of the compiled program, and its picture."""
import json
import os
import re
import xml.etree.ElementTree as ET

import pytest

from conftest import HERE, MPC, data_of, run
from test_timeline import actions

PIPE = HERE / "pipe.mdl"
SCHEDULES = ["naive", "gpipe", "1f1b"]
MICROS = 4
EQUAL = dict(vocab=2, ff=4096)  # stages: neither the embedding nor the head is much


@pytest.fixture
def pipeline(report):
    """pipeline(pp, "--gpu-flops=1e9", ff=16): that part of the JSON."""
    return lambda pp, *options, **sizes: report(f"--mesh=pp={pp}", *options, file=PIPE, **sizes)["pipeline"]


def text_of(*words, status=0):
    return run(MPC, "report", PIPE, *words, status=status).stdout


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("schedule, published", [("naive", lambda p: (p - 1) / p), ("gpipe", lambda p: (p - 1) / (MICROS + p - 1)),
                                                 ("1f1b", lambda p: (p - 1) / (MICROS + p - 1))])
def test_bubble_of_equal_stages(pipeline, schedule, published, pp):
    figures = pipeline(pp, f"--schedule={schedule}", **EQUAL)
    assert (figures["schedule"], figures["axis"], figures["micro_batches"]) == (schedule, "pp", MICROS)
    assert figures["published_bubble"] == pytest.approx(published(pp))
    assert figures["bubble"] == pytest.approx(published(pp), rel=2e-3)
    assert [stage["share"] for stage in figures["stages"]] == pytest.approx([1 / pp] * pp, rel=2e-3)


@pytest.mark.parametrize("schedule, chunks, published", [("interleaved", 2, 1 / (2 * MICROS + 1)), ("gpipe", 2, 1 / (2 * MICROS + 1)),
                                                         ("naive", 2, 1 / 2)])
def test_bubble_of_chunks(pipeline, schedule, chunks, published):
    """Two stages on each of two ranks, a layer on each."""
    figures = pipeline(2, f"--schedule={schedule}", f"--chunks={chunks}", **EQUAL)
    assert figures["published_bubble"] == pytest.approx(published)
    assert figures["bubble"] == pytest.approx(published, rel=5e-3)
    assert [stage["share"] for stage in figures["stages"]] == pytest.approx([1 / 4] * 4, rel=2e-3)
    assert [stage["holds"].split(",")[0] for stage in figures["stages"]] == [f"h.{copy}" for copy in range(4)]


def test_most_stages(pipeline):
    """1024 stages, of as many ranks and chunks as there may be."""
    options = "--schedule=interleaved", "--chunks=16", "--set=train.batch=128", "--set=train.microbatch=2"
    stages = pipeline(64, *options, layers=1024, **EQUAL)["stages"]
    assert [stage["holds"].split(",")[0] for stage in stages] == [f"h.{copy}" for copy in range(1024)]


def dualpipev(ranks, rank, micros):
    """The actions of a rank as DeepSeek publish them: chunk 1 is on the way back; W follows its B, or waits for a gap."""
    actions, waiting, stage = [], [], (rank, 2 * ranks - 1 - rank)

    def act(kind, chunk):
        actions.append(f"{kind}{stage[chunk]}.{sum(a.startswith(f'{kind}{stage[chunk]}.') for a in actions)}")

    def back(chunk, waits=False):
        act("B", chunk)
        waiting.append("W" + actions[-1][1:])
        if not waits:
            weights()

    def weights():
        actions.append(waiting.pop(0))

    rest, own = ranks - rank - 1, rank + 1
    for _ in range(2 * rest):
        act("F", 0)
    for _ in range(own):
        act("F", 0), act("F", 1)
    for _ in range(rest):
        back(1, waits=True), weights(), act("F", 1)
    for _ in range(micros - 2 * ranks + own):
        act("F", 0), back(1), act("F", 1), back(0)
    for _ in range(rest):
        back(1), act("F", 1), back(0)
    for i in range(own):
        back(1, waits=2 * i + 1 > own), back(0, waits=2 * i + 1 >= own)
    for _ in range(rest):
        weights(), back(0, waits=True)
    for _ in range(own):
        weights()
    return ",".join(actions)


@pytest.mark.parametrize("link", [None, "1e8", "3e7"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_dualpipev(pipeline, tmp_path, ranks, link):
    """As a table: with one micro-batch more in flight than ZB-V its ranks idle for longer, by ranks - 1 forward actions
    where messages take no time."""
    micros, sizes = 2 * ranks, dict(layers=8 * ranks, embed=64, ff=256, vocab=2, batch=4 * ranks)
    (tmp_path / "own.csv").write_text("".join(dualpipev(ranks, rank, micros) + "\n" for rank in range(ranks)))
    options = ["--chunks=2", "--gpu-flops=1e9", *([f"--link={link}"] if link else [])]
    own = pipeline(ranks, f"--schedule={tmp_path}/own.csv", *options, **sizes)
    vee = pipeline(ranks, "--schedule=zb", *options, **sizes)
    assert [rank["in_flight"] for rank in own["ranks"]] == [2 * ranks + 1] * ranks
    assert [rank["in_flight"] for rank in vee["ranks"]] == [2 * ranks] * ranks
    assert own["bubble"] > vee["bubble"] + 0.01
    if not link:
        assert own["bubble"] == pytest.approx((ranks - 1) / (6 * micros + ranks - 1), rel=0.03)
        assert vee["bubble"] < 2e-3


def test_balance_of_chunks(pipeline):
    """A head of about five layers: ranks do as much as each other, and so do stages as far as that allows."""
    sizes = dict(embed=64, ff=64, vocab=640)
    for schedule, order in (("interleaved", [0, 1, 0, 1]), ("zb", [0, 1, 1, 0])):
        shares = [stage["share"] for stage in pipeline(2, f"--schedule={schedule}", "--chunks=2", layers=13, **sizes)["stages"]]
        of_ranks = [sum(share for share, rank in zip(shares, order) if rank == number) for number in (0, 1)]
        assert max(of_ranks) < 0.52
        assert max(shares) < 0.36


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_times(pipeline, schedule, pp):
    """Each action once, as long as its FLOPs take, after what it waits for; idle is the rest."""
    figures = pipeline(pp, f"--schedule={schedule}", "--gpu-flops=1e9", "--link=1e8", "--actions")
    stages, begin, end = figures["stages"], {}, {}
    assert figures["time_unit"] == "s"
    assert figures["message_bytes"] == 2 * 4 * 6 * 4  # [batch, seq, embed] in f32
    message = figures["message_time"]
    assert message == pytest.approx(192 / 1e8)
    for rank, row in enumerate(figures["ranks"]):
        busy = 0
        for before, action in zip([None, *row["actions"]], row["actions"]):
            name = (action["kind"], action["stage"], action["micro_batch"])
            assert name not in end and action["stage"] == rank
            begin[name], end[name] = action["start"], action["end"]
            half = "forward" if action["kind"] == "F" else "backward"
            assert action["end"] - action["start"] == pytest.approx(stages[rank][f"{half}_flops"] / 1e9)
            assert stages[rank][f"{half}_time"] == pytest.approx(stages[rank][f"{half}_flops"] / 1e9)
            assert not before or before["end"] <= action["start"] + 1e-12
            busy += action["end"] - action["start"]
        assert row["idle"] == pytest.approx(1 - busy / figures["makespan"])
    assert len(end) == 2 * pp * MICROS
    for kind, stage, micro in end:
        waits_for = [("F", stage - 1, micro)] if kind == "F" else [("B", stage + 1, micro), ("F", stage, micro)]
        for other in waits_for:
            if other in end:
                assert begin[kind, stage, micro] >= end[other] + message * (other[1] != stage) - 1e-12
    assert figures["bubble"] == pytest.approx(min(row["idle"] for row in figures["ranks"]))


def test_speed(pipeline):
    slow, fast = (pipeline(2, f"--gpu-flops={speed}") for speed in ("1e9", "4e9"))
    assert slow["makespan"] == pytest.approx(4 * fast["makespan"])
    relative = pipeline(2)
    assert relative["time_unit"] == "F of stage 0" and relative["stages"][0]["forward_time"] == 1
    assert relative["bubble"] == pytest.approx(slow["bubble"])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_work_is_that_of_the_program(report, schedule):
    """A stage runs its slices of the repeat, and its end of the model; all stages together do what one rank did."""
    whole = report(file=PIPE)["work"]["rank_parts"]["products"]
    for pp in (2, 4):
        figures = report(f"--mesh=pp={pp}", f"--schedule={schedule}", file=PIPE)
        assert figures["work"]["rank_parts"]["products"] * pp == pytest.approx(whole)
        assert figures["work"]["alike"] < 1e-3 * figures["work"]["rank"]
        stages = figures["pipeline"]["stages"]
        assert sum(stage["share"] for stage in stages) == pytest.approx(1)
        assert len({stage["forward_flops"] for stage in stages}) == 1  # a gather has none
        head = 3 * 2 * (2 * 4) * 6 * 12  # FLOPs of three products
        assert stages[-1]["backward_flops"] > stages[0]["backward_flops"] + 0.9 * head


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_memory(report, schedule, pp):
    """The rank with most micro-batches in flight fills the arena; another one holds fewer of the same size."""
    figures = report(f"--mesh=pp={pp}", f"--schedule={schedule}", file=PIPE)
    arena, ranks = figures["memory"]["arena"], figures["pipeline"]["ranks"]
    bytes_in_flight = figures["pipeline"]["stages"][0]["in_flight_bytes"]
    kept = 2 * 4 * (2 * 8 + 6) * 4 * (4 // pp)  # by each layer: operand and result of gelu, the layer's input
    assert bytes_in_flight >= kept
    assert max(row["peak_bytes"] for row in ranks) == arena
    assert [row["in_flight"] for row in ranks] == ([MICROS] * pp if schedule == "gpipe" else list(range(pp, 0, -1)))
    for row in ranks:
        assert row["peak_bytes"] == row["fixed_bytes"] + row["in_flight"] * bytes_in_flight
    more = report(f"--mesh=pp={pp}", f"--schedule={schedule}", file=PIPE, batch=16)["pipeline"]["ranks"]
    assert [row["in_flight"] for row in more] == ([2 * MICROS] * pp if schedule == "gpipe" else list(range(pp, 0, -1)))


@pytest.mark.parametrize("stages", [[1, 1, 1, 1], [2, 2], [3, 1]])
def test_memory_of_stages(report, stages):
    """The embedding is on the first stage, the head on the last; a micro-batch keeps as much as a stage has copies; with 1f1b
    stage s of p has p - s of them."""
    pp, layer, end = len(stages), 4 * (6 * 8 + 8 + 8 * 6), 4 * 12 * 6
    figures = report(f"--mesh=pp={pp}", f"--stages={','.join(map(str, stages))}", file=PIPE)
    kinds = figures["memory"]["kinds"]
    assert [kind["name"] for kind in kinds] == [f"pp={stage}" for stage in range(pp)]
    for stage, (kind, copies) in enumerate(zip(kinds, stages)):  # what is left out are whole cache lines, of each tensor
        own = copies * layer + (end if stage in (0, pp - 1) else 0)
        assert own <= kind["weights"] < own + 4 * 64 and 2 * own <= kind["optimizer"] < 2 * (own + 4 * 64)
    kept = [2 * 4 * (2 * 8 + 6) * 4 * copies for copies in stages]
    held = [stage["in_flight_bytes"] for stage in figures["pipeline"]["stages"]]
    assert all(0 <= bytes_held - bytes_kept <= 3 * 64 for bytes_held, bytes_kept in zip(held, kept))
    assert [rank["peak_bytes"] for rank in figures["pipeline"]["ranks"]] == [kind["arena"] for kind in kinds]
    if pp == 4:
        assert kinds[1]["slots"] - kinds[2]["slots"] == held[1]


def test_capacity(report):
    arena = report("--mesh=pp=2", file=PIPE)["memory"]["arena"]
    assert "too much" not in text_of("--mesh=pp=2", f"--memory={arena}")
    assert "96 B too much" in text_of("--mesh=pp=2", f"--memory={arena - 96}")
    assert report("--mesh=pp=2", f"--memory={arena}", file=PIPE)["pipeline"]["capacity_bytes"] == arena


def test_reductions(tmp_path):
    """The picture shows where a stage's gradients begin to be reduced, if the program does that before the pipeline ends."""
    for zero, early in ("zero 1 over dp (overlap_grads)", True), ("zero 1 over dp", False):
        (tmp_path / "early.mdl").write_text(PIPE.read_text().replace("pipeline h", f"{zero}\n    pipeline h"))
        shown = run(MPC, "report", tmp_path / "early.mdl", "--mesh=dp=2,pp=2", "--set", "train.microbatch=1").stdout
        assert bool(re.search(r"^  rank 0  F0.*R$", shown, re.M)) == ("R: from there on" in shown) == early


def test_reductions_of_many_chunks(tmp_path):
    """Once a step, also where more loops than a tensor may have dims are in the program: one for each chunk."""
    text = PIPE.read_text().replace("pipeline h", "zero 1 over dp (overlap_grads)\n    pipeline h")
    (tmp_path / "early.mdl").write_text(text.replace("layers = 4", "layers = 18"))

    def gradients(batch):
        said = run(MPC, "report", tmp_path / "early.mdl", "--mesh=dp=2,pp=2", "--schedule=interleaved", "--chunks=9", "--json",
                   "--set", f"train.batch={batch}", "--set", "train.microbatch=2").stdout
        return {row["collective"]: row["messages"] for row in json.loads(said)["communication"]["collectives"]
                if row["class"] == "gradients"}
    assert gradients(8) and gradients(8) == gradients(16)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_text(schedule):
    text = text_of("--mesh=pp=4", f"--schedule={schedule}")
    assert f"pipe.mdl, mesh pp=4: {schedule}, 4 ranks along pp, 4 micro-batches, 4 stages\n" in text
    assert re.search(r"^    0 .* h\.0, x$", text, re.M) and re.search(r"^    2 .* h\.2$", text, re.M)
    assert re.search(r"^    3 .* h\.3, logits, loss$", text, re.M)
    assert re.search(r"^  rank 0  F0", text, re.M) and " F of stage " in text
    two = text_of("--mesh=pp=2", f"--schedule={schedule}", "--gpu-flops=1e9")
    assert "stage 0: h.0 to h.1, x; " in two and re.search(r"makespan [0-9.]+ us", two)


def test_no_pipeline(report):
    assert "pipeline" not in report(file=PIPE)
    assert "pipeline" not in text_of()
    said = text_of("--mesh=pp=2", "--set", "train.batch=2")
    assert "pipeline: no picture: train.batch is train.microbatch" in said
    assert "pipeline" not in report("--mesh=pp=2", file=PIPE, batch=2)


@pytest.mark.parametrize("words, status, message", [
    (["--svg=a.svg"], 1, "--svg has no effect: the program has no pipeline"),
    (["--gpu-flops=1e12", "--link=1e9"], 1, "--gpu-flops has no effect"),
    (["--mesh=pp=2", "--set=train.batch=2", "--svg=a.svg"], 1, "--svg has no effect: train.batch is train.microbatch"),
    (["--json", "--actions"], 1, "--actions has no effect"),
    (["--mesh=pp=2", "--actions"], 2, "--actions has no effect without --json"),
    (["--mesh=pp=2", "--machine=h100", "--gpu-flops=1e9"], 2, "--machine and --gpu-flops: these exclude each other"),
    (["--machine=v100"], 1, "cannot read the machine v100"),
    (["--mesh=pp=2", "--link=1e9"], 2, "--link has no effect without --gpu-flops"),
    *[(["--mesh=pp=2", f"--memory={text}"], 2, f"--memory needs a number above 0, as 1e9, not '{text}'")
      for text in ("0", "-1", "80GB", "nan", "inf", "1e999", " 1", "0x10", "")],
    (["--mesh=pp=2", "--html="], 2, "--html needs a value: FILE.html"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_refused(tmp_path, words, status, message):
    done = run(MPC, "report", PIPE, *words, cwd=tmp_path, status=status)
    assert message in done.stderr and done.stdout == ""
    assert not list(tmp_path.iterdir())


# --- The page ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_page(tmp_path, schedule, pp):
    words = [f"--mesh=pp={pp}", f"--schedule={schedule}", "--memory=1e9"]
    said = run(MPC, "report", PIPE, *words, "--html=deep/page.html", "--svg=deep/page.svg", "--json",
               "--actions", cwd=tmp_path).stdout
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["page.html", "page.svg"]
    timeline = data_of((tmp_path / "deep/page.html").read_text())["timeline"]
    expected = json.loads(said)["pipeline"]
    end = max(action["end"] for row in expected["ranks"] for action in row["actions"])
    drawn = {name: (begin, finish) for _, begin, finish, name in actions(ET.parse(tmp_path / "deep/page.svg"))}
    assert len(drawn) == 2 * pp * MICROS
    for row, shown in zip(expected["ranks"], timeline["ranks"], strict=True):
        for action, own in zip(row["actions"], shown["actions"], strict=True):
            name = f"{action['kind']}{action['stage']}.{action['micro_batch']}"
            assert drawn[name] == pytest.approx((100 * action["start"] / end, 100 * action["end"] / end), abs=3e-3)
            assert f"{'FBW'[own[0]]}{own[1]}.{own[2]}" == name and own[3:] == pytest.approx([action["start"], action["end"]], rel=1e-6)
        assert shown["fixed_bytes"] == row["fixed_bytes"] and max(level[1] for level in shown["memory"]) == row["peak_bytes"]
    assert timeline["unit"].startswith("F of stage")
    assert timeline["ranks"][0]["holds"].startswith("stage 0: h.0") and "% of FLOPs" in timeline["ranks"][0]["holds"]


def test_page_replaces_no_input(tmp_path):
    source = tmp_path / "pipe.mdl"
    source.write_text(PIPE.read_text())
    (tmp_path / "link.html").symlink_to("pipe.mdl")
    (tmp_path / "hard.html").hardlink_to(source)
    for path in ("pipe.mdl", "link.html", "hard.html"):
        for option in ("html", "svg"):
            done = run(MPC, "report", "pipe.mdl", "--mesh=pp=2", f"--{option}={path}", cwd=tmp_path, status=1)
            assert "it is the input file" in done.stderr and done.stdout == ""
    assert source.read_text() == PIPE.read_text()
    (tmp_path / "old.html").write_text("<!doctype html><p>old")
    run(MPC, "report", "pipe.mdl", "--mesh=pp=2", "--html=old.html", cwd=tmp_path)
    assert (tmp_path / "old.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk(tmp_path):
    assert "cannot write /dev/full: No space left" in run(MPC, "report", PIPE, "--mesh=pp=2", "--html=/dev/full", status=1).stderr


@pytest.mark.parametrize("options", [(), ("--zero=3",), ("--recompute=full",), ("--target=cuda",)], ids=" ".join)
def test_examples(report, options):
    """gpt2 in 4 stages: its head is the last one's, and the sum of all stages is the program's."""
    figures = report("--mesh=dp=2,pp=4,tp=2", *options, file=HERE.parents[1] / "examples/gpt2.mdl", batch=128)
    stages = figures["pipeline"]["stages"]
    assert [stage["holds"].split(",")[0] for stage in stages] == ["h.0 to h.2", "h.3 to h.6", "h.7 to h.10", "h.11"]
    assert "logits" in stages[3]["holds"] and stages[3]["share"] > 1.5 * stages[0]["share"]
    of_loop = sum(stage["forward_flops"] + stage["backward_flops"] for stage in stages) * figures["micro_batches"] / 4
    assert of_loop == pytest.approx(figures["work"]["rank"], rel=0.01)  # and the optimizer's
    assert of_loop < figures["work"]["rank"]


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_balance(report, ranks):
    """No stage could hand a copy to another one, so that the slowest of the two were faster."""
    figures = report(f"--mesh=pp={ranks}", file=HERE.parents[1] / "examples/gpt2.mdl")
    stages = figures["pipeline"]["stages"]
    flops = [stage["forward_flops"] + stage["backward_flops"] for stage in stages]
    copies = [int(last or first) - int(first) + 1 for first, last in
              (re.match(r"h\.(\d+)(?: to h\.(\d+))?", stage["holds"]).groups() for stage in stages)]
    assert sum(copies) == 12
    one = min(flop / count for flop, count in zip(flops, copies))
    for giver, count in zip(flops, copies):
        assert count == 1 or all(taker + one >= giver * (1 - 1e-6) for taker in flops)


def cuts(count, stages):
    """All ways to give so many copies to the stages, at least one to each."""
    return [[first, *rest] for first in range(1, count - stages + 2) for rest in cuts(count - first, stages - 1)] if stages > 1 else [[count]]


@pytest.mark.parametrize("model, copies, pp", [("encoder_decoder", 7, 2), ("encoder_decoder", 7, 3), ("three_repeats", 7, 2),
                                               ("three_repeats", 7, 4)])
def test_balance_of_repeats(report, model, copies, pp):
    """No other cut of the one sequence of copies makes the slowest stage faster."""
    def slowest(*options):
        figures = report(f"--mesh=pp={pp}", "--set", "train.microbatch=2", *options, file=HERE.parent / "ranks" / f"{model}.mdl")
        stages = figures["pipeline"]["stages"]
        assert sum(stage["share"] for stage in stages) == pytest.approx(1)
        return max(stage["forward_flops"] + stage["backward_flops"] for stage in stages)
    best = min(slowest("--stages=" + ",".join(map(str, cut))) for cut in cuts(copies, pp))
    assert slowest() <= best * 1.02  # kernels share some work that is counted op by op before


def test_gathered_weights_stay_on_their_stage(report, tmp_path):
    """Those of zero 3 are under way from copy to copy, not from stage to stage."""
    path = tmp_path / "llama.mdl"
    text = (HERE.parents[1] / "examples/llama.mdl").read_text()
    path.write_text(text.replace("zero 1 over dp, cp", "zero 3 over dp (overlap_params)"))
    options = "--mesh=dp=2,pp=2", "--schedule=interleaved", "--chunks=2", "--set=train.batch=16", "--set=train.microbatch=1", "-Dlayers=8", "-Dseq=64", "-Dvocab=64"
    sent, whole = (report(*options, f"--zero={stage}", file=path)["pipeline"]["message_bytes"] for stage in (3, 0))
    assert sent == whole == 64 * 2048 * 2


def test_handed_on(report, pipeline):
    """What all decoders read of the encoder goes from stage to stage; a pipeline of one repeat hands nothing on."""
    two = report("--mesh=pp=4", "--set", "train.microbatch=1", file=HERE.parent / "ranks" / "encoder_decoder.mdl")["pipeline"]
    assert two["handed_on_bytes"] == 16 * 48 * 4 and two["message_bytes"] == 2 * two["handed_on_bytes"]
    assert pipeline(2)["handed_on_bytes"] == 0


def test_contents_of_repeats(report):
    figures = report("--mesh=pp=3", "--set", "train.microbatch=2", "--stages=2,3,2", file=HERE.parent / "ranks/encoder_decoder.mdl")
    holds = [stage["holds"] for stage in figures["pipeline"]["stages"]]
    assert [text.split(", ")[:2] for text in holds[:2]] == [["enc.0 to enc.1", "x"], ["enc.2", "dec.0 to dec.1"]]
    assert "between" in holds[1] and "logits" in holds[2] and holds[2].startswith("dec.2 to dec.3")
    sent = {row["cause"]: row["messages"] for row in figures["communication"]["collectives"]}
    assert sent["pipeline.enc.fwd"] == pytest.approx(4 / 3)  # of a rank: the mean of all
    assert sent["pipeline.dec.fwd"] == pytest.approx(8 / 3)  # with what the encoder gives


def test_contents_of_repeats_in_chunks(report):
    figures = report("--mesh=pp=2", "--set", "train.microbatch=1", "--schedule=interleaved", "--stages=2,2,1,2",
                     file=HERE.parent / "ranks/encoder_decoder.mdl")
    holds = [stage["holds"].split(", ")[:2] for stage in figures["pipeline"]["stages"]]
    assert holds[:2] == [["enc.0 to enc.1", "x"], ["enc.2", "dec.0"]]
    assert holds[2][0] == "dec.1" and holds[3][0] == "dec.2 to dec.3"


def test_stages_by_hand(report):
    figures = report("--mesh=pp=3", "--stages=1,9,2", file=HERE.parents[1] / "examples/gpt2.mdl")
    stages = figures["pipeline"]["stages"]
    assert [stage["holds"].split(",")[0] for stage in stages] == ["h.0", "h.1 to h.9", "h.10 to h.11"]
    assert stages[1]["forward_flops"] == pytest.approx(9 * stages[0]["forward_flops"], rel=1e-2)


@pytest.mark.parametrize("schedule", ["naive", "1f1b", "zb"])
def test_bytes_are_those_that_move(report, tmp_path, schedule):
    """Of two stages, each sends as much as the other: activations one, their gradients the other."""
    (tmp_path / "text").write_bytes(bytes(range(8)) * 4096)
    options = ("--mesh=pp=2", f"--schedule={schedule}")
    run(MPC, "compile", PIPE, "-o", tmp_path / "out", "--cflags=-O0", *options)
    run("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", 2, tmp_path / "out/trainer", "--data", "text",
        "--data-format", "bytes", "--steps", 2, "--log", "log", cwd=tmp_path)
    last = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    assert last["sent_bytes"] == report(*options, file=PIPE)["communication"]["sent"] > 0
