"""The page of `mpc plan --html`: all layouts that were compiled, where they belong; what it says is what --json says, and
its commands make what it shows."""
import html
import json
import math
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from texts import BUILD, ROOT, mpc, run

SVG = "{http://www.w3.org/2000/svg}"
BROWSER = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
MACHINE = ROOT / "machines/h100.machine"

# model, options: all layouts compiled, some too large; with a pipeline; with one that does not fit and would be faster
CASES = {"all": ("chars.mdl", "--ranks=4", "--set=train.batch=16", "--exhaustive", "--memory=60e6"),
         "pipeline": ("gpt2.mdl", "-Dlayers=4", "--ranks=4", "--set=train.batch=32", "--keep=pp=2", "--keep=recompute=none", "--keep=overlap=0",
                      "--keep=zero=1", "--memory=1.5e9", "--top=3")}


class Plan:
    """The page and the JSON of one plan."""

    def __init__(self, folder, model, *options):
        self.file = folder / "page.html"
        done = mpc("plan", ROOT / "examples" / model, "--machine=h100", "--json", f"--html={self.file}", *options)
        self.json = json.loads(done)
        self.text = self.file.read_text()
        self.root = ET.fromstring(self.text)
        self.chart = self.root.find(f".//{SVG}svg[@class='chart']")

    def points(self, *kinds):
        """(title, x, y) of each: listed, over; of those that fit and are not listed, neither."""
        for group in self.chart.iter(f"{SVG}g"):
            if group.get("class", "").split() == ["point", *kinds]:
                circle, cross = group.find(f"{SVG}circle"), group.find(f"{SVG}path")
                place = (float(circle.get("cx")), float(circle.get("cy"))) if circle is not None else cross_at(cross)
                yield group.find(f"{SVG}title").text, *place

    def scale(self, axis):
        """From numbers to pixels, by the first and the last tick."""
        anchor, at = ("middle", "x") if axis == "x" else ("end", "y")
        ticks = [(float(tick.text), float(tick.get(at)) - (4 if axis == "y" else 0)) for tick in
                 self.chart.iter(f"{SVG}text") if tick.get("class") == "tick" and tick.get("text-anchor") == anchor]
        (low, first), (high, last) = ticks[0], ticks[-1]
        unit, = (text.text for text in self.chart.iter(f"{SVG}text") if re.match(r"seconds of|GB of", text.text or "")
                 and (axis == "x") == text.text.startswith("seconds"))
        place = math.log if unit.endswith(", logarithmic") else float
        return lambda number: first + (place(number) - place(low)) * (last - first) / (place(high) - place(low))


def cross_at(path):
    x, y = map(float, re.match(r"M([\d.]+),([\d.]+)l8,8", path.get("d")).groups())
    return x + 4, y + 4


@pytest.fixture(scope="session", params=[pytest.param(case, marks=pytest.mark.xdist_group(case)) for case in CASES])
def plan(request, tmp_path_factory):
    return Plan(tmp_path_factory.mktemp("page"), *CASES[request.param])


def gigabytes(result):
    return (result["arena_bytes"] + result["beside_bytes"]) / 1e9


def name_of(result):
    return ",".join(f"{axis}={size}" for axis, size in result["mesh"].items() if size > 1)


def test_every_compiled_layout_is_a_point(plan):
    space = plan.json["space"]
    points = {kind: list(plan.points(*kind.split())) for kind in ("", "listed", "over")}
    assert space["refused"] == 0 and sum(map(len, points.values())) == space["compiled"]
    assert len(points["listed"]) == len(plan.json["best"]) > 1
    assert len(points["over"]) == space["do_not_fit"] - space["by_a_bound"] > 0
    assert len(points[""]) > 1
    for title, *_ in points["over"]:
        assert "\ndoes not fit\n" in title
    for title, *_ in points[""] + points["listed"]:
        assert "does not fit" not in title


def test_points_lie_where_the_axes_say(plan):
    """By the numbers of their titles, which are those of the JSON."""
    x_of, y_of = plan.scale("x"), plan.scale("y")
    limit = plan.json["memory"] / 1e9
    line = float(re.match(r"M\d+,([\d.]+)H", plan.chart.find(f"{SVG}path[@class='memory']").get("d"))[1])
    assert line == pytest.approx(y_of(limit), abs=0.5)
    for kind in ("", "listed", "over"):
        for title, x, y in plan.points(*kind.split()):
            seconds, memory = map(float, re.search(r"^s/step ([\d.]+), GB ([\d.]+)", title, re.M).groups())
            rounded = abs(y_of(memory + 0.005) - y_of(memory))  # GB have two digits
            assert x == pytest.approx(x_of(seconds), abs=2) and y == pytest.approx(y_of(memory), abs=rounded + 0.5)
            assert (y < line) == (kind == "over")


def test_listed_layouts_have_their_names_and_reasons(plan):
    names = {text.text for text in plan.chart.iter(f"{SVG}text") if text.get("class") == "name"}
    assert names == {f"{place}  {name_of(best)}" for place, best in enumerate(plan.json["best"], 1)}
    for best, (title, *_) in zip(plan.json["best"], sorted(plan.points("listed"), key=lambda point: point[1])):
        shown = dict(re.findall(r"^([a-z, ]+): ([\d.e-]+) s, ", title, re.M))
        names = {"products": "products", "attention": "attention", "kernels": "kernels",
                 "messages, not hidden": "messages", "waits for other stages": "idle"}
        for name, seconds in shown.items():
            assert float(seconds) == pytest.approx(best["parts"][names[name]], rel=1e-3)
        for name, part in names.items():
            assert name in shown or best["parts"][part] < best["seconds"] / 2000 + 1e-12


def test_table(plan):
    """A row for each listed layout, its block below; shares of the time fill the bar."""
    rows = plan.root.findall(".//table/tr")[1:]
    best = plan.json["best"]
    assert len(rows) == len(best) + (plan.json["too_large"]["seconds"] < best[0]["seconds"])
    for row, result in zip(rows, best):
        cells = ["".join(cell.itertext()) for cell in row]
        assert cells[1] == name_of(result) and cells[2] == str(result["microbatch"])
        assert float(cells[9]) == pytest.approx(result["seconds"], abs=6e-4)
        assert float(cells[10]) == pytest.approx(gigabytes(result), abs=6e-3)
        widths = [float(part.get("width")) for part in row.iter("rect")] or \
            [float(part.get("width")) for part in row.iter(f"{SVG}rect")]
        assert sum(widths) == pytest.approx(100, abs=0.2)
    for row in rows[len(best):]:
        assert "".join(row[-1].itertext()) == "does not fit"
    blocks = [details.find("pre").text for details in plan.root.iter("details")]
    assert blocks == [result["parallel"] for result in best]


def test_whole_and_by_itself(plan):
    """Nothing is fetched, every colour is one of its own."""
    assert not re.search(r"@import|url\((?!#)|https?://(?!www.w3.org/2000/svg\")", plan.text)
    assert not [key for element in plan.root.iter() for key in element.attrib if key in ("src", "href", "srcset")]
    assert set(re.findall(r"var\((--\w+)\)", plan.text)) <= set(re.findall(r"(--\w+):", plan.text))
    assert "prefers-color-scheme:dark" in plan.text
    ids = re.findall(r' id="(\w+)"', plan.text)
    assert len(ids) == len(set(ids))


def test_its_commands_make_what_it_shows(tmp_path, monkeypatch):
    """Of the second layout: written into the file it is the block, and its step takes what the page says."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples/gpt2.mdl", "it's.mdl")
    options = ["--ranks=8", "--machine=h100", "--set=train.batch=64", "--set=train.microbatch=1", "-D", "layers=4",
               "--keep=pp=2", "--keep=recompute=none", "--top=2"]
    found = json.loads(mpc("plan", "it's.mdl", "--json", "--html=page.html", *options))["best"][1]
    block, commands = ET.fromstring((tmp_path / "page.html").read_text()).findall(".//details[@id='layout2']/pre")
    write, report = re.findall(r"^mpc (?:plan|report)(?:.*\\\n)*.*$", commands.text, re.M)
    path = f"{BUILD}:{os.environ['PATH']}"
    subprocess.run(["sh", "-ec", write], check=True, env={**os.environ, "PATH": path}, capture_output=True, timeout=100)
    assert block.text in (tmp_path / "it's.mdl").read_text()
    done = subprocess.run(["sh", "-ec", report + " --json"], check=True, env={**os.environ, "PATH": path},
                          capture_output=True, text=True, timeout=100)
    time = json.loads(done.stdout)["time"]
    assert time["seconds"] == pytest.approx(found["seconds"], rel=1e-9)
    assert time["memory_bytes"] == found["arena_bytes"] + found["beside_bytes"]


def test_names_are_escaped(tmp_path):
    """Of the model, the machine and an axis of the command line."""
    model, machine = tmp_path / "a<b>&\"c\".mdl", tmp_path / "<i>.machine"
    shutil.copy(ROOT / "examples/chars.mdl", model)
    machine.write_text(MACHINE.read_text().replace("H100 SXM5 80 GB, 8 in a DGX H100", "<script>alert(1)</script> & co"))
    mpc("plan", model, "--ranks=2", "--machine", machine, "--keep=dp=2", f"--html={tmp_path}/page.html", "--top=1")
    text = (tmp_path / "page.html").read_text()
    root = ET.fromstring(text)
    assert f"{model}: layouts of 2 ranks of {machine}" == root.find(".//title").text == root.find(".//h1").text
    assert "(<script>alert(1)</script> & co)" in root.find(".//p").text and "<script>alert" not in text


def test_nothing_fits(tmp_path):
    """No layout was compiled, so there is no picture; the page says why."""
    page = tmp_path / "page.html"
    run(BUILD / "mpc", "plan", ROOT / "examples/chars.mdl", "--ranks=2", "--machine=h100", "--memory=1e6", f"--html={page}",
        status=1)
    root = ET.fromstring(page.read_text())
    assert "by their bounds, none fits" in "".join(root.itertext()) and root.find(f".//{SVG}svg") is None


# --- In a browser ------------------------------------------------------------------------------------------

PROBE = """
<script>
const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
const wrong = [], frame = document.querySelector('.chart').getBoundingClientRect();
const names = [...document.querySelectorAll('.name')], places = names.map(name => name.getBoundingClientRect());
for (let i = 0; i < names.length; i++) {
    if (places[i].left < frame.left || places[i].right > frame.right) wrong.push(names[i].textContent + ' is cut');
    for (let j = 0; j < i; j++)
        if (!apart(places[i], places[j])) wrong.push(names[i].textContent + ' overlaps ' + names[j].textContent);
}
let shown = 0;
for (const point of document.querySelectorAll('.point')) {
    point.dispatchEvent(new MouseEvent('mouseenter'));
    shown += document.querySelector('.about').textContent === point.querySelector('title').textContent;
}
document.querySelector('.listed[data-place="2"]').dispatchEvent(new MouseEvent('click'));
const found = document.body.appendChild(document.createElement('pre'));
found.id = 'found';
found.textContent = JSON.stringify({ wrong, shown, opened: document.querySelectorAll('details[open]').length,
    width: document.documentElement.scrollWidth });
</script>
"""


@pytest.mark.skipif(not BROWSER, reason="no chromium: what the page looks like is not checked")
def test_in_browser(plan, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(plan.text.replace("</body>", PROBE + "</body>"))
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900",
                           f"--user-data-dir={tmp_path}", "--dump-dom", path.as_uri()],
                          capture_output=True, text=True, timeout=300)
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)[1]))
    assert found == {"wrong": [], "shown": plan.json["space"]["compiled"], "opened": 2, "width": found["width"]}
    assert found["width"] <= 1300
