"""Files that options name for results: none of another kind is replaced, and what is replaced keeps its place."""
import json
import os
import re
import subprocess

import pytest

from conftest import MPC, ROOT

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
OTHERS = ["first.mdl", "photo", "log.jsonl", "notes.md", "config.json", "weights.bin", "trained.safetensors"]


@pytest.fixture
def others(mpc):
    """What users have: none of these is what mpc writes."""
    here = mpc.directory
    (here / "photo").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (here / "log.jsonl").write_text('{"step": 1, "loss": 5.5}\n')
    (here / "notes.md").write_text("# a module of notes\n\nmodules\n")
    (here / "config.json").write_text('{\n  "architectures": ["Llama"],\n  "mpc": 1\n}\n')
    (here / "weights.bin").write_bytes(bytes(4096))
    header = b'{"__metadata__":{"format":"mpc","model":"tiny","step":"4","seed":"1337"}}'
    (here / "trained.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
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
    assert os.listdir(here / "away") == ["link.mdl"] and not list(here.glob("tiny.mdl?*"))


def test_two_at_a_time(mpc):
    """What two commands write to one place is that of one of them, whole."""
    here = mpc.directory
    (here / "other.mdl").write_text((here / "tiny.mdl").read_text().replace("model tiny", "model other"))

    def both(*words):
        commands = [subprocess.Popen([MPC, words[0], f"{model}.mdl", *words[1:]], cwd=here, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True) for model in ("tiny", "other")]
        said = [command.communicate(timeout=100)[1] for command in commands]
        assert [command.returncode for command in commands] == [0, 0], said
        assert all(text in ("", "mpc: note: another mpc writes into out: waiting until it is done\n") for text in said), said
    for _ in range(5):
        both("compile", "-o", "out", "--cc=tcc", "--cflags=-O0")
        source, plan = (here / "out/trainer.c").read_text(), json.loads((here / "out/plan.json").read_text())
        name = plan["model"]["name"]
        version = subprocess.run([here / "out/trainer", "--version"], capture_output=True, text=True).stdout
        assert f"trains the model {name}, " in source and version.startswith(f"{name}, ")
        both("report", "--html", "page.html")
        assert (here / "page.html").read_text().endswith("</html>\n")
    assert sorted(os.listdir(here / "out")) == ["plan.json", "trainer", "trainer.c"] and not list(here.glob("page.html?*"))


@pytest.mark.parametrize("words, option", OUTPUTS, ids=[f"{words[0]} {option}" for words, option in OUTPUTS])
def test_places_that_are_none_are_refused_at_once(mpc, others, words, option):
    """Before a search of minutes: none of the other inputs is read."""
    (others / "folder").mkdir()
    assert mpc(*words, option, "folder", status=1).stderr == f"mpc: error: {option}: folder is a folder; give the name of a file\n"
    places = {"photo/x": "Not a directory"}
    (others / "disk").mkdir()
    before = sorted(others.rglob("*"))
    if os.system(f"mount -t tmpfs -o ro none {others}/disk 2>/dev/null") == 0:
        places |= {"disk/x": "Read-only file system", "disk/deeper/still/x": "Read-only file system"}
    try:
        for place, why in places.items():
            said = mpc(*words, option, place, status=1).stderr
            assert said == f"mpc: error: {option}: cannot write {place}: {why}; give a place in another folder\n"
    finally:
        os.system(f"umount {others}/disk 2>/dev/null")
    assert sorted(others.rglob("*")) == before
