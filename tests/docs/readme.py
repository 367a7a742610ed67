"""Fails if README has lines that do not fit a terminal, figures that its links do not have, or pictures that mpc would not
draw: run.sh has drawn them again into out/doc, after some steps of the demo.
"""
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ET

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SVG = "{http://www.w3.org/2000/svg}"
DRAWN = ROOT / "out/doc"
WIDTH = 120


def long_lines():
    for number, line in enumerate(README.splitlines(), 1):
        if len(line) > WIDTH:
            yield f"README.md:{number}: {len(line)} characters, more than {WIDTH}"


def wrong_figures():
    """Of each row that ends with a link to results: one row there has all figures of its columns."""
    rows = re.findall(r"^\| .* \|([^|]*)\|([^|]*)\|([^|]*)\| \[\w+\]\((bench/results/[^)]*)\) \|$", README, re.M)
    for *figures, page in rows:
        figures = [figure.strip() for figure in figures]
        results = [[cell.strip() for cell in line.split("|")] for line in (ROOT / page).read_text().splitlines()]
        if not any(set(figures) <= set(cells) for cells in results):
            yield f"README.md: {page} has no row with {', '.join(figures)}"
    if not rows:
        yield "README.md: there are no figures"


def losses_of(picture):
    """By step, of single steps."""
    group = next(g for g in ET.parse(picture).iter(f"{SVG}g") if "data-x" in g.attrib)
    axes = [list(map(float, group.attrib[axis].split())) for axis in ("data-x", "data-y")]
    path = next(p for p in group.iter(f"{SVG}path") if p.attrib.get("class", "").startswith("raw"))
    for point in re.findall(r"[ML]([-\d.]+),([-\d.]+)", path.attrib["d"]):
        step, loss = (low + (high - low) * (float(place) - begin) / (end - begin)
                      for place, (_, low, high, begin, end) in zip(point, axes))
        yield round(step), loss


def style_of(picture):
    return re.search(r"<style>.*?</style>", picture.read_text(), re.S)[0]


def wrong_pictures():
    """Timeline and memory are the same to the byte; of the loss, the style, and the first steps: as far as another text has
    them."""
    for name in ("timeline.svg", "memory.svg"):
        if (ROOT / "docs" / name).read_bytes() != (DRAWN / name).read_bytes():
            yield f"docs/{name}: mpc draws another one: sh docs/pictures.sh"
    shown = ROOT / "docs/loss.svg"
    if style_of(shown) != style_of(DRAWN / "loss.svg"):
        yield "docs/loss.svg: mpc has another style: make demo, sh docs/pictures.sh"
    log = {line["step"]: line["loss"] for line in map(json.loads, (ROOT / "out/chars/log.jsonl").read_text().splitlines())}
    off = [abs(loss - log[step]) for step, loss in losses_of(shown) if step in log]
    if len(off) < 10 or sum(off) / len(off) > 0.25:
        yield f"docs/loss.svg: its first steps are not those of the demo: off by {off}"
    for picture in (shown, ROOT / "docs/timeline.svg", ROOT / "docs/memory.svg"):
        if picture.stat().st_size > 60_000:
            yield f"{picture}: more than 60 kB"


def main():
    wrong = [*long_lines(), *wrong_figures(), *wrong_pictures()]
    print("\n".join([*wrong, f"README: {len(wrong)} mistakes"]))
    return wrong != []


sys.exit(main())
