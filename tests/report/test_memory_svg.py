"""The picture of memory over the step: every height in it is a number of the report's JSON, and its lines are those of the model."""
import json
import re
import xml.etree.ElementTree as ET

import pytest

from conftest import HERE, MPC, ROOT, run

SVG = "{http://www.w3.org/2000/svg}"
LEFT, WIDTH, TOP, HEIGHT = 80, 960, 100, 250
CASES = ["examples/chars.mdl", "examples/gpt2.mdl --mesh dp=2,tp=2 --zero 3", "examples/llama.mdl --mesh pp=2 --set train.batch=16 --schedule 1f1b",
         "examples/chars.mdl --memory 120e6"]


@pytest.fixture
def drawn(tmp_path):
    """drawn(words): the picture, its report, and its room: bytes, or none."""
    def make(words):
        words = words.split()
        done = run(MPC, "report", ROOT / words[0], *words[1:], "--json", "--no-remedies", f"--memory-svg={tmp_path}/a.svg")
        return ET.parse(tmp_path / "a.svg").getroot(), json.loads(done.stdout)
    return make


def tops_of(path):
    """The height of each op, of the first half of M x,y V.. H.. V.. H.. Z; then those of the floor, from right to left."""
    numbers = [float(y) for y in re.findall(r"V([-\d.]+)", path)]
    assert len(numbers) % 2 == 0
    return numbers[:len(numbers) // 2], numbers[len(numbers) // 2:][::-1]


@pytest.mark.parametrize("words", CASES)
def test_heights(drawn, words):
    svg, report = drawn(words)
    over = report["memory_over_step"]
    peak = max(sum(op["bytes"]) for op in over["ops"])
    scale = max(peak, 120e6) if "--memory" in words else peak
    floors = [0] * len(over["ops"])
    paths = [path for path in svg.iter(f"{SVG}path") if "--k" in path.attrib.get("style", "")]
    shown = {int(re.search(r"--k(\d)", path.attrib["style"])[1]): path.attrib["d"] for path in paths}
    assert sorted(shown) == [i for i in range(len(over["classes"])) if any(op["bytes"][i] for op in over["ops"])]
    for number, path in sorted(shown.items()):
        below, floors = floors, [floor + op["bytes"][number] for floor, op in zip(floors, over["ops"])]
        for found, wanted in zip(tops_of(path), (floors, below)):
            assert found == pytest.approx([TOP + HEIGHT * (1 - bytes / scale) for bytes in wanted], abs=0.051)
        assert re.findall(r"H([\d.]+)", path)[len(floors) - 1] == f"{LEFT + WIDTH:.1f}"
    assert floors == [sum(op["bytes"]) for op in over["ops"]]
    assert bool(svg.findall(f"{SVG}path[@class='capacity']")) == ("--memory" in words)


@pytest.mark.parametrize("words", CASES)
def test_words(drawn, words):
    """Where it peaks, the functions, the classes in the legend; numbers below the chart stand below an op of that line."""
    svg, report = drawn(words)
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    over, peak = report["memory_over_step"], report["memory"]["peak"]
    whose = "a rank" if over["rank_kind"] == "all" else over["rank_kind"]
    assert re.fullmatch(rf"memory of {whose} over the step; peak [\d.]+ [kMG]B while {re.escape(peak['op'])}, {re.escape(peak['where'])} runs", texts[1])
    assert "step" in texts and any("\u00d7" in text for text in texts)
    used = [name for i, name in enumerate(over["classes"]) if any(op["bytes"][i] for op in over["ops"])]
    assert [text for text in texts if text in over["classes"]] == used
    numbers = [text for text in svg.iter(f"{SVG}text") if float(text.attrib["y"]) == TOP + HEIGHT + 17 and text.text != "line"]
    assert len(numbers) > 3
    for text in numbers:
        op = over["ops"][int((float(text.attrib["x"]) - LEFT) / WIDTH * len(over["ops"]))]
        assert op["where"].split(":")[1] == text.text


def test_output(tmp_path):
    assert "--memory-svg -: this cannot be written to standard output" in run(MPC, "report", HERE / "gpt.mdl", "--memory-svg=-", status=2).stderr
