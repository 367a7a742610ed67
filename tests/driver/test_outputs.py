"""Files that options name for results: none of another kind is replaced, and what is replaced keeps its place."""
import os
import re

import pytest

from conftest import ROOT

REPORT = ["report", "tiny.mdl", "--machine", "h100"]
# Each option that names a file, with a command that would write it.  No test of another file is in the way: those that
# need inputs get none, since outputs are looked at first.
OUTPUTS = [
    (["compile", "tiny.mdl", "--compile-to=lower"], "-o"), (["print", "x.mir"], "-o"),
    (["opt", "x.mir", "--pass=simplify"], "-o"), (["plot", "log"], "-o"), (["plot", "log"], "--svg"),
    (["trace", "merge", "log"], "-o"), (["import", "folder"], "-o"), (REPORT, "--html"), (REPORT, "--svg"),
    (REPORT, "--memory-svg"), (REPORT, "--costs"), (REPORT, "--model-explorer"),
    (["plan", "tiny.mdl", "--ranks", "2", "--machine", "h100"], "--html"), (["print", "x.mir"], "--model-explorer"),
]
OTHERS = ["first.mdl", "photo", "log.jsonl", "notes.md", "config.json", "weights.bin"]


@pytest.fixture
def others(mpc):
    """What users have: none of these is what mpc writes."""
    here = mpc.directory
    (here / "photo").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (here / "log.jsonl").write_text('{"step": 1, "loss": 5.5}\n')
    (here / "notes.md").write_text("# a module of notes\n\nmodules\n")
    (here / "config.json").write_text('{\n  "architectures": ["Llama"],\n  "mpc": 1\n}\n')
    (here / "weights.bin").write_bytes(bytes(4096))
    (here / "x.mir").write_text("module @m {\n}\n")
    return here


def test_every_option_is_listed():
    """A new option with the value FILE or OUT gets a row above."""
    rows = re.findall(r'OPTION\((\w+),\s*TEXT,\s*\S+\s+([A-Z_ |]+),\s*"([^"]*)"', (ROOT / "driver/options.def").read_text())
    named = {(command.lower(), "-o" if name == "output" else "--" + name.replace("_", "-"))
             for name, commands, value in rows if value in ("OUT", "FILE.html", "FILE.svg", "FILE.json")
             for command in commands.split(" | ")}
    folders = {("compile", "-o"), ("run", "-o"), ("export", "-o")}
    assert len(named) > 10 and named - folders == {(words[0], option) for words, option in OUTPUTS} - folders


@pytest.mark.parametrize("words, option", OUTPUTS, ids=[f"{words[0]} {option}" for words, option in OUTPUTS])
def test_other_kinds_are_kept(mpc, others, words, option):
    before = {path: path.read_bytes() for path in others.iterdir()}
    for name in OTHERS:
        said = mpc(*words, option, name, status=1).stderr
        assert said.startswith(f"mpc: error: {option}: the file {name} is there, and is not ")
        assert said.endswith("it would be lost; give another name, or remove it\n") and said.count("\n") == 1
    assert {path: path.read_bytes() for path in others.iterdir()} == before


def test_own_kinds_are_replaced(mpc):
    here, options = mpc.directory, []
    for option in ("html", "svg", "memory-svg", "costs", "model-explorer"):
        (here / option).touch()  # as of mktemp(1)
        options += [f"--{option}", option]
    mpc(*REPORT, *options)
    first = {name: (here / name).read_bytes() for name in options[1::2]}
    mpc(*REPORT, *options, "-D", "layers=2")
    assert all(text and (here / name).read_bytes() != text for name, text in first.items())
    mpc("compile", "tiny.mdl", "--compile-to=lower", "-o", "x.mir")
    mpc("print", "x.mir", "-o", "y.mir")
    (here / "y.mir").write_text("# RUN: a comment\n\n" + (here / "y.mir").read_text())
    mpc("opt", "x.mir", "--pass=simplify", "-o", "y.mir")
    (here / "log").write_text('{"step": 1, "loss": 5.5}\n{"step": 2, "loss": 5.4}\n')
    for _ in range(2):
        mpc("plot", "log", "-o", "plot.html", "--svg", "plot.svg")
        mpc("compile", "tiny.mdl", "-o", "out", "--no-cc")
        mpc("compile", "tiny.mdl", "-o", "cuda", "--no-cc", "--target=cuda")


@pytest.mark.parametrize("name", ["trainer.c", "plan.json", "trainer", "kernels.cu"])
def test_folders_with_other_files(mpc, name):
    (mpc.directory / "out").mkdir()
    (mpc.directory / "out" / name).write_text("int main(void) { return 0; }\n")
    said = mpc("compile", "tiny.mdl", "-o", "out", "--target=cuda", status=1).stderr
    assert f"-o: the file out/{name} is there, and is not a" in said
    assert os.listdir(mpc.directory / "out") == [name]


def test_two_outputs_of_one_name(mpc):
    said = mpc(*REPORT, "--html", "x", "--svg", "x", status=1).stderr
    assert said == "mpc: error: --html x and --svg x: each would write over the other; give two names\n"


def test_place_and_permissions(mpc):
    """A link stays one, and what only its owner may read stays so."""
    here = mpc.directory
    (here / "tiny.mdl").write_text((here / "tiny.mdl").read_text().replace("dim batch\n", "dim   batch\n\n\n\n"))
    (here / "tiny.mdl").chmod(0o600)
    (here / "away").mkdir()
    (here / "away/link.mdl").symlink_to("../tiny.mdl")
    before = (here / "tiny.mdl").read_bytes()
    mpc("fmt", "--write", "away/link.mdl")
    assert (here / "tiny.mdl").read_bytes() != before and (here / "away/link.mdl").is_symlink()
    assert (here / "tiny.mdl").stat().st_mode & 0o777 == 0o600
    assert os.listdir(here / "away") == ["link.mdl"] and not list(here.glob("*.tmp"))
