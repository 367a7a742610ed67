"""Fails if a page links to a file or shows a picture that is not there, or links to a heading that a page does not have;
or if it has two blank lines in a row, or one behind the head of a table, as lines leave that were taken away.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def headings(page):
    """As GitHub names them in links."""
    titles = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def wrong_links(page):
    text = re.sub(r"`[^`\n]*`", "", without_code(page.read_text()))
    pictures = [(picture, "") for picture in re.findall(r'<img src="([^"]*)"', text)]
    for target, heading in LINK.findall(text) + pictures:
        file = (page.parent / target).resolve() if target else page
        if not file.exists():
            yield f"{page.name}: there is no {target}"
        elif heading and file.suffix == ".md" and heading not in headings(file):
            yield f"{page.name}: {file.name} has no heading #{heading}"


def blank_lines(page):
    text = page.read_text()
    for gap in re.finditer(r"\n\n\n|^\| --- .*\|\n\n", text, re.M):
        yield f"{page.name}:{text.count(chr(10), 0, gap.end()) + 1}: a blank line too many"


def main():
    wrong = [line for page in PAGES for check in (wrong_links, blank_lines) for line in check(page)]
    print("\n".join([*wrong, f"links of {len(PAGES)} pages: {len(wrong)} lead nowhere, or lines are blank"]))
    return wrong != []


sys.exit(main())
