"""Runs the commands of pages: each line of a block marked `sh`, in the order of the page, except make, sudo and comments.
A line that ends with a backslash goes on in the next one.

Commands run in the root of the source tree, those of FOLDERS each in a folder of its own, which is empty at first.
There a block is a file if the line before it says so: Write `tiny.mdl`: begins the file, Append to `tiny.mdl`: adds to it.
With `pip install X Y`: before a block, it is run where Python has these packages (build/bridges: make bridges).
Keeps what each command prints, for quotes.py.  Arguments: the pages.
"""
import hashlib
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRINTED = ROOT / "out/doc/printed"
FOLDERS = {f"docs/{page}.md": ROOT / f"out/doc/{page}" for page in ("tutorial", "records")}
SKIPPED = re.compile(r"(make|sudo|#|FUZZ|EXTRA)|\s*$")
BLOCK = re.compile(r"(?P<before>[^\n]*)\n+```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
FILE = re.compile(r"(Write|Append to) `([\w.-]+(?:/[\w.-]+)*)`:$")
NEEDED = re.compile(r"With `pip install ([\w. -]+)`:$")
LIMIT = 120  # seconds


def run(page, folder, command):
    """Whether the command fails, with a line that says so."""
    kept = PRINTED / hashlib.md5(f"{page}\n{command}".encode()).hexdigest()
    first = command.split("\n")[0]
    with kept.open("w") as output:
        try:
            result = subprocess.run(["sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=subprocess.PIPE, text=True, errors="replace", timeout=LIMIT)
        except subprocess.TimeoutExpired:
            print(f"FAIL {page}: {first}\n    longer than {LIMIT} s")
            return True
    if result.returncode == 0:
        return False
    print(f"FAIL {page}: {first}")
    for line in (kept.read_text(errors="replace") + result.stderr).splitlines()[-5:]:
        print(f"    {line}")
    return True


def write(folder, statement, text):
    path = folder / statement[2]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if statement[1] == "Write" else "a") as file:
        file.write(text)


def folder_of(page):
    folder = FOLDERS.get(page, ROOT)
    if folder != ROOT:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    return folder


def run_page(page):
    """The number of commands of a page, and of those that fail."""
    folder, count, failed = folder_of(page), 0, 0
    for block in BLOCK.finditer((ROOT / page).read_text()):
        statement = FILE.search(block["before"])
        if folder != ROOT and statement:
            write(folder, statement, block["text"])
        needed = NEEDED.search(block["before"])
        missing = [name for name in needed[1].split() if not importlib.util.find_spec(name)] if needed else []
        if missing:
            print(f"{page}: commands that need {', '.join(missing)} are not run (make bridges)")
        elif block["language"] == "sh":
            for command in re.findall(r"(?:.*\\\n)*.*\n", block["text"]):
                if not SKIPPED.match(command):
                    count += 1
                    failed += run(page, folder, command)
    return count, failed


def main():
    PRINTED.mkdir(parents=True, exist_ok=True)
    results = [run_page(page) for page in sys.argv[1:]]
    count, failed = (sum(column) for column in zip(*results))
    print(f"{count} commands, {failed} failed")
    return failed > 0 or count == 0


sys.exit(main())
