"""Fails if a page quotes IR that mpc does not write: each block marked `mir`, against the dump named last before it.

A line of `...` leaves lines out, `...` in a line leaves out what stands there.  Names of values that are numbers, and
places in the .mdl, are not compared.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def plain(line):
    line = re.sub(r" loc\([^)]*\)", "", line.strip())
    return re.sub(r"%\d+\b", "%N", re.sub(r"%d\.\d+\b", "%d.N", line))


def pattern(line):
    return re.compile(".*".join(re.escape(part) for part in plain(line).split("...")))


def missing_lines(block, dump):
    """Those of the block that do not follow each other in the dump."""
    lines, at = [plain(line) for line in dump.read_text().splitlines()], 0
    for quoted in block.splitlines():
        if not quoted.strip() or quoted.strip() == "...":
            continue
        found = next((i for i in range(at, len(lines)) if pattern(quoted).fullmatch(lines[i])), None)
        if found is None:
            yield quoted
        else:
            at = found + 1


def main():
    count = failed = 0
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text()
        for block in re.finditer(r"^```mir\n(.*?)^```$", text, re.M | re.S):
            dumps = re.findall(r"`(out/doc/[\w./-]+\.mir)`", text[:block.start()])
            count += 1
            for line in missing_lines(block.group(1), ROOT / dumps[-1]):
                print(f"{page.name}: not in {dumps[-1]}: {line.strip()}")
                failed += 1
    print(f"{count} quotations, {failed} lines that are not so")
    return failed > 0 or count == 0


sys.exit(main())
