"""Fails if a page links to a file or shows a picture that is not there, or links to a heading that a page does not have."""
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


def main():
    wrong = [line for page in PAGES for line in wrong_links(page)]
    print("\n".join([*wrong, f"links of {len(PAGES)} pages: {len(wrong)} lead nowhere"]))
    return wrong != []


sys.exit(main())
