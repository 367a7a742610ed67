"""The report itself: its parts add up, name places in the file, and agree with what a trainer does."""
import json
import re

import pytest

from conftest import HERE, MPC, QUICK, ROOT, run, words_of

LAYOUTS = [(), ("--mesh=dp=2",), ("--mesh=dp=2,tp=2", "--zero=1"), ("--mesh=dp=4,tp=2", "--zero=3"), ("--mesh=tp=4", "--recompute=full")]


@pytest.mark.parametrize("layout", LAYOUTS, ids=" ".join)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_memory_adds_up(report, layout, precision):
    figures = report(*layout, precision=precision)
    memory = figures["memory"]
    assert sum(memory["classes"].values()) + memory["unused"] == memory["arena"]
    assert 0 <= memory["unused"] < memory["arena"] / 20  # in so small a program one tensor's gap is much
    assert memory["peak"]["step"] == sum(memory["classes"].values())
    assert re.fullmatch(r"gpt\.mdl:\d+:\d+", memory["peak"]["where"]) and memory["peak"]["op"]
    assert (memory["classes"]["master weights"] > 0) == (precision != "fp32")
    lying = sorted((tensor["offset"], tensor["bytes"]) for tensor in memory["tensors"])
    assert lying[0][0] == 0 and all(0 <= at <= at + size <= memory["arena"] for at, size in lying)


@pytest.mark.parametrize("layout", [(), ("--mesh=dp=2",), ("--mesh=dp=2", "--zero=3")], ids=" ".join)
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_no_memory_is_idle_at_the_peak(report, name, layout):
    """But for places rounded up to cache lines; a life that the report took to be shorter by one op would be."""
    memory = report(*layout, file=ROOT / f"examples/{name}.mdl")["memory"]
    assert 0 <= memory["unused"] < 1024


def test_trainer_allocates_the_arena(report, model, tmp_path):
    run(MPC, "compile", model(), "-o", tmp_path / "out", "--no-cc", "--mesh=dp=2,tp=2")
    text = (tmp_path / "out/trainer.c").read_text()
    arena = report("--mesh=dp=2,tp=2")["memory"]["arena"]
    assert re.search(r"\.arena_bytes = INT64_C\((\d+)\)|\.arena_bytes = (\d+)", text).group(0).count(str(arena)) == 1
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    assert plan["memory"]["arena"] == arena and plan["mesh"] == {"ranks": 4, "axes": {"dp": 2, "tp": 2}}


@pytest.mark.parametrize("layout, ranks", [(("--mesh=dp=2",), 2), (("--mesh=tp=2",), 2), (("--mesh=dp=2,tp=2", "--zero=3"), 4)],
                         ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value))
def test_bytes_are_those_that_move(report, model, tmp_path, layout, ranks):
    """The runtime counts what rank 0 sends; a sum of one number that is cut among ranks may be off by its four bytes."""
    sizes = words_of(layers=2, precision="fp32")
    (tmp_path / "text").write_bytes(b"".join(path.read_bytes() for path in sorted((ROOT / "ir").rglob("*.c"))))
    run(MPC, "compile", model(), "-o", tmp_path / "out", "--cflags=-O0", *sizes, *layout)
    run("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, tmp_path / "out/trainer", "--data", "text",
        "--data-format", "bytes", "--steps", 2, "--log", "log", cwd=tmp_path)
    last = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    figures = report(*layout, layers=2, precision="fp32")
    assert figures["communication"]["sent"] > 1e5
    assert last["sent_bytes"] == pytest.approx(figures["communication"]["sent"], abs=4 * ranks)
    beside = last["peak_bytes"] - figures["memory"]["arena"] - figures["memory"]["messages"]
    assert 0 <= beside < 2 ** 18  # what oneDNN asks for its products, which only it knows


def test_rows_of_experts(report, tmp_path):
    """Two layers, a sequence on each of two ranks: 8 tokens with 2 choices of 4 experts each, so 4 rows of each expert if
    balanced, and 5 slots with capacity 1.25.  A rank sends half of the rows: those of tokens and of their gates there
    and back, and again, but for what comes back, in the backward pass, with their gradients."""
    sizes = dict(layers=2, vocab=64, seq=8, embed=16, kv_heads=2, group=1, head=8, ff=12, experts=4, batch=2, precision="fp32")
    given = "capacity = capacity, within = batch"
    text = (ROOT / "examples/mixtral.mdl").read_text()
    rows = 4 * 5
    found, = report("--mesh=ep=2", file=ROOT / "examples/mixtral.mdl", **sizes)["experts"]
    assert found["choices"] == 16 and found["experts"] == 4 and found["where"].startswith("mixtral.mdl:")
    assert found["rows_balanced"] == 4 and found["rows_planned"] == 5 and found["rounds"] == 1
    assert found["sent_bytes"] == 2 * 4 * rows / 2 * (5 * 16 + 3)
    assert found["sent_bytes_balanced"] == pytest.approx(found["sent_bytes"] * 16 / 20)
    assert found["saved_bytes"] == 2 * 4 * rows * (16 + 1 + 2 * 12)
    (tmp_path / "rounds.mdl").write_text(text.replace(given, "capacity = none, rounds = true").replace(
        "    xe = dispatch", "    y = 0 * x\n    repeat 4 {\n    xe = dispatch").replace(
        "    return sum(combine(ye, chosen), choice)", "    y = y + sum(combine(ye, chosen), choice)\n    }\n    return y"))
    found, = report("--mesh=ep=2", "--recompute=full", file=tmp_path / "rounds.mdl", **sizes)["experts"]
    assert found["rows_planned"] == 16 and found["rounds"] == 4, "every token of both sequences, in one queue"
    assert found["saved_bytes"] == 0, "each round is computed again, one at a time"
    said = run(MPC, "report", tmp_path / "rounds.mdl", "--mesh=ep=2", *words_of(**sizes)).stdout
    assert "a queue has 32 choices of 4 experts: 8 rows of each if balanced, 16 planned, in 4 rounds" in said
    assert "experts" not in report()


def test_causes(report):
    for row in report("--mesh=dp=2,tp=2", "--zero=2")["communication"]["collectives"]:
        assert re.fullmatch(r"(shard|sequence|zero)\.[\w.]+", row["cause"]), row
        assert row["axes"] in ("dp", "tp", "dp+tp") and row["group"] == {"dp": 2, "tp": 2, "dp+tp": 4}[row["axes"]]
        assert row["first"]["from"] != row["first"]["to"]
        assert row["sent"] == pytest.approx(row["volume"] * (1 - 1 / row["group"]))
        assert 0 < row["messages"] <= row["tensors"]


def test_no_mesh_no_communication(report):
    figures = report()
    assert figures["communication"]["collectives"] == [] and figures["communication"]["sent"] == 0
    assert figures["mesh"] == {"ranks": 1, "axes": {}} and figures["memory"]["messages"] == 0


def test_buckets_are_messages(report, model):
    few, many = (report("--mesh=dp=2", "--zero=2", file=model("zero 0 over dp", f"zero 0 over dp (bucket = {size})"))
                 for size in (10 ** 9, 1))
    count = lambda figures: sum(row["messages"] for row in figures["communication"]["collectives"])
    assert count(few) < count(many)
    assert few["communication"]["sent"] == many["communication"]["sent"]


def test_precision_ledger_of_8_bits(report):
    ledger = report(precision="fp8")["precision"]
    assert "e4m3" in ledger["workspace"]["computed"] and "e4m3" not in ledger["workspace"]["stored"]
    assert not any("e4m3" in words for row in report()["precision"].values() for words in row.values())


def test_precision_ledger(report):
    ledger = report("--mesh=dp=2", "--zero=1")["precision"]
    assert ledger["master weights"] == {"stored": ["f32"], "computed": ["f32"], "added_up": [], "sent": []}
    assert ledger["optimizer state"]["stored"] == ["f32"] == ledger["gradients"]["stored"]
    assert ledger["weights"]["stored"] == ["bf16"] and ledger["weights"]["added_up"] == ["f32"]
    assert ledger["weights"]["sent"] == ["bf16"] and ledger["gradients"]["sent"] == ["f32"]
    assert report(precision="fp32")["precision"]["activations"]["stored"] == ["f32"]
    assert "master weights" not in report(precision="fp32")["precision"]


def with_unit(size):
    for prefix in ("", "k", "M", "G"):
        if size < 999.5:
            return f"{size:.2f} {prefix}B" if prefix else f"{size} B"
        size /= 1000


def test_text_says_the_same(model, report):
    text = run(MPC, "report", model(), "--mesh=dp=2,tp=2", "--zero=1").stdout
    figures = report("--mesh=dp=2,tp=2", "--zero=1")
    assert "on 4 ranks, all of one kind: dp=2, tp=2" in text
    assert f"memory of a rank: {with_unit(figures['memory']['arena'])}, planned" in text
    for name, size in figures["memory"]["classes"].items():
        assert size == 0 or re.search(rf"^    {name} +{with_unit(size)} ", text, re.M), name
    assert f"most is in use at {figures['memory']['peak']['op']} ({figures['memory']['peak']['where']})" in text
    for axes in ("dp", "tp"):
        sent = sum(row["sent"] for row in figures["communication"]["collectives"] if row["axes"] == axes)
        assert f"over {axes} (2 ranks): sends {with_unit(sent)}\n" in text


def test_target(report, model, tmp_path):
    """GPUs have other kernels, and NCCL takes whole messages where they lie, unless they are in pieces (tests/device compares
    with what is allocated)."""
    layout = ("--mesh=dp=2,tp=2", "--zero=3")
    c, cuda = report(*layout)["memory"], report(*layout, "--target=cuda")["memory"]
    assert c == report(*layout, "--target=c")["memory"] and c["messages"] > 0
    assert c["messages"] != cuda["messages"]
    run(MPC, "compile", model(), "-o", tmp_path / "out", "--no-cc", "--target=cuda", *layout)
    plan = json.loads((tmp_path / "out/plan.json").read_text())["memory"]
    assert (plan["arena"], plan["messages"]) == (cuda["arena"], cuda["messages"])
    plain = report("--mesh=dp=2", "--target=cuda")["memory"]
    assert plain["messages"] == 256 < report("--mesh=dp=2")["memory"]["messages"]  # how far each collective has come
    assert plain["products"] == 32 << 20 and "products" not in report("--mesh=dp=2")["memory"]


def test_options_count(report, model):
    """Each of the options that a layout has changes the report, or the report refuses it."""
    plain = report()
    for words in (["-D", "layers=2"], ["--set", "train.batch=16"], ["--mesh=dp=2"], ["--recompute=full"]):
        assert report(*words) != plain, words
    assert report("--mesh=dp=2", "--zero=1") != report("--mesh=dp=2", "--zero=2")
    assert "error: " in run(MPC, "report", model(), "--mesh=xx=2", status=1).stderr
    assert "error: " in run(MPC, "report", model(), "--schedule=1f1b", status=1).stderr
