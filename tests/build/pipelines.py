"""Files that ask about the stages of pipelines, outside the rooms of pipelines: a new one asks a more general question,
as which ranks hold a value (ir/ranks.h), run an op (ir/needed.h) or a part of a loop (ir/split_loop.h), or stands in a
room.  With --list: what each asks."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["ir", "frontend", "passes", "codegen", "driver", "runtime"]
ROOMS = re.compile(r"pipeline|stage|schedule|kinds|timeline")  # in the path; a timeline is the drawing of a schedule
ASKS = re.compile(r"\w*(?:stage|pipeline)\w*", re.I)
REMARKS_AND_TEXTS = re.compile(r'(#include "[^"\n]*")|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
LIST = pathlib.Path(__file__).with_suffix(".txt")


def asked():
    """By file: the identifiers and headers of pipelines that its code names."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            name = str(path.relative_to(ROOT))
            code = REMARKS_AND_TEXTS.sub(lambda found: found[1] or " ", path.read_text())
            names = sorted(set(ASKS.findall(code)))
            if names and not ROOMS.search(name):
                yield name, names


files = dict(asked())
if "--list" in sys.argv:
    print("\n".join(f"{name}: {' '.join(names)}" for name, names in files.items()))
known = set(LIST.read_text().split())
for name in sorted(files.keys() - known):
    print(f"{name} asks about pipelines ({', '.join(files[name])}): ask what is more general, see tests/build/pipelines.py")
for name in sorted(known - files.keys()):
    print(f"{name} does not ask about pipelines any more: take it from {LIST.relative_to(ROOT)}")
sys.exit(files.keys() != known)
