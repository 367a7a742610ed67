"""The items of a step, against what else counts them: the report's sums, and the products of the trainer.  And the time
of a step on a machine of round numbers, against formulas."""
import json
import re

import pytest

from conftest import HERE, MPC, ROOT, run, words_of
from test_products import products_of

MACHINE = HERE / "round.machine"
PIPE = HERE / "pipe.mdl"
RATE = 1e9  # of products and attention, FLOPs a second
LINK, NETWORK = 1e9, 1e8  # bytes a second, within a machine of two ranks and between machines


def items_of(items, times=1, last=0):
    """(item, how often it runs), without waits; the last turn of a loop starts nothing ahead."""
    for item in items:
        if item["kind"] == "repeat":
            yield from items_of(item["items"], times * item["turns"], times)
        elif item["kind"] != "wait":
            yield item, times - last if item.get("ahead") else times


def of_ranks(costs):
    """Of each kind of rank: its items in a step."""
    pipeline = costs.get("pipeline", {"actions": []})
    for number, kind in enumerate(costs["rank_kinds"]):
        found = [pair for part in ("step", "before", "after") for pair in items_of(kind.get(part, []))]
        for action in pipeline["actions"]:
            if action["rank"] == number:
                found += items_of(action["items"], pipeline["micro_batches"])
        yield found


def mean(costs, kind, key, **like):
    ranks = list(of_ranks(costs))
    return sum(item[key] * times for rank in ranks for item, times in rank
               if item["kind"] == kind and all(item[name] == value for name, value in like.items())) / len(ranks)


@pytest.fixture
def step(model, tmp_path):
    """step("--mesh=dp=2", layers=2, ...): the report and the items."""
    def make(*options, file=None, **given):
        said = run(MPC, "report", file or model(), "--json", f"--costs={tmp_path}/costs.json", *words_of(**given), *options)
        return json.loads(said.stdout), json.loads((tmp_path / "costs.json").read_text())
    return make


LAYOUTS = [[], ["--mesh=dp=2"], ["--mesh=dp=2", "--zero=1"], ["--mesh=dp=4", "--zero=3"], ["--mesh=tp=2"],
           ["--mesh=dp=2,tp=2", "--zero=2"], ["--mesh=dp=2", "--recompute=full"]]
PIPELINES = [["--mesh=pp=2"], ["--mesh=pp=4"], ["--mesh=dp=2,pp=2", "--zero=1"], ["--mesh=pp=2", "--schedule=zb"],
             ["--mesh=pp=2", "--schedule=interleaved", "--chunks=2"], ["--mesh=pp=2", "--schedule=naive"],
             ["--mesh=dp=2,pp=4", "--zero=0"]]


def check_sums(report, costs):
    """Work and messages are those of the report, which counts them op by op."""
    assert mean(costs, "product", "flops") == pytest.approx(report["work"]["rank_parts"]["products"])
    sent = {}
    for row in report["communication"]["collectives"]:
        if row["collective"] != "send":
            sent[row["axes"]] = sent.get(row["axes"], 0) + row["volume"]
    axes = {item["axes"] for rank in of_ranks(costs) for item, _ in rank if item["kind"] == "message"}
    assert axes == set(sent)
    for axis in axes:
        assert mean(costs, "message", "volume", axes=axis) == pytest.approx(sent[axis])


@pytest.mark.parametrize("options", LAYOUTS, ids=" ".join)
def test_items_are_what_the_report_adds_up(step, options):
    check_sums(*step(*options, layers=3, batch=8))


@pytest.mark.parametrize("options", PIPELINES, ids=" ".join)
def test_items_of_stages(step, options):
    check_sums(*step(*options, file=PIPE))


def test_attention_counts_what_is_seen(step):
    """Query i sees i + 1 keys; a product of scores and one with values, and five for the gradients."""
    _, costs = step(layers=3, batch=8, seq=32)
    pairs, features = 32 * 33 / 2, 64
    assert mean(costs, "attention", "flops", gradient=False) == pytest.approx(2 * 2 * pairs * features * 8 * 3)
    assert mean(costs, "attention", "flops", gradient=True) == pytest.approx(5 * 2 * pairs * features * 8 * 3)


def test_recomputed_work_is_apart(step):
    """All of the forward pass of the layers but what the backward does not read: each layer's last product."""
    def products(*options):
        return {phase: mean(step(*options, layers=3, batch=8)[1], "product", "flops", phase=phase)
                for phase in ("forward", "backward", "recomputed")}
    none, full = products("--recompute=none"), products("--recompute=full")
    tokens, embed = 8 * 64, 64
    assert none["recomputed"] == 0 and none["backward"] == 2 * none["forward"] == 2 * full["forward"]
    assert full["backward"] == none["backward"]
    assert full["recomputed"] == 3 * 2 * tokens * 8 * embed * embed  # q, k, v, attention's, up


@pytest.mark.parametrize("model_name", ["gpt2", "llama"])
def test_products_are_the_trainers(model_name, tmp_path):
    """Those of a layer: of GPT-2 forward one for one, else in all.  Where v lies elsewhere than q and k, the trainer has
    two products for one here."""
    model = ROOT / f"examples/{model_name}.mdl"
    words = ["-D", "layers=3", "--target=cuda"]
    run(MPC, "compile", model, "-o", tmp_path / "out", "--no-cc", *words)
    run(MPC, "report", model, f"--costs={tmp_path}/costs.json", *words)
    source = (tmp_path / "out/trainer.c").read_text()
    costs = json.loads((tmp_path / "costs.json").read_text())
    micro = next(item for item in costs["rank_kinds"][0]["step"] if item["kind"] == "repeat")
    forward, backward = [item["items"] for item in micro["items"] if item["kind"] == "repeat"]

    def of_trainer(function):
        return sorted(tuple(int(number) for number in re.search(r"\.m = (\d+), \.n = (\d+), \.k = (\d+), \.batch = (\d+)", shape).groups())
                      for shape in products_of(source, function))

    def of_items(items):
        return sorted((item["m"], item["n"], item["k"], item["count"]) for item in items if item["kind"] == "product")

    def work(shapes):
        return sum(m * n * k * count for m, n, k, count in shapes)

    assert model_name != "gpt2" or of_items(forward) == of_trainer("h_fwd")
    assert work(of_items(forward)) == work(of_trainer("h_fwd"))
    assert work(of_items(backward)) == work(of_trainer("h_bwd"))


# --- Time ----------------------------------------------------------------------------------------------------

@pytest.fixture
def time(report):
    def make(*options, **given):
        return report("--machine", MACHINE, *options, precision="fp32", **given)["time"]
    return make


def near(value, share=1e-3):
    return pytest.approx(value, rel=share)


def test_one_rank(time, step):
    _, costs = step(layers=3, batch=8, precision="fp32")
    said = time(layers=3, batch=8)
    work = mean(costs, "product", "flops") + mean(costs, "attention", "flops")
    assert said["seconds"] == near(work / RATE)
    assert said["parts"]["products"] == near(mean(costs, "product", "flops") / RATE)
    assert said["parts"]["attention"] == near(mean(costs, "attention", "flops") / RATE)
    assert sum(said["phases"].values()) == near(said["seconds"], 1e-9)
    assert sum(line["products"] for line in said["lines"] if "products" in line) == near(said["parts"]["products"], 1e-9)


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 5, 40])
def test_turns_of_a_loop(time, turns):
    """A layer more takes as long as any other."""
    once, twice = time(layers=turns, batch=8)["seconds"], time(layers=2 * turns, batch=8)["seconds"]
    assert twice - once == near(time(layers=21, batch=8)["seconds"] * turns - time(layers=20, batch=8)["seconds"] * turns, 1e-2)


@pytest.mark.parametrize("ranks, link", [(2, LINK), (4, NETWORK)])
def test_gradients_of_data_parallelism(time, report, ranks, link):
    """An all-reduce sends each gradient twice, but for a rank's own part; nothing runs beside those of the whole step.
    Between machines each of a machine's ranks has a network card, which sends its share."""
    said = time(f"--mesh=dp={ranks}", layers=3, batch=8 * ranks)
    parameters = report(layers=3)["parameters"]
    bytes_sent = 2 * 4 * parameters * (ranks - 1) / ranks
    axes = {row["axes"]: row for row in said["axes"]}
    assert axes["dp"]["seconds"] == near(bytes_sent / link / (1 if ranks == 2 else 2), 0.02)
    assert said["parts"]["messages"] == near(axes["dp"]["exposed"]) and axes["dp"]["exposed"] < 1.001 * axes["dp"]["seconds"]
    alone = time(layers=3, batch=8)
    assert said["seconds"] - said["parts"]["messages"] == near(alone["seconds"], 0.01)


def test_tp_is_exposed(time, report):
    """What sequence parallelism gathers and scatters, no op runs beside: but for what weights' gradients hide."""
    said = time("--mesh=tp=2", layers=3, batch=8)
    volume = sum(row["sent"] for row in report("--mesh=tp=2", layers=3, batch=8, precision="fp32")["communication"]["collectives"])
    tp = said["axes"][0]
    assert tp["axes"] == "tp" and tp["seconds"] == near(volume / LINK, 0.02)
    assert 0.3 * tp["seconds"] < tp["exposed"] < 1.001 * tp["seconds"]


def test_messages_of_the_next_turn_hide(report, model):
    """Weights that are gathered a layer ahead take as long, and are waited for less: where a layer computes longer than
    the gathering of one takes, in the first turn alone."""
    def dp(*replaced, **given):
        said = report("--machine", MACHINE, "--mesh=dp=2", file=model("zero 0 over dp", *replaced), precision="fp32", **given)
        return next(row for row in said["time"]["axes"] if row["axes"] == "dp")
    sizes = dict(layers=20, batch=64, microbatch=32, vocab=8)
    off = "zero 3 over dp (overlap_params = false, overlap_grads = false)"
    plain, ahead, both = dp(off, **sizes), dp("zero 3 over dp (overlap_grads = false)", **sizes), dp("zero 3 over dp", **sizes)
    assert plain["seconds"] == near(ahead["seconds"]) == near(both["seconds"])
    assert plain["exposed"] == near(plain["seconds"], 0.02)
    assert plain["exposed"] > ahead["exposed"] >= both["exposed"] and both["exposed"] < plain["exposed"] / 2


@pytest.mark.parametrize("options", [["--mesh=dp=2", "--zero=2"], ["--mesh=dp=2,tp=2", "--zero=3"]], ids=" ".join)
def test_waits_by_line(report, options):
    """What is not hidden is a number for each axis and each line of the model; messages that a function ends with belong to
    the line that computes what they send.  The longest are listed."""
    said = report("--machine", MACHINE, *options, layers=3)["time"]
    waits = {(row["op"], row["where"]): row["messages"] for row in said["lines"] if row.get("messages")}
    assert waits and sum(waits.values()) == near(said["parts"]["messages"])
    assert sum(waits.values()) == near(sum(row["exposed"] for row in said["axes"]))
    assert all(where for op, where in waits if op in ("reduce_scatter", "all_reduce", "all_gather")), waits
    text = run(MPC, "report", HERE / "gpt.mdl", "--machine", MACHINE, "-Dlayers=3", *options).stdout
    text = text.split("longest waits for messages\n")[1].split("memory of")[0]
    listed = [(" ".join(words[4:]), float(words[2])) for words in (line.split() for line in re.findall("^ {6} .*$", text, re.M))]
    most = sorted(waits, key=waits.get, reverse=True)[:len(listed)]
    assert 1 <= len(listed) <= 6 and [share for _, share in listed] == sorted((share for _, share in listed), reverse=True)
    for (place, share), wanted in zip(listed, most):
        assert share == pytest.approx(100 * waits[wanted] / said["seconds"], abs=0.06), (place, wanted)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("pp", [2, 4])
def test_pipeline_fills_and_drains(time, pp, schedule):
    """(m + p - 1) / m of the work of a stage, where stages are alike: layers are all there is."""
    micros, given = 8, dict(layers=16, ff=2048, vocab=2, batch=8, microbatch=1)
    said = time(f"--mesh=pp={pp}", f"--schedule={schedule}", file=PIPE, **given)
    whole = time(file=PIPE, **given)["seconds"]
    assert said["seconds"] == near(whole / pp * (micros + pp - 1) / micros, 0.01)
    assert said["bubble"] == near((pp - 1) / (micros + pp - 1), 0.01)
    between = next(row for row in said["axes"] if row["axes"] == "pp")
    assert said["rank_kind"] == "pp=0" and between["messages"] >= micros  # the first rank sends activations alone


def test_one_micro_batch_in_stages(time):
    """One stage after the other: as long as on one rank."""
    given = dict(layers=16, ff=2048, vocab=2, batch=2, microbatch=2)
    assert time("--mesh=pp=4", file=PIPE, **given)["seconds"] == near(time(file=PIPE, **given)["seconds"], 0.01)


def test_a_step_that_does_not_fit(model):
    text = run(MPC, "report", model(), "--machine", MACHINE, "-D", "layers=40", "-D", "embed=512").stdout
    assert "does not fit" in text


def test_links_that_are_not_given(model, tmp_path):
    alone = "".join(line for line in MACHINE.read_text().splitlines(True)
                    if not re.match("within|between|latency|message", line))
    (tmp_path / "alone.machine").write_text(alone)
    done = run(MPC, "report", model(), "--machine", tmp_path / "alone.machine", "--mesh=dp=2", status=1)
    assert "does not say how 2 ranks are connected" in done.stderr
