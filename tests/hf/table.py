"""The table in docs/models.md: a row for each family, with the figures of this run where BLESS=1."""
import os

from common import ROOT
from families import FAMILIES

PAGE = ROOT / "docs" / "models.md"
HEAD = "| family | transformers | file | covers | loss | gradient norm | weights |\n| --- | --- | --- | --- | --- | --- | --- |\n"


def row_of(family, figures, page):
    """A family that was not run keeps its row."""
    if family.name in figures:
        return (f"| {family.name} | `{family.model}` | `{family.file}` | {family.covers} | "
                + " | ".join(f"{x:.0e}" for x in figures[family.name]) + " |\n")
    return next((line + "\n" for line in page.splitlines() if line.startswith(f"| {family.name} | `")), "")


def write_table(figures):
    if not os.environ.get("BLESS") or not figures:
        return
    page = PAGE.read_text()
    before, _, rest = page.partition("| family |")
    rows = [row_of(family, figures, page) for family in FAMILIES]
    after = rest[rest.index("\n\n"):] if "\n\n" in rest else "\n"
    PAGE.write_text(before + HEAD + "".join(rows).rstrip("\n") + after)
