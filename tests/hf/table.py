"""The table in docs/models.md: a row for each family, with the figures of this run where BLESS=1."""
import os

from common import ROOT
from families import FAMILIES

PAGE = ROOT / "docs" / "models.md"
HEAD = "| family | transformers | file | covers | loss | gradient norm | weights |\n| --- | --- | --- | --- | --- | --- | --- |\n"


def write_table(figures):
    if not os.environ.get("BLESS") or len(figures) < len(FAMILIES):
        return
    rows = [f"| {f.name} | `{f.model}` | `{f.file}` | {f.covers} | " + " | ".join(f"{x:.0e}" for x in figures[f.name]) + " |\n"
            for f in FAMILIES]
    before, _, rest = PAGE.read_text().partition("| family |")
    after = rest[rest.index("\n\n"):] if "\n\n" in rest else "\n"
    PAGE.write_text(before + HEAD + "".join(rows).rstrip("\n") + after)
