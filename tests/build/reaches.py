"""What groups of tests say they reach (tests/changed.py): every group does, every folder of sources is reached by a group
besides this one, what a group's files name is reached, and the choice of groups is right for files of each kind."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from changed import ROOT, all_rules, does_reach, groups_of  # noqa: E402

SOURCES = ["ir", "frontend", "passes", "codegen", "driver", "runtime", "bench", "examples", "packaging", "docs"]
NAMED = re.compile(r'\b(tests/[a-z]+|examples|packaging|bench)/|"tests" / "([a-z]+)"|parents\[1\] / "([a-z]+)"|ROOT / "(examples|packaging|bench)"')
REMARKS = {".py": r'"""(?s:.*?)"""|(?m:(^|  )#.*$)', ".sh": r"(?m:^ *#.*$)"}


def folders():
    for top in SOURCES:
        yield from {path.parent.relative_to(ROOT) for path in (ROOT / top).rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def named_in(path):
    """The folders that a script names, but in what it says to readers."""
    for found in NAMED.finditer(re.sub(REMARKS[path.suffix], "", path.read_text())):
        inside = found[2] or found[3]
        yield found[1] or found[4] or (inside if inside in SOURCES else f"tests/{inside}")


def problems(rules):
    for group, (reached, without) in rules.items():
        if len(reached) == 1:
            yield f"tests/{group}/run.sh: no line `# reaches: FOLDER...`"
        for word in (*reached, *without):
            if not (ROOT / word).exists():
                yield f"tests/{group}/run.sh: there is no {word}, which it says it reaches"
        for path in (ROOT / "tests" / group).rglob("*.*"):
            for name in sorted(set(named_in(path))) if path.suffix in REMARKS else ():
                if (ROOT / name).is_dir() and not any(f"{word}/".startswith(f"{name}/") or does_reach(rules[group], name) for word in reached):
                    yield f"{path.relative_to(ROOT)} names {name}, which tests/{group}/run.sh does not say it reaches"
    for folder in sorted(folders()):
        if not any(does_reach(rule, f"{folder}/x") for group, rule in rules.items() if group != "build"):
            yield f"{folder}: no group of tests but `build` says it reaches this"
    yield from wrong_choices(rules)


CHOICES = [  # what changed, groups that run, groups that do not
    ("docs/plan.md", {"build", "docs"}, set(rules := all_rules()) - {"build", "docs"}),
    ("README.md", {"build", "docs"}, set(rules) - {"build", "docs"}),
    ("Makefile", set(rules), set()),
    ("tests/pytest.sh", set(rules), set()),
    ("of/no/group", set(rules), set()),
    ("runtime/cuda/gpu.c", {"device", "cuda", "build"}, {"verify", "ranks", "hf", "runtime"}),
    ("runtime/net/comm_tcp.c", {"ranks", "runtime"}, {"verify", "kernels", "syntax"}),
    ("runtime/rt.h", {"codegen", "pass", "kernels"}, {"syntax"}),  # codegen/x.c includes it
    ("driver/hf/import.c", {"hf", "driver"}, {"verify", "device", "ranks"}),
    ("tests/verify/layouts.py", {"verify", "mutate", "museum"}, {"oracle", "docs"}),
]


def wrong_choices(rules):
    for path, some, others in CHOICES:
        chosen, _ = groups_of([path], {"runtime/rt.h": {"codegen/x.c"}}, rules)
        if some - chosen or others & chosen:
            yield f"tests/changed.py: for {path} it chooses {sorted(chosen)}"


wrong = list(problems(rules))
print("\n".join(wrong) or f"what {len(rules)} groups of tests reach is known")
sys.exit(bool(wrong))
