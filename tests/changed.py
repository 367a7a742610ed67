"""changed.py REV -- the groups of tests that changed files can reach, with commas; on standard error those left out.

Changed are files that differ from the merge base with REV (1: with the branch that the project is on), uncommitted and
untracked ones too, and sources that include one of them, as the .d files of the last build say.  Which folders and
files a group reaches is in `# reaches:` lines of its run.sh: `-NAME` is not reached though what it lies in is, `.` is
everything, and names of SETS stand for theirs.  Its own folder it always reaches.  Files that no group names, the
Makefile and scripts that groups share reach all of them.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHARED = re.compile(r"Makefile|tests/[^/]+|\.ci/.*")
SETS = {"compiler": "ir frontend passes codegen -codegen/cuda driver -driver/hf -driver/plot", "trainers": "runtime -runtime/cuda"}
BRANCHES = ["origin/HEAD", "origin/main", "main", "origin/master", "master"]


def rules_of(group):
    """(what it reaches, what of this it does not)"""
    text = (ROOT / "tests" / group / "run.sh").read_text()
    words = " ".join(re.findall(r"^# reaches: (.*)", text, re.M)).split()
    said = " ".join(SETS.get(word, word) for word in words).split()
    return [f"tests/{group}"] + [word for word in said if word[0] != "-"], [word[1:] for word in said if word[0] == "-"]


def all_rules():
    return {path.parent.name: rules_of(path.parent.name) for path in sorted((ROOT / "tests").glob("*/run.sh"))}


def depth(words, path):
    """The number of folders in the longest name that `path` is or lies in; None: in none."""
    return max((0 if word == "." else 1 + word.count("/") for word in words
                if word == "." or f"{path}/".startswith(f"{word}/")), default=None)


def does_reach(rules, path):
    reached, without = (depth(words, path) for words in rules)
    return reached is not None and (without is None or without <= reached)


def includers(build):
    """For each file the sources that include it."""
    found = {}
    for path in build.rglob("*.d"):
        if path.relative_to(build).parts[0] in ("ir", "frontend", "passes", "codegen", "driver", "runtime"):
            source, *included = path.read_text().replace("\\\n", " ").splitlines()[0].split(": ", 1)[1].split()
            for name in included:
                found.setdefault(os.path.normpath(name), set()).add(source)
    return found


def groups_of(changed, including, rules):
    """The groups to run, and the files that decide about them: those that changed, and those that include them."""
    affected = set(changed).union(*(including.get(path, ()) for path in changed))
    for path in changed:
        if SHARED.fullmatch(path) or not any(does_reach(rule, path) for rule in rules.values() if "." not in rule[0]):
            return set(rules), affected
    return {group for group, rule in rules.items() if any(does_reach(rule, path) for path in affected)}, affected


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def base_of(rev):
    for name in BRANCHES if rev == "1" else [rev]:
        done = git("merge-base", "HEAD", name)
        if done.returncode == 0:
            return done.stdout.strip(), name
    sys.exit(f"error: git knows no {rev if rev != '1' else ' and no '.join(BRANCHES)}: give CHANGED=REV a commit that it has")


def main(rev):
    base, name = base_of(rev)
    lines = git("diff", "--name-only", "--no-renames", base).stdout + git("ls-files", "--others", "--exclude-standard").stdout
    changed = sorted(set(lines.splitlines()))
    rules = all_rules()
    groups, affected = groups_of(changed, includers(ROOT / os.environ.get("BUILD", "build")), rules)
    folders = sorted({os.path.dirname(path) or path for path in affected})
    print(f"{len(changed)} files differ from {name} at {base[:8]}; with what includes them they lie in:", file=sys.stderr)
    print("    " + " ".join(folders), file=sys.stderr)
    if left := sorted(set(rules) - groups):
        print(f"left out, since they reach none of these: {' '.join(left)}", file=sys.stderr)
    print(",".join(sorted(groups)))


if __name__ == "__main__":
    main(sys.argv[1])
