"""Fails if a page quotes what is not so: each block marked `mir`, against the dump named last before it; in README also
each one marked `mdl` or `c`, against the model or the trainer.

A line of `...` leaves lines out, `...` in a line of IR leaves out what stands there.  Of IR, names of values that are
numbers, and places in the .mdl, are not compared.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def plain(line):
    line = re.sub(r" loc\([^)]*\)", "", line.strip())
    return re.sub(r"%\d+\b", "%N", re.sub(r"%d\.\d+\b", "%d.N", line))


def pattern(line):
    return re.compile(".*".join(re.escape(part) for part in plain(line).split("...")))


def missing_ir(block, dump):
    """Those lines of the block that do not follow each other in the dump."""
    lines, at = [plain(line) for line in dump.read_text().splitlines()], 0
    for quoted in block.splitlines():
        if not quoted.strip() or quoted.strip() == "...":
            continue
        found = next((i for i in range(at, len(lines)) if pattern(quoted).fullmatch(lines[i])), None)
        if found is None:
            yield quoted
        else:
            at = found + 1


def missing_parts(block, file):
    """The first line of each part of the block, between lines of `...`, that does not stand in the file as it is."""
    text, at = file.read_text(), 0
    for part in re.split(r"^\.\.\.\n", block, flags=re.M):
        found = text.find("\n" + part, at)
        if found < 0:
            yield part.split("\n")[0]
        else:
            at = found + len(part)


def main():
    count = failed = 0
    for page in [README, *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text()
        for block in re.finditer(r"^```(mir|mdl|c)\n(.*?)^```$", text, re.M | re.S):
            language = block[1]
            if language != "mir" and page != README:
                continue
            files = re.findall(rf"`((?:out|examples)/[\w./-]+\.{language})`", text[:block.start()])
            count += 1
            for line in (missing_ir if language == "mir" else missing_parts)(block[2], ROOT / files[-1]):
                print(f"{page.name}: not in {files[-1]}: {line.strip()}")
                failed += 1
    print(f"{count} quotations, {failed} lines that are not so")
    return failed > 0 or count == 0


sys.exit(main())
