"""Bugs planted into compiled programs, as the entries NAME.mdl tell: each is noticed by just the checks it names.

And without the bug, every pass of the same program keeps what it computes, in reals and modulo a prime.
"""
import re
import subprocess
import sys

import pytest
from planted import CHECKS, HERE, entries

sys.path.insert(0, str(HERE.parent / "verify"))
import layouts  # noqa: E402

JUDGE = layouts.MPC.parent / "museum" / "judge"
ENTRIES = entries()
PLANTS = [(entry, plant) for entry in ENTRIES for plant in entry.plants]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, " ".join(map(str, command)) + "\n" + done.stdout + done.stderr
    return done.stdout


def name_of_plant(value):
    return value.name if hasattr(value, "name") else "-".join(value.what.split()[:6])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """compiled(entry, stage): the file of its IR after that pass, made once."""
    folder, made = tmp_path_factory.mktemp("planted"), {}

    def make(entry, stage):
        path = made.setdefault((entry.name, stage), folder / f"{entry.name}.{stage}.mir")
        if not path.exists():
            run(layouts.MPC, "compile", entry.path, f"--compile-to={stage}", "-o", path)
        return path
    return make


def test_list():
    """README.md lists each entry, and the checks that notice it."""
    listed = dict(re.findall(r"^\| \[(\w+)\]\(\1\.\w+\) \|.*\| (.*) \|$", (HERE / "README.md").read_text(), re.M))
    others = [path.stem for path in HERE.glob("test_*.py") if path.stem != "test_planted"]
    assert sorted(listed) == sorted([entry.name for entry in ENTRIES] + others)
    for entry in ENTRIES:
        assert set(listed[entry.name].split(" / ")) == {", ".join(plant.noticed) for plant in entry.plants}, entry.name


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_right_program(compiled, entry, tmp_path):
    text = entry.path.read_text()
    assert entry.plants and entry.address.startswith("https://"), "an entry plants its bug, and says where it is from"
    assert layouts.verify(tmp_path, entry.name, text, [], "--verify-passes=exact") is None


@pytest.mark.parametrize("entry, plant", PLANTS, ids=name_of_plant)
def test_planted_bug(compiled, entry, plant, tmp_path):
    right, wrong = compiled(entry, plant.after), tmp_path / "wrong.mir"
    wrong.write_text(plant.apply(right.read_text()))
    said = run(JUDGE, right, wrong)
    noticed = [check for check in CHECKS if f"{check}: " in said or f"\n{check}: " in said]
    assert noticed == plant.noticed, f"{plant.what}: noticed by {noticed}\n{said}"
