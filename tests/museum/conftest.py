"""Trainers of models/trained.mdl under layouts, right ones and ones into whose C a bug is planted.

Processes are run as tests/ranks runs them.
"""
import importlib.util
import json
import pathlib
import struct
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("ranks", HERE.parent / "ranks" / "conftest.py")
ranks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ranks)
text = ranks.text  # the fixture: bytes for training

RUNTIME = HERE.parents[1] / "runtime"
STEPS = 6

HEADS = "shard heads, ff, vocab over tp"
LAYOUTS = {  # lines of parallel { }, sequences a micro-batch
    "one": ((), 8),
    "dp2": (("mesh dp = 2", "shard batch over dp", "zero 2 over dp"), 2),
    "dp2-zero3": (("mesh dp = 2", "shard batch over dp", "zero 3 over dp"), 4),
    "tp2-seq": (("mesh tp = 2", HEADS + " else seq"), 4),
    "tp4": (("mesh tp = 4", HEADS), 8),
    "dp-tp": (("mesh dp = 2, tp = 2", "shard batch over dp", HEADS), 4),
    "tp-dp": (("mesh tp = 2, dp = 2", "shard batch over dp", HEADS), 4),
}


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """compiled(layout, plant=None): its Trainer, made once.

    `plant` is (file, command of sed): what is wrong in trainer.c and its units, or in that file of the runtime.
    """
    made = {}

    def make(name, plant=None):
        if (name, plant) not in made:
            layout, micro = LAYOUTS[name]
            folder = tmp_path_factory.mktemp(name)
            model = (HERE / "models" / "trained.mdl").read_text()
            (folder / "model.mdl").write_text(model + "parallel {\n" + "\n".join(layout) + "\n}\n" if layout else model)
            said = ["--set", f"train.microbatch={micro}", "--cc", planting_compiler(folder, plant)]
            said += ranks.TCP if layout else [ranks.QUICK]
            ranks.start([ranks.MPC, "compile", "model.mdl", "-o", "out", *said], folder)
            assert not plant or plant[0] != "trainer.c" or (folder / "planted").exists(), "nothing is planted in the trainer"
            made[name, plant] = ranks.Trainer(folder, ranks.ranks_of(layout), ranks.by_hand)
        return made[name, plant]
    return make


def plant_into(path, command):
    """The text of a file with the mistake in it."""
    right = path.read_text()
    wrong = subprocess.run(["sed", "-E", command], input=right, text=True, check=True, capture_output=True).stdout
    assert wrong != right, f"nothing is planted in {path}"
    return wrong


def planting_compiler(folder, plant):
    """The C compiler to give to mpc.  A file of the runtime goes before the library, which then keeps its own out."""
    if not plant:
        return ranks.QUIET["CC"]
    name, command = plant
    script, wrong = folder / "cc", folder / f"wrong_{name}"
    if name == "trainer.c":
        (folder / "command").write_text(command)
        edit = """for word; do
    case $word in *.c) sed -E -f command "$word" >wrong$$.c; cmp -s "$word" wrong$$.c || : >planted; mv wrong$$.c "$word" ;; esac
done
exec QUICK "$@"
"""
    else:
        right, = RUNTIME.rglob(name)
        wrong.write_text(plant_into(right, command))
        edit = (f'case " $* " in *" -c "*) exec QUICK "$@" ;; esac\n'
                f'cc -std=gnu17 -D_GNU_SOURCE -O0 -I{RUNTIME} -I{right.parent} -c {wrong} -o wrong.o\nexec QUICK wrong.o "$@"\n')
    script.write_text("#!/bin/sh\nset -e\n" + edit.replace("QUICK", ranks.QUIET["CC"]))
    script.chmod(0o755)
    return script


@pytest.fixture(scope="session")
def alone(compiled, text, tmp_path_factory):
    """The log of one process: what every right layout has to repeat."""
    folder = tmp_path_factory.mktemp("alone")
    ranks.start(compiled("one").command("--steps", STEPS, "--data", text, "--data-format", "bytes", "--log", "log"), folder)
    return ranks.read_log(folder / "log")


@pytest.fixture
def train(text, tmp_path):
    """train(trainer, steps, option, ...): its log; files are relative to tmp_path."""
    def run(trainer, steps, *options, data=text):
        fed = ["--data", data, "--data-format", "bytes", "--log", "log"] if steps else []
        fed += ["--overwrite"] if steps or "--save" in options else []
        ranks.start(trainer.command("--steps", steps, *fed, *options), tmp_path)
        return ranks.read_log(tmp_path / "log") if steps else []
    return run


def is_same(log, expected, tolerance=1e-5):
    """Loss and norm of every step.  Why 1e-5 is derived in tests/ranks/test_layouts.py."""
    assert [line["step"] for line in log] == [line["step"] for line in expected]
    return all(abs(line[key] - other[key]) <= tolerance * abs(other[key])
               for line, other in zip(log, expected) for key in ("loss", "grad_norm"))


def read_checkpoint(path):
    """(header, data), without the checksums: who saves something wrong has counted it as right."""
    raw = path.read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header["__metadata__"] = {key: value for key, value in header["__metadata__"].items() if "checksum" not in key}
    return header, raw[8 + length:]


def write_checkpoint(path, header, data):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
