"""The picture of a pipeline schedule as an SVG: whole, well formed, without overlaps."""
import collections
import os
import re
import shlex
import xml.etree.ElementTree as ET

import pytest
from conftest import BUILD, ROOT, run

SVG = "{http://www.w3.org/2000/svg}"
SOURCES = ["tests/report/timeline.c", "ir/amount.c", *map(str, (ROOT / "driver").glob("timeline*.c")),
           *(str(path) for path in (ROOT / "ir/schedule").glob("*.c") if path.name not in ("parts.c", "slots.c")),  # which need the IR
           "ir/arena.c", "ir/diag.c", "ir/visible.c", "ir/near.c"]

# schedule, ranks, chunks, micro-batches, options
CASES = [("1f1b", 4, 1, 8, "message=0.1"),
         ("1f1b", 1, 1, 1, ""),
         ("gpipe", 3, 2, 4, "forward=0.00002 backward=0.00003 weight=0.00001"),
         ("interleaved", 4, 2, 8, "message=0.12 slope=0.07 stages=1 capacity=4000 reduces=1"),
         ("zb-h1", 4, 1, 8, "capacity=90000"),
         ("zb-v", 4, 2, 8, "message=0.05 stages=1"),
         ("zb-v", 16, 2, 64, "message=0.11 stages=1 capacity=16000")]
NAMES = ["-".join(map(str, case[:4])) for case in CASES]


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """timeline.c, compiled."""
    path = tmp_path_factory.mktemp("timeline") / "timeline"
    run(*shlex.split(os.environ.get("CC", "cc")), "-std=gnu17", "-D_POSIX_C_SOURCE=200809L", "-O1", "-g", "-Iir", "-Idriver", f"-I{BUILD}/gen",
        *SOURCES, "-lm", "-o", path, cwd=ROOT)
    return path


@pytest.fixture
def picture(program):
    return lambda case, *more: run(program, *case[:4], "svg", *case[4].split(), *more).stdout


@pytest.fixture
def drawing(picture):
    return lambda case, *more: ET.fromstring(picture(case, *more))


def actions(svg):
    """(rank's y, begin, end, name) of each."""
    for group in svg.iter(f"{SVG}g"):
        if "data-a" in group.attrib:
            box = group.find(f"{SVG}rect").attrib
            begin = float(box["x"].rstrip("%"))
            yield float(box["y"]), begin, begin + float(box["width"].rstrip("%")), group.attrib["data-a"]


def expected_actions(schedule, ranks, chunks, micros):
    return [f"{kind}{stage}.{micro}" for kind in ("FBW" if schedule.startswith("zb") else "FB")
            for stage in range(ranks * chunks) for micro in range(micros)]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_picture(picture, case):
    """With names of ranks and a legend; every colour is one of its own style sheet."""
    text = picture(case, "title=a <b> & c")
    root = ET.fromstring(text)
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert texts.count("a <b> & c") == 1 and "idle" in texts and ("weight gradients" in texts) == case[0].startswith("zb")
    for rank in range(case[1]):
        assert texts.count(f"rank {rank}") == 2  # its actions, its memory
    assert len([t for t in texts if t and t.startswith("peak ")]) == case[1]
    assert all(t is None or len(t) <= 130 for t in texts)
    ids = re.findall(r' id="(\w+)"', text)
    assert len(ids) == len(set(ids)) and set(re.findall(r"url\(#(\w+)\)", text)) <= set(ids)
    assert set(re.findall(r"var\((--\w+)\)", text)) <= set(re.findall(r"(--\w+):", text)) and "prefers-color-scheme: dark" in text
    assert not re.search(r"<script|@import|url\((?!#)|https?://(?!www.w3.org/2000/svg\")", text)
    assert f'viewBox="0 0 {root.attrib["width"]} {root.attrib["height"]}"' in text


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_actions(drawing, case):
    schedule, ranks, chunks, micros, _ = case
    boxes = sorted(actions(drawing(case)))
    assert sorted(name for *_, name in boxes) == sorted(expected_actions(*case[:4]))
    rows = collections.defaultdict(list)
    tops = sorted({y for y, *_ in boxes})
    for y, begin, end, name in boxes:  # chunks are staggered by 6 pixels at most: less than rows are apart
        stage = int(re.match(r".(\d+)", name)[1])
        rank = stage % ranks if schedule != "zb-v" or stage < ranks else 2 * ranks - 1 - stage
        rows[rank].append((begin, end, y))
        assert 0 <= begin < end <= 100 + 1e-9
    assert len(rows) == ranks and len(tops) == ranks * chunks
    for rank, row in rows.items():
        row.sort()
        for (_, end, _), (begin, _, _) in zip(row, row[1:]):
            assert end <= begin + 1e-9, f"rank {rank} at {begin} %"
        assert max(y for *_, y in row) - min(y for *_, y in row) <= 6
    spans = [(min(y for *_, y in rows[rank]), max(y for *_, y in rows[rank])) for rank in range(ranks)]
    assert all(low < high for (_, low), (high, _) in zip(spans, spans[1:]))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_idle_and_messages(drawing, case):
    """Actions and idle time fill each row; each message that there is has a line, from row to row."""
    schedule, ranks, chunks, micros, _ = case
    svg = drawing(case)
    idle = sum(float(box.attrib["width"].rstrip("%")) for box in svg.iter(f"{SVG}rect")
               if box.attrib.get("class") == "idle")
    busy = sum(end - begin for _, begin, end, _ in actions(svg))
    assert idle + busy == pytest.approx(100 * ranks, abs=1e-6)
    lines = [line.attrib for line in svg.iter(f"{SVG}line") if line.attrib.get("class", "").startswith("s ")]
    between = ranks * chunks - 1 - (schedule == "zb-v") if ranks > 1 else 0
    assert len(lines) == 2 * between * micros
    assert all(line["y1"] != line["y2"] for line in lines)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_reductions(drawing, program, case):
    """Where the schedule reduces, a mark at the end of each stage's last action, and a letter for each in its rank's row."""
    schedule, ranks, chunks, micros, options = case
    svg, text = drawing(case), run(program, *case[:4], 200, *options.split()).stdout
    marks = [(mark.find(f"{SVG}title").text, float(mark.attrib["x"].rstrip("%"))) for mark in svg.iter(f"{SVG}svg")
             if mark.attrib.get("class") == "reduction"]
    rows = [line for line in text.splitlines() if line.startswith("  rank ") and "%" not in line]
    if "reduces" not in options:
        assert not marks and "R:" not in text and not re.search("R", "".join(rows))
        return
    ends = collections.defaultdict(float)
    for _, _, end, name in actions(svg):
        stage = int(re.match(r".(\d+)", name)[1])
        ends[stage] = max(ends[stage], end)
    assert len(marks) == ranks * chunks
    for title, x in marks:
        assert x == pytest.approx(ends[int(re.search(r"of stage (\d+) are reduced from", title)[1])], abs=2e-3)
    assert [(row.count("R"), row.count("r") - 1) for row in rows] == [(1, chunks - 1)] * ranks  # "rank" has one, too


def test_memory(drawing):
    """The curve of 1f1b's rank 0, in its own coordinates: a step of activations up, and down."""
    svg = drawing(("1f1b", 2, 1, 2, "fixed=1000 activation=500"))
    path = svg.find(f".//{SVG}g[@data-rank='0']/{SVG}svg/{SVG}path[@class='flight']").attrib["d"]
    scale = 1.08 * 2000  # MB at the top
    levels = [scale * (1 - float(y) / 44) for y in re.findall(r"V([0-9.]+)", path)]
    assert levels == pytest.approx([1000, 1500, 2000, 1500, 1000, 1000], abs=1)
    # F0 F1 and, after rank 1's F0 and B0, B0; then B1: 0, 1, 6, 9 of 9 ms
    times = [float(x) for x in re.findall(r"H([0-9.]+)", path)]
    assert times == pytest.approx([0, 0, 1000 / 9, 6000 / 9, 1000, 1000], abs=0.02)


def test_capacity(picture):
    case = ("1f1b", 4, 1, 8, "fixed=1000 activation=500")
    assert 'class="over"' not in picture(case, "capacity=3000") and 'class="capacity"' in picture(case, "capacity=3000")
    assert len(ET.fromstring(picture(case, "capacity=2700")).findall(f".//{SVG}path[@class='over']")) == 1  # only rank 0 holds 3 GB


def test_escapes(picture):
    title = """<script>alert("1")</script> & 'it' é \x01\xff"""
    text = picture(("1f1b", 2, 1, 2, "stages=1"), f"title={title}")
    shown = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;it&#39; é \ufffd"
    assert text.count(shown) == 1 and "<script>alert" not in text
    assert "&lt;logits&gt;" in text or "..." in text
