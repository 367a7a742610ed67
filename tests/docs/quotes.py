"""Fails if a page quotes what is not so: each block marked `mir`, against the dump named last before it; in README also
each one marked `mdl` or `c`, against the model or the trainer; each one marked `text`, against what the first command
of the block `sh` before it has printed when commands.py ran it (BLESS=1: written anew).

A line of `...` leaves lines out, `...` in a line of IR leaves out what stands there.  Of IR, names of values that are
numbers, and places in the .mdl, are not compared.
"""
import hashlib
import os
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


def printed(page, command):
    """Kept by commands.py."""
    name = hashlib.md5(f"{page.relative_to(ROOT)}\n{command}\n".encode()).hexdigest()
    return (ROOT / "out/doc/printed" / name).read_text()


def without_numbers(line):
    return re.sub(r"[\d.,]+", "N", line)


def output_now(block, page, command):
    """Of each part of the block, between lines of `...`, as many lines of what the command prints, from the one on that is
    like its first."""
    lines, at, parts = printed(page, command).splitlines(), 0, []
    for part in re.split(r"^\.\.\.\n", block, flags=re.M):
        quoted = part.splitlines()
        start = next((i for i in range(at, len(lines)) if without_numbers(lines[i]) == without_numbers(quoted[0])), len(lines))
        at = start + len(quoted)
        parts.append("".join(line + "\n" for line in lines[start:at]))
    return "...\n".join(parts)


def check_outputs(page):
    """The lines of quoted outputs that are not so; with BLESS=1 they are written anew."""
    text = page.read_text()
    for block in re.finditer(r"^```text\n(.*?)^```$", text, re.M | re.S):
        command = re.findall(r"^```sh\n((?:.*\\\n)*.*)\n", text[:block.start()], re.M)[-1]
        now = output_now(block[1], page, command)
        if os.environ.get("BLESS") and now:
            page.write_text(page.read_text().replace(block[1], now))
        elif now != block[1]:
            yield from set(block[1].splitlines()) - set(now.splitlines()) or ["order"]


def main():
    count = failed = 0
    for page in (ROOT / name for name in sys.argv[1:]):
        text = page.read_text()
        count += len(re.findall(r"^```text$", text, re.M))
        for line in check_outputs(page):
            print(f"{page.name}: not printed any more (BLESS=1 writes it anew): {line.strip()}")
            failed += 1
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
    return failed > 0


sys.exit(main())
