"""mpc plot: the curves are the numbers of the logs, read back from the page; and in a browser, if there is one."""
import html
import json
import math
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import numpy as np
import pytest

SVG = "{http://www.w3.org/2000/svg}"
BROWSER = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
TITLES = {"loss": "Loss", "grad_norm": "Gradient norm", "tokens_per_s": "Throughput", "lr": "Learning rate"}


def log_of(steps, seed=0, every=1, **more):
    """A log as a trainer writes it: a dictionary for each step."""
    random = np.random.default_rng(seed)
    return [dict(step=t, loss=2 + 9 / t + random.normal(0, 0.02), grad_norm=abs(random.normal(1, 0.2)), lr=1e-3 * t / steps,
                 tokens_per_s=1e5 + seed, step_ms=20.0, mfu=0.4, peak_bytes=100, **more) for t in range(1, steps + 1, every)]


@pytest.fixture
def plot(mpc):
    """plot({name: log}, option, ...): the page."""
    def make(logs, *options, **more):
        for name, log in logs.items():
            path = mpc.directory / f"{name}.jsonl"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(json.dumps(line) + "\n" for line in log))
        return mpc("plot", *(f"{name}.jsonl" for name in logs), *options, **more).stdout
    make.directory = mpc.directory
    return make


def charts(page):
    """{title: element}"""
    found = [ET.fromstring(text) for text in re.findall(r'<svg xmlns.*?</svg>', page, re.S)]
    return {chart.attrib["aria-label"]: chart for chart in found}


def inverse(axis, places):
    is_log, low, high, begin, end = map(float, axis.split())
    share = (places - begin) / (end - begin)
    return low * (high / low) ** share if is_log else low + (high - low) * share


def curves(chart, kind="smooth", log_x=0, log_y=0):
    """Of each run: the steps and numbers at the corners of its curve."""
    group = next(g for g in chart.iter(f"{SVG}g") if g.attrib.get("class") == f"x{log_x} y{log_y}")
    for path in group.iter(f"{SVG}path"):
        if path.attrib["class"].startswith(kind):
            points = np.array(re.findall(r"[ML]([-\d.]+),([-\d.]+)", path.attrib["d"]), float)
            yield inverse(group.attrib["data-x"], points[:, 0]), inverse(group.attrib["data-y"], points[:, 1])


def height(chart, log_y=0):
    """What a pixel is, as a number or as a ratio."""
    group = next(g for g in chart.iter(f"{SVG}g") if g.attrib.get("class") == f"x0 y{log_y}")
    _, low, high, begin, end = map(float, group.attrib["data-y"].split())
    return math.log(high / low) / (begin - end) if log_y else (high - low) / (begin - end)


@pytest.mark.parametrize("log_x", [0, 1])
@pytest.mark.parametrize("log_y", [0, 1])
def test_curves_are_the_numbers(plot, log_x, log_y):
    log = log_of(90)
    page = charts(plot({"a": log}, "--smooth=1"))
    assert set(page) == set(TITLES.values())
    for field, title in TITLES.items():
        (steps, numbers), = curves(page[title], "smooth", log_x, log_y)
        assert len(steps) == 90 and not list(curves(page[title], "raw"))
        np.testing.assert_allclose(steps, range(1, 91), rtol=0.01, atol=0.1)
        wanted = np.array([line[field] for line in log])
        error = np.log(numbers / wanted) if log_y else numbers - wanted
        assert abs(error).max() <= 0.11 * height(page[title], log_y)


def test_experts(plot):
    """Charts of their own, of the worst layer."""
    log = log_of(20)
    for t, line in enumerate(log):
        line.update(expert_load=[1.5, 2 + t / 10], dropped=[0.1, 0.02])
    page = charts(plot({"a": log}, "--smooth=1"))
    assert set(page) == {*TITLES.values(), "Load of experts", "Dropped choices"}
    for title, wanted in (("Load of experts", [2 + t / 10 for t in range(20)]), ("Dropped choices", [0.1] * 20)):
        (_, numbers), = curves(page[title])
        assert abs(numbers - wanted).max() <= 0.11 * height(page[title])


def test_strong_lines_are_means(plot):
    log = log_of(80, seed=3)
    page = charts(plot({"a": log}, "--smooth=9"))
    (_, numbers), = curves(page["Gradient norm"])
    norm = np.array([line["grad_norm"] for line in log])
    wanted = [norm[i - min(i, 4):i + min(i, 4) + 1].mean() for i in range(80)]
    assert abs(numbers - wanted).max() <= 0.11 * height(page["Gradient norm"])
    (_, raw), = curves(page["Gradient norm"], "raw")
    assert abs(raw - norm).max() <= 0.11 * height(page["Gradient norm"])
    (_, rates), = curves(page["Learning rate"])  # is not smoothed
    assert abs(rates - [line["lr"] for line in log]).max() <= 0.11 * height(page["Learning rate"])


def test_a_long_log_is_no_larger_than_the_picture(plot):
    page = plot({"a": log_of(30000)})
    assert len(page) < 700_000
    log = log_of(30000)
    log[20000]["grad_norm"] = 1.9  # of one step in fifty of a column of pixels
    (steps, _), = curves(charts(plot({"a": log}))["Gradient norm"])
    assert len(steps) < 1400
    path = next(p for p in charts(plot({"a": log}))["Gradient norm"].iter(f"{SVG}path") if p.attrib["class"].startswith("raw"))
    assert min(map(float, re.findall(r"V([-\d.]+)", path.attrib["d"]))) < 75  # above all others, at the edge or beyond


def test_what_lies_outside_is_counted(plot):
    log = log_of(1000)
    for step in (500, 700):
        log[step]["grad_norm"] = 1e6
    texts = [t.text for t in charts(plot({"a": log}))["Gradient norm"].iter(f"{SVG}text") if t.text and "outside" in t.text]
    assert len(texts) == 2 and all(re.fullmatch(r"\d+ steps? outside of the chart", t) for t in texts)  # not with logarithms
    assert 2 <= int(texts[0].split()[0]) < 40


def test_evaluations_skipped_steps_and_gaps(plot):
    log = log_of(60)
    assert "skipped step" not in plot({"a": [dict(line, skipped_steps=0) for line in log]})
    for line in log:
        line["skipped_steps"] = 7 + (line["step"] >= 30)  # seven before this run
        if line["step"] % 20 == 0:
            line["eval_loss"] = 2.5
    log[29]["grad_norm"] = 50.0
    log[9]["loss"] = None
    page = plot({"a": log}, "--smooth=5")
    marks = lambda title, kind: sum(kind in e.attrib.get("class", "") for e in charts(page)[title].iter()) // 4
    named = lambda title: {t.text for t in charts(page)[title].iter(f"{SVG}text") if t.attrib.get("class") == "name"}
    assert named("Loss") == {"training", "evaluation"} and named("Gradient norm") == {"training", "skipped step"}
    assert marks("Loss", "eval") == 3 and marks("Gradient norm", "skip") == 1
    (_, numbers), = curves(charts(page)["Gradient norm"])
    assert numbers.max() < 2  # the skipped step is none of the mean
    assert "2.5000 at 20" in page and re.search(r"<td>1</td></tr>", page)
    (steps, _), = curves(charts(plot({"a": log}, "--smooth=1"))["Loss"])
    assert 10 not in np.round(steps, 1)


def test_several_runs(plot):
    names = [f"run{i}" for i in range(10)]
    page = plot({name: log_of(60 + i, seed=i) for i, name in enumerate(names)}, "--title=Ten <runs>", "--smooth=3")
    assert "<h1>Ten &lt;runs&gt;</h1>" in page
    for chart in charts(page).values():
        assert len(list(curves(chart))) == 10
        assert [t.text for t in chart.iter(f"{SVG}text") if t.attrib.get("class") == "name"][:10] == names
    assert 'id="raw" checked' not in page and 'id="raw" checked' in plot({"one": log_of(60)}, "--smooth=3")
    assert len(set(re.findall(r'<tr><td><svg viewBox="0 0 24 10"><path class="(smooth c\d[^"]*)"', page))) == 10
    assert "Training of a/x.jsonl and b/x.jsonl" in plot({"a/x": log_of(5), "b/x": log_of(5)})
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # needs no other file


def test_records(plot):
    log = [{"records_per_s" if key == "tokens_per_s" else key: value for key, value in line.items()} for line in log_of(5)]
    assert "records per second" in plot({"a": log}) and "records/s" in plot({"a": log})


def test_one_step_and_constant_numbers(plot):
    page = charts(plot({"a": log_of(1)}))
    assert set(page) == set(TITLES.values())
    assert "nan" not in ET.tostring(page["Loss"]).decode().lower() and "inf" not in ET.tostring(page["Loss"]).decode()


@pytest.mark.parametrize("number", ["1.7e308", "1e999", "-1.7e308"])
def test_a_number_that_is_too_large(mpc, number):
    """Of no trainer, whose numbers are f32: a gap, like null, and no endless axis."""
    for name, loss in ("a", number), ("b", "null"):
        (mpc.directory / name).mkdir()
        (mpc.directory / name / "log").write_text(
            '{"step": 1, "loss": 3}\n{"step": 2, "loss": %s}\n{"step": 3, "loss": 2}\n' % loss)
    assert mpc("plot", "a/log", "--title=t").stdout.replace("a/log", "b/log") == mpc("plot", "b/log", "--title=t").stdout


def test_half_a_line_at_the_end(mpc):
    """A run that goes on, or was killed."""
    (mpc.directory / "a").write_text('{"step": 1, "loss": 3}\n{"step": 2, "lo')
    mpc("plot", "a", "-o", "a.html")
    assert "<td>1</td><td>3.0000</td>" in (mpc.directory / "a.html").read_text()


@pytest.mark.parametrize("text, said", [
    ("", "a: the log is empty: it has no step yet"), ("tokens\n", "a:1: this is not a step of a log: give the file that"),
    ('{"step": 1}\n{"loss": 1}\n', "a:2: this is not a step of a log"), (None, "cannot read a: No such file"),
    ('{"step": 2}\n{"step": 2}\n', "a:2: this step is not after the one of the line before"),
    *[('{"step": 1, "loss": 3}\n' + line + '\n{"step": 3, "loss": 3}\n', "a:2: this is not a step of a log") for line in (
        '{"step": 2, "loss": 3} x', '{"step": 2, "loss": 3\0}', '{"step": 2, "loss": "3"}', '{"step": 1.5, "loss": 3}',
        '{"step": 1e30, "loss": 3}', '{"step": 2, "expert_load": [[1]]}', '{"step": 2, "loss": 3}\0')]])
def test_not_a_log(refused, text, said):
    if text is not None:
        (refused.directory / "a").write_text(text)
    assert said in refused("plot", "a", "-o", "b", status=1)
    assert not (refused.directory / "b").exists()


def test_never_over_a_log(refused):
    for name in "ab":
        (refused.directory / name).write_text('{"step": 1}\n')
    for output in ("-o", "--svg"):
        assert "it is the input file" in refused("plot", "a", "b", output, "b", status=1)


def test_picture(plot):
    """One chart of the loss by itself, in light and dark colours."""
    log = log_of(90)
    assert plot({"a": log}, "--smooth=1", "--title=Five & <six>", "--svg=pictures/a.svg") == ""
    text = (plot.directory / "pictures/a.svg").read_text()
    chart = ET.fromstring(text)
    (_, numbers), = curves(chart)
    assert abs(numbers - [line["loss"] for line in log]).max() <= 0.11 * height(chart)
    assert len([g for g in chart.iter(f"{SVG}g") if "data-x" in g.attrib]) == 1
    assert "Five & <six>" in [t.text for t in chart.iter(f"{SVG}text")]
    assert set(re.findall(r"var\((--\w+)\)", text)) <= set(re.findall(r"(--\w+):", text)) and "prefers-color-scheme:dark" in text
    assert "<script" not in text and "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert f'viewBox="0 0 {chart.attrib["width"]} {chart.attrib["height"]}"' in text


def test_picture_beside_the_page(plot):
    page = plot({"a": log_of(9)})
    assert plot({"a": log_of(9)}, "--svg=a.svg", "-o", "a.html") == ""
    assert (plot.directory / "a.html").read_text() == page and (plot.directory / "a.svg").exists()
    assert plot({"a": log_of(9)}, "--svg=a.svg", "-o", "-") == page


def test_picture_without_loss(refused):
    (refused.directory / "a").write_text('{"step": 1, "lr": 2}\n')
    assert "--svg has no effect: no step of the logs has a loss" in refused("plot", "a", "--svg=b.svg", status=1)
    assert not (refused.directory / "b.svg").exists()


def test_a_trainers_log(trainer, train, mpc):
    """Of a real run."""
    log = train(trainer("tiny.mdl"), 12)
    mpc("plot", "log", "--smooth=1", "-o", "page.html")
    page = charts((mpc.directory / "page.html").read_text())
    (_, numbers), = curves(page["Loss"])
    assert abs(numbers - [line["loss"] for line in log]).max() <= 0.11 * height(page["Loss"])


PROBE = """<script>
const wrong = [];
const boxes = g => [...g.querySelectorAll('text')].filter(t => t.textContent && getComputedStyle(t).visibility !== 'hidden'
    && t.getClientRects().length).map(t => [t.textContent, t.getBoundingClientRect()]);
let labels = 0;
for (const choice of [[false, false], [true, false], [false, true], [true, true]]) {
    document.getElementById('logx').checked = choice[0];
    document.getElementById('logy').checked = choice[1];
    for (const svg of document.querySelectorAll('.charts svg')) {
        const area = svg.getBoundingClientRect(), found = boxes(svg);
        labels += found.length;
        found.forEach(([text, b], i) => {
            if (b.left < area.left || b.right > area.right || b.top < area.top || b.bottom > area.bottom)
                wrong.push(text + ' leaves the chart');
            for (const [other, o] of found.slice(0, i))
                if (b.left < o.right && o.left < b.right && b.top + 3 < o.bottom && o.top + 3 < b.bottom)
                    wrong.push(text + ' overlaps ' + other);
        });
    }
}
const found = document.body.appendChild(document.createElement('pre'));
found.id = 'found';
found.textContent = JSON.stringify({ labels, wrong, width: document.documentElement.scrollWidth });
</script>
"""


@pytest.mark.skipif(not BROWSER, reason="no chromium: what the page looks like is not checked")
@pytest.mark.parametrize("count, steps", [(1, 3), (3, 1000), (10, 20000)])
def test_in_browser(plot, tmp_path, count, steps):
    """Labels lie inside of their chart, and on no other, on all axes."""
    page = plot({f"a-run-{i}-of-{count}": log_of(steps, seed=i, every=max(1, steps // 500)) for i in range(count)})
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", PROBE + "</body>"))
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,900",
                           f"--user-data-dir={tmp_path}", "--dump-dom", path.as_uri()],
                          capture_output=True, text=True, timeout=300)
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)[1]))
    assert found["wrong"] == [] and found["width"] <= 1300 and found["labels"] > 150
