"""The timeline of a step on a machine: its bars against the items, run here turn by turn, and against the sums of the report."""
import collections
import json
import re
import xml.etree.ElementTree as ET

import pytest

from conftest import HERE, MPC, data_of, run, words_of
from test_timeline import SVG

MACHINE = HERE / "round.machine"
PIPE = HERE / "pipe.mdl"
FINE = 4000  # parts of a step at which a page has bars of their own
Bar = collections.namedtuple("Bar", "kind lane start end seconds count title")


def near(value, share=1e-3):
    return pytest.approx(value, rel=share, abs=1e-12)


@pytest.fixture
def page(model, tmp_path):
    """page("--mesh=dp=2", layers=2, ...): the report, the items, and the page of a step."""
    def make(*options, file=None, machine=MACHINE, **given):
        said = run(MPC, "report", file or model(), "--json", f"--costs={tmp_path}/costs.json", f"--html={tmp_path}/a.html",
                   "--machine", machine, *words_of(precision="fp32", **given), *options)
        return json.loads(said.stdout), json.loads((tmp_path / "costs.json").read_text()), (tmp_path / "a.html").read_text()
    return make


def staged(tmp_path, *replaced):
    """gpt.mdl with a pipeline."""
    text = (HERE / "gpt.mdl").read_text().replace("mesh dp = 1, tp = 1", "mesh dp = 1, pp = 1, tp = 1\n    pipeline h over pp")
    for old, new in zip(replaced[::2], replaced[1::2]):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "staged.mdl").write_text(text)
    return tmp_path / "staged.mdl"


# --- What a page shows ---------------------------------------------------------------------------------------

def lanes_of(text):
    """Names of the lanes below each rank."""
    return [name.split(", ") for name in data_of(text)["timeline"]["lanes"]]


def actions_of(text):
    """By rank: (start, end, kind, stage) of each action, in seconds from the start of the step on."""
    t = data_of(text)["timeline"]
    return [[(start - t["from"], end - t["from"], kind, stage) for kind, stage, _, start, end in rank["actions"]] for rank in t["ranks"]]


def bars_of(text, level=None):
    """By rank: the bars of the step, in seconds from its start on; `level`: "coarse" or "fine", where a page has both."""
    t, ranks = data_of(text)["timeline"], collections.defaultdict(list)
    bars = t["levels"][-1 if level == "fine" else 0]

    def add(rank, rows, begin):
        for kind, lane, start, end, seconds, number in rows:
            title = t["texts"][number]
            count = re.match(r"(\d+) ", title)
            ranks[rank].append(Bar("cuw"[kind], lane, begin + start, begin + end, seconds, int(count[1]) if count else 1, title))

    for rank, actions in enumerate(actions_of(text)):
        add(rank, bars["before"][rank], 0)
        add(rank, bars["after"][rank], -t["from"])
        for start, _, kind, stage in actions:
            add(rank, bars["action"][kind][stage], start)
    return ranks, t["to"] - t["from"]


def sums(bars, kind):
    """Seconds of each lane."""
    found = collections.Counter()
    for bar in bars:
        found[bar.lane] += bar.seconds if bar.kind == kind else 0
    return found


def check_sums(said, text, level=None):
    """The bars of the rank that ends last are what the report's sums are made of: those of each list of axes, and all."""
    ranks, _ = bars_of(text, level)
    time, lanes = said["time"], lanes_of(text)
    kind = time["rank_kind"]
    bars = ranks[0 if kind == "all" else int(kind.split("=")[1])]
    by_axes = {row["axes"]: row for row in time["axes"]}
    stages = said.get("pipeline", {}).get("axis")
    for lane, names in enumerate(lanes):
        rows = [by_axes[name] for name in names if name in by_axes]
        assert sums(bars, "w")[lane] == near(sum(row["exposed"] for row in rows), 1e-4), names
        if stages not in names:  # what stages send each other is no bar
            assert sums(bars, "u")[lane] == near(sum(row["seconds"] for row in rows), 2e-3), names
    assert {name for names in lanes for name in names} | {stages} >= {axes for axes in by_axes if by_axes[axes]["exposed"] > 0}
    assert sum(sums(bars, "w").values()) == near(time["parts"]["messages"], 1e-4)
    return bars


LAYOUTS = [["--mesh=dp=2"], ["--mesh=dp=4", "--zero=3"], ["--mesh=tp=2"], ["--mesh=dp=2,tp=2", "--zero=2"],
           ["--mesh=dp=2", "--recompute=full", "--set=train.microbatch=2"]]
PIPELINES = [["--mesh=pp=2"], ["--mesh=dp=2,pp=2", "--zero=1"], ["--mesh=pp=2,tp=2"], ["--mesh=dp=2,pp=2,tp=2", "--zero=2"],
             ["--mesh=pp=2,tp=2", "--schedule=zb"], ["--mesh=dp=2,pp=2", "--schedule=interleaved", "--chunks=2"],
             ["--mesh=pp=4,tp=2", "--schedule=naive"]]


@pytest.mark.parametrize("options", LAYOUTS, ids=" ".join)
def test_bars_of_one_rank(page, options):
    """They add up to the report's sums, and what a rank does and waits for fills the step, one after the other."""
    said, _, text = page(*options, layers=3, batch=8)
    check_sums(said, text)
    bars = check_sums(said, text, "fine")
    time, parts = said["time"], said["time"]["parts"]
    assert sum(bar.seconds for bar in bars if bar.kind != "u") == near(time["seconds"])
    assert sum(bar.seconds for bar in bars if bar.kind == "c" and bar.lane < 4) == near(parts["products"] + parts["attention"])
    own = sorted((bar for bar in bars if bar.kind != "u"), key=lambda bar: bar.start)
    single = [bar for bar in own if bar.count == 1]
    slack = time["seconds"] / FINE  # of coordinates, and of what is one bar
    assert len(single) > 10 and own[0].start < slack and max(bar.end for bar in own) > time["seconds"] - slack
    for one, next_one in zip(single, single[1:]):
        assert one.end <= next_one.start + slack


@pytest.mark.parametrize("options", PIPELINES, ids=" ".join)
def test_bars_of_stages(page, tmp_path, options):
    said, _, text = page(*options, file=staged(tmp_path), layers=4, batch=8, microbatch=2)
    for level in ("coarse", "fine"):
        bars = check_sums(said, text, level)
    assert max(bar.end for bar in bars if bar.kind != "u") == near(said["time"]["seconds"], 1e-5)


def test_around_the_pipeline(page, tmp_path):
    """Weights are gathered first, then actions begin, when all ranks are there, and end before the update begins."""
    said, _, text = page("--mesh=dp=2,pp=2", "--zero=1", file=staged(tmp_path), layers=4, batch=8, microbatch=2)
    step, actions = said["time"]["seconds"], actions_of(text)
    ranks, _ = bars_of(text, "fine")
    begin = min(start for row in actions for start, *_ in row)
    gathers = [bar for bars in ranks.values() for bar in bars if "all_gather over dp" in bar.title and bar.kind == "w"]
    assert begin == near(max(bar.end for bar in gathers), 1e-3) and min(bar.start for bar in gathers) < 0.01 * begin
    for rank, row in enumerate(actions):
        end = max(end for _, end, *_ in row)
        late = [bar for bar in ranks[rank] if "reduce_scatter over dp" in bar.title or bar.lane == 7 and bar.kind == "c"]
        assert late and min(bar.start for bar in late) > end - 2e-5 * step


def test_reductions_that_begin_early(page, tmp_path):
    """Those of a chunk start while others work: the bars begin before the last action of the rank ends."""
    file = staged(tmp_path, "zero 0 over dp", "zero 1 over dp (overlap_grads)")
    said, _, text = page("--mesh=dp=2,pp=2", "--schedule=interleaved", "--chunks=2", file=file, layers=4, batch=8, microbatch=2)
    bars = check_sums(said, text, "fine")
    after = [bar for bar in bars if bar.kind == "u" and "reduce_scatter over dp" in bar.title]
    last = max(end for row in actions_of(text) for _, end, *_ in row)
    assert after and min(bar.start for bar in after) < last


# --- Against a run of the items, here -------------------------------------------------------------------------

class Rank:
    """Runs all turns of all loops on the machine of round numbers, of two ranks: a stream that computes, and a link."""

    def __init__(self, link):
        self.rate = link
        self.now = self.link = 0
        self.done, self.waits, self.messages = {}, [], []

    def wait(self, end):
        if end > self.now:
            self.waits.append((self.now, end))
            self.now = end

    def message(self, item):
        rounds = 2 if item["collective"] == "all_reduce" else 1
        takes = 1e-9 * (1 + rounds) + item["volume"] / item["ranks"] / self.rate
        start = max(self.now, self.link)
        self.link = start + takes
        self.messages.append((start, self.link))
        if "started" in item:
            self.done[item["started"]] = self.link
        else:
            self.wait(self.link)

    def run(self, items, last=False):
        waited_first = {item["started"] for i, item in enumerate(items) if item["kind"] == "wait"
                        and not any(other.get("started") == item["started"] for other in items[:i])}
        for item in items:
            if item["kind"] == "repeat":
                for turn in range(int(item["turns"])):
                    self.run(item["items"], turn + 1 == item["turns"])
            elif item["kind"] == "wait":
                self.wait(self.done.get(item["started"], 0))
            elif item["kind"] != "message":
                self.now += max(item["flops"] / 1e9 if item["kind"] != "kernel" else 0, 1e-9 + item["bytes"] / 1e15)
            elif not (last and item.get("started") in waited_first):  # nothing is started for a turn that does not come
                self.message(item)
        return self


def until(spans, time):
    """Seconds of (start, end, seconds) before that time, which are spread evenly."""
    return sum(seconds * min(1, max(0, (time - start) / (end - start))) for start, end, seconds in spans if end > start)


@pytest.mark.parametrize("options, replaced", [(["--mesh=dp=2"], []), (["--mesh=tp=2"], []), (["--mesh=dp=2", "--zero=3"], []),
                                               (["--mesh=dp=2"], ["zero 0 over dp", "zero 3 over dp (overlap_params, overlap_grads)"])],
                         ids=["dp", "tp", "zero 3", "overlap"])
def test_bars_are_where_the_items_are(page, model, tmp_path, options, replaced):
    """At any time, the rank has waited as long, and messages have been under way as long, as in a run of all turns."""
    slow = MACHINE.read_text().replace("1GB:1GB/s", "1GB:20MB/s")
    (tmp_path / "slow.machine").write_text(slow)
    said, costs, text = page(*options, file=model(*replaced), machine=tmp_path / "slow.machine", layers=12, batch=16, microbatch=8)
    rank = Rank(20e6).run(costs["rank_kinds"][0]["step"])
    ranks, _ = bars_of(text, "fine")
    assert said["time"]["seconds"] == near(rank.now)
    for kind, spans in ("w", rank.waits), ("u", rank.messages):
        drawn = [(bar.start, bar.end, bar.seconds) for bar in ranks[0] if bar.kind == kind]
        expected = [(start, end, end - start) for start, end in spans]
        assert until(expected, rank.now) > 0.01 * rank.now
        for i in range(101):
            time = rank.now * i / 100
            assert until(drawn, time) == pytest.approx(until(expected, time), abs=2 * rank.now / FINE)


def test_messages_are_those_of_the_items(page):
    """As many in a lane as the items have, and what a bar says of one is what the item says."""
    said, costs, text = page("--mesh=dp=2,tp=2", layers=3, batch=8)
    ranks, _ = bars_of(text, "fine")

    def walk(items, times=1, last=0):
        for item in items:
            if item["kind"] == "repeat":
                yield from walk(item["items"], times * item["turns"], times)
            elif item["kind"] == "message":
                yield item, times - last * item.get("ahead", False)  # the last turn has no next one

    items = list(walk(costs["rank_kinds"][0]["step"]))
    for lane, names in enumerate(lanes_of(text)):
        drawn = sum(bar.count for bar in ranks[0] if bar.kind == "u" and bar.lane == lane)
        assert drawn == sum(times for item, times in items if item["axes"] in names)
    told = {f"{item['collective']} over {item['axes']}, {item['ranks']} ranks" for item, _ in items}
    for bar in ranks[0]:
        if bar.kind == "u" and bar.count == 1:
            assert re.match(r"(.*? ranks), [\d.]+ \w+, for ", bar.title)[1] in told
    sizes = {round(item["volume"] / 1e3, 2) for item, _ in items if 1e3 <= item["volume"] < 1e6}
    assert {float(size) for bar in ranks[0] if bar.kind == "u" for size in re.findall(r"ranks, ([\d.]+) kB", bar.title)} <= sizes


# --- The page, the picture, refusals --------------------------------------------------------------------------

def test_one_rank_without_messages(page):
    said, _, text = page(layers=2, batch=8)
    ranks, _ = bars_of(text)
    t = data_of(text)["timeline"]
    assert {bar.kind for bar in ranks[0]} == {"c"} and not t["lanes"] and t["subject"].startswith("a step of one rank on")
    assert len(t["ranks"]) == 1 and not t["ranks"][0]["actions"] and not t["ranks"][0]["memory"] and "micro_batches" not in t
    assert sum(bar.seconds for bar in ranks[0]) == near(said["time"]["seconds"])


def test_svg_of_a_step(model, tmp_path):
    run(MPC, "report", model(), "--mesh=dp=2", "--machine", MACHINE, f"--svg={tmp_path}/a.svg")
    text = (tmp_path / "a.svg").read_text()
    texts = [t.text for t in ET.fromstring(text).iter(f"{SVG}text")]
    assert {"each rank", "computes", "dp", "messages beside computation", "waits for messages", "forward", "backward"} <= set(texts)
    assert "fine" not in re.sub(r"<style>.*</style>", "", text, flags=re.S) and "<script" not in text


def test_one_micro_batch_in_stages(tmp_path):
    """Has no picture of its schedule, but one of the step."""
    words = ["report", PIPE, "--mesh=pp=2", "--set=train.batch=2"]
    refused = run(MPC, *words, f"--svg={tmp_path}/a.svg", status=1).stderr
    assert "train.batch is train.microbatch" in refused and "with --machine NAME|FILE" in refused
    run(MPC, *words, f"--html={tmp_path}/a.html")
    data = data_of((tmp_path / "a.html").read_text())
    assert "timeline" not in data and "train.batch is train.microbatch" in data["no_timeline"]
    run(MPC, *words, f"--html={tmp_path}/a.html", "--machine", MACHINE)
    text = (tmp_path / "a.html").read_text()
    assert len(actions_of(text)) == 2 and (1, 1) in {action[2:] for action in actions_of(text)[1]}


def test_refused_without_a_machine(tmp_path):
    said = run(MPC, "report", PIPE, f"--svg={tmp_path}/a.svg", status=1).stderr
    assert "--svg has no effect: the program has no pipeline" in said
    assert "with --machine NAME|FILE, it draws the timeline of the step" in said
    said = run(MPC, "report", PIPE, "--machine", MACHINE, f"--html={tmp_path}/a.html", "--actions", "--json", status=1).stderr
    assert "--actions has no effect: the program has no pipeline" in said
    assert not list(tmp_path.iterdir())
