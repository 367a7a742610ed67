"""The page of a report: what is in it is the report, its lines are those of the model, it needs no other file; and in a browser, if
there is one, nothing is cut, nothing overlaps, and every bar leads to its line."""
import html
import html.parser
import json
import re
import shutil
import subprocess

import pytest

from conftest import HERE, MPC, ROOT, data_of, run

BROWSER = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
NODE = shutil.which("node")
LARGE = "-D layers=126 -D embed=16384 -D kv_heads=8 -D group=16 -D head=128 -D ff=53248 --set train.batch=2048"

CASES = [[word.replace("~", " ") for word in f"examples/{case}".split()] for case in [
    "chars.mdl",
    "chars.mdl --mesh dp=2,tp=2 --zero 3",
    "gpt2.mdl --mesh dp=2 --machine h100 --target cuda --offload optimizer,~activations~to~host",
    "llama.mdl --mesh cp=4,tp=2 --machine h100 --target cuda",
    "llama.mdl --mesh dp=2,pp=4 --schedule zb --chunks 2 --set train.batch=64 --gpu-flops 4e14 --memory 2e9",
    "llama.mdl --mesh dp=2,pp=2,tp=2 --set train.batch=32 --machine h100 --target cuda",
    "deepseek.mdl --mesh dp=2,ep=4 --machine h100 --target cuda",
    f"llama3.1.mdl {LARGE} --mesh dp=8,pp=16,tp=8 --machine h100 --target cuda"]]
OF_PAGE = {"title", "text", "timeline", "no_timeline"}


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """made(words): a page, and the report beside it; each once."""
    folder, known = tmp_path_factory.mktemp("pages"), {}

    def make(words):
        if str(words) not in known:
            path = folder / f"{len(known)}.html"
            said = run(MPC, "report", ROOT / words[0], *words[1:], "--json", f"--html={path}").stdout
            known[str(words)] = path.read_text(), json.loads(said)
        return known[str(words)]
    return make


def long_model(tmp_path, lines=1000):
    """A model that is written out, layer by layer."""
    layers = "".join(f"    param w{i} : [embed, twin] = normal(0.02)\n    x = x + dot(x, w{i}, embed)[twin = iota(embed)]\n" for i in range(lines // 2))
    text = f"dim batch\ndim embed = 8\ndim twin = 8\nmodel long {{\n    input z : f32[batch, embed]\n    x = z\n{layers}    loss mean(x * x)\n}}\n"
    (tmp_path / "long.mdl").write_text(text)
    return tmp_path / "long.mdl"


class Tags(html.parser.HTMLParser):
    """Fails unless every tag is closed where it should be; collects attributes."""
    VOID = {"meta"}

    def __init__(self):
        super().__init__()
        self.open, self.attributes = [], []

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"


def check_whole(page):
    """Well formed, and nothing is fetched."""
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    ids = [value for _, name, value in tags.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert not [entry for entry in tags.attributes if entry[1] in ("src", "href", "srcset", "data")]
    without_data = re.sub(r'(id="report">).*?(</script>)', r"\1\2", page, flags=re.S)
    assert not re.search(r"@import|url\((?!#)|//(?!www.w3.org/2000/svg')\w+\.\w|fetch\(|XMLHttp|\bimport\b", without_data)
    assert len(page) < 2_000_000


# --- What is in it ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("words", CASES, ids=lambda words: " ".join(words)[9:60])
def test_data(made, words):
    """It is the report; each place in it is a line of the text, which names what is said to be there."""
    page, report = made(words)
    check_whole(page)
    data = data_of(page)
    assert {key: value for key, value in data.items() if key not in OF_PAGE} == report
    assert data["text"] == (ROOT / words[0]).read_text()
    lines, file = data["text"].split("\n"), words[0].split("/")[-1]
    places = re.findall(re.escape(file) + r":(\d+):(\d+)", json.dumps({key: value for key, value in data.items() if key != "text"}))
    assert len(places) > 40 and all(1 <= int(line) <= len(lines) and int(column) <= len(lines[int(line) - 1]) for line, column in places)
    for weight in report["weights"]:
        line = int(weight["where"].split(":")[1])
        assert re.search(rf"\b{weight['name'].split('.')[-1]}\b", lines[line - 1]), weight


@pytest.mark.parametrize("words", [*CASES, [*CASES[1], "--recompute", "full"]], ids=lambda words: " ".join(words)[9:60])
def test_memory_over_step(made, words):
    """Its highest row is the peak, which another search found, with the same parts; what outlives the step is in every row."""
    _, report = made(words)
    memory, over = report["memory"], report["memory_over_step"]
    highest = max(over["ops"], key=lambda op: sum(op["bytes"]))
    assert sum(highest["bytes"]) == memory["peak"]["step"] == sum(memory["classes"].values())
    assert dict(zip(over["classes"], highest["bytes"], strict=True)) == memory["classes"]
    assert (highest["op"], highest["where"], highest["function"]) == tuple(memory["peak"][key] for key in ("op", "where", "function"))
    if "offloaded" not in memory:
        lasting = [i for i, name in enumerate(over["classes"]) if name == "optimizer state"]
        assert len({op["bytes"][i] for op in over["ops"] for i in lasting if op["function"] != "step"}) <= 1
    assert len({sum(op["bytes"]) for op in over["ops"]}) > 5


@pytest.mark.parametrize("words", CASES, ids=lambda words: " ".join(words)[9:60])
def test_lines(made, words):
    """All lines together have all work and all messages, but for what stages hand on, and what has no line."""
    _, report = made(words)
    lines, rows = report["lines"], report["communication"]["collectives"]
    sent = sum(row["sent"] for row in rows if row["collective"] != "send")
    without = sum(row["sent"] for row in rows if row["collective"] != "send" and not row["first"]["where"])
    assert sum(line["flops"] for line in lines) == pytest.approx(report["work"]["rank"], rel=2e-3)
    assert sent - without <= sum(line["sent"] for line in lines) * (1 + 1e-9) and sum(line["sent"] for line in lines) <= sent * (1 + 1e-9)
    assert any(line["flops"] for line in lines) and {line["forward"] for line in lines} == {True, False}
    for row in rows:
        if row["first"]["where"] and row["collective"] != "send":
            told = [line["messages"] for line in lines if (line["op"], line["where"]) == (row["first"]["op"], row["first"]["where"])]
            assert any(f"{row['collective']} over {row['axes']}" in messages for messages in told), row


def test_types_have_splits(made):
    _, report = made(CASES[1])
    types = {line["op"]: line["type"] for line in report["lines"]}
    assert "heads:4/tp" in types["h.attn.q"] and "batch:16/dp" in types["h.attn.q"]
    weights = {weight["name"]: weight["type"] for weight in report["weights"]}
    assert re.search(r"heads:4/tp", weights["h.*.attn.wq"]) and "/dp" in weights["h.*.attn.wq"]


def test_text_ends_no_script(tmp_path):
    source = tmp_path / "a.mdl"
    source.write_text("# </script><!-- <script> & \u00e9\n" + (HERE / "gpt.mdl").read_text())
    run(MPC, "report", source, f"--html={tmp_path}/a.html")
    page = (tmp_path / "a.html").read_text()
    check_whole(page)
    assert data_of(page)["text"] == source.read_text() and page.count("</script>") == 2


def test_long_model(tmp_path):
    run(MPC, "report", long_model(tmp_path), f"--html={tmp_path}/a.html")
    page = (tmp_path / "a.html").read_text()
    check_whole(page)
    assert len(data_of(page)["memory_over_step"]["ops"]) > 1000


# --- In a browser -----------------------------------------------------------------------------------------------------

@pytest.mark.skipif(not NODE, reason="no node: scripts of pages are not parsed")
def test_scripts_parse(tmp_path):
    (tmp_path / "page.js").write_text("".join((ROOT / "driver/page" / name).read_text() for name in ("page.js", "timeline.js")))
    run(NODE, "--check", tmp_path / "page.js")


PROBE = """
<script>
const wrong = [];
window.addEventListener('error', event => wrong.push(event.message));
window.addEventListener('load', () => setTimeout(() => {
    const apart = (a, b) => a.right <= b.left + .6 || b.right <= a.left + .6 || a.bottom <= b.top + .6 || b.bottom <= a.top + .6;
    const shown = element => element.getClientRects().length > 0 && element.textContent.trim();
    const all = selector => [...document.querySelectorAll(selector)].filter(shown);
    for (const box of all('h1, h2, h3, p, .tile, .tile *, .row > *, .note, .legend > span, td, th, .zooms, #source li')) {
        const place = box.getBoundingClientRect();
        if (!box.closest('.table') && (place.right > innerWidth + .6 || place.left < -.6)) wrong.push('out of sight: ' + box.textContent.slice(0, 60));
        if (box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).display !== 'inline') wrong.push(`cut: ${box.scrollWidth} of ${box.clientWidth}, ${box.textContent.slice(0, 60)}`);
    }
    const check = boxes => {
        const places = boxes.map(box => box.getBoundingClientRect());
        for (let i = 0; i < boxes.length; i++)
            for (let j = 0; j < i; j++)
                if (!apart(places[i], places[j])) wrong.push(boxes[i].textContent.slice(0, 60) + ' overlaps ' + boxes[j].textContent.slice(0, 60));
    };
    check(all('h1, section h2, h3, section > p, .tile, .note, .legend > span, table'));
    check(all('.names b, .names span'));
    check(all('.chart text'));
    check(all('.axis text'));
    for (const row of all('.row')) check([...row.children].filter(shown));
    for (const action of document.querySelectorAll('.plot .a')) {
        const text = action.querySelector('text'), width = action.querySelector('rect').getBBox().width;
        if (text && text.getComputedTextLength() > width + .5) wrong.push(text.textContent + ' is wider than its box');
    }
    const bars = [...document.querySelectorAll('[data-line]')], source = document.querySelectorAll('#source li');
    for (const bar of [bars[0], bars[bars.length >> 1], bars.at(-1)]) {
        bar.dispatchEvent(new MouseEvent('click', { bubbles: true }));
        const chosen = [...document.querySelectorAll('#source li.chosen')];
        if (chosen.length !== 1 || chosen[0] !== source[bar.dataset.line - 1]) wrong.push('a bar does not lead to line ' + bar.dataset.line);
        const place = chosen[0].getBoundingClientRect(), list = document.getElementById('source').getBoundingClientRect();
        if (place.bottom > list.bottom + 1 || place.top < list.top - 1) wrong.push('line ' + bar.dataset.line + ' is not in sight');
    }
    for (const button of document.querySelectorAll('.zooms button')) {
        button.click();
        if (!document.querySelector('.plot .c0, .plot .c1, .plot .c4, .plot .a')) wrong.push('nothing is drawn at zoom ' + button.value);
    }
    const color = name => getComputedStyle(document.body)[name].match(/[\\d.]+/g).slice(0, 3).map(Number);
    const light = ([r, g, b]) => .2126 * r + .7152 * g + .0722 * b;
    const found = document.body.appendChild(document.createElement('pre'));
    found.id = 'found';
    found.textContent = JSON.stringify({ wrong: wrong.slice(0, 20), width: document.documentElement.scrollWidth, inner: innerWidth, bars: bars.length,
        chart: document.querySelectorAll('#memory .bar').length, rows: [...document.querySelectorAll('#messages .row')].map(row => Number(row.dataset.line || 0)),
        faster: [...document.querySelectorAll('#faster b')].map(name => name.textContent),
        memory: [...document.querySelectorAll('#memory .bar')].map(bar => Number(bar.dataset.line || 0)),
        text: light(color('color')), page: light(color('backgroundColor')), lines: source.length });
}, 50));
</script>
"""


def line_of(where):
    return int(where.split(":")[1]) if where else 0


def in_browser(tmp_path, pages, width, dark=False):
    """What the probe finds in each page, in a window of that width; frames, since windows have a least width, and a browser
    takes longer to start than a page to show."""
    frames = ""
    for number, page in enumerate(pages):
        (tmp_path / f"{number}.html").write_text(page.replace("<style>", PROBE + "<style>", 1))
        frames += f'<iframe src="{number}.html" style="border:0;width:{width}px;height:900px"></iframe>'
    (tmp_path / "frames.html").write_text(f"""<body style="margin:0">{frames}<script>
    const look = () => {{
        const found = [...document.querySelectorAll('iframe')].map(frame => frame.contentDocument.getElementById('found'));
        if (found.every(one => one)) document.body.append(...found); else setTimeout(look, 50); }};
    window.onload = look;</script>""")
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--window-size=1400,1000",
                           f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--virtual-time-budget=20000",
                           f"--user-data-dir={tmp_path}/profile", "--dump-dom", (tmp_path / "frames.html").as_uri()],
                          capture_output=True, text=True, timeout=300)
    return [json.loads(html.unescape(found)) for found in re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)]


@pytest.mark.skipif(not BROWSER, reason="no chromium: what the page looks like is not checked")
@pytest.mark.parametrize("width, dark", [(1280, False), (480, True)])
def test_in_browser(made, tmp_path, width, dark):
    pages = [made(words) for words in CASES]
    assert any("faster" in report for _, report in pages)
    for (page, report), found, words in zip(pages, in_browser(tmp_path, [page for page, _ in pages], width, dark), CASES, strict=True):
        assert found["wrong"] == [], words
        assert found["inner"] == width and found["width"] <= width, words
        assert found["chart"] == len(report["memory_over_step"]["ops"]), words
        assert sorted(found["rows"]) == sorted(line_of(row["first"]["where"]) for row in report["communication"]["collectives"]), words
        for line, op in zip(found["memory"], report["memory_over_step"]["ops"], strict=True):
            assert line == line_of(op["where"]) or not op["where"], (op, words)  # without a place, it may have that of its weight
        assert found["faster"] == [way["options"] for way in report.get("faster", [])], words
        assert found["bars"] >= found["chart"] / 2 + len(report["weights"]), words
        assert found["lines"] == data_of(page)["text"].rstrip("\n").count("\n") + 1, words
        assert (found["text"] > found["page"] + 100) if dark else (found["page"] > found["text"] + 100), words
