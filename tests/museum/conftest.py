"""Trainers of models/trained.mdl under layouts, right ones and ones into whose C a bug is planted.

Processes are run as tests/ranks runs them.
"""
import importlib.util
import pathlib
import shlex

import pytest

HERE = pathlib.Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("ranks", HERE.parent / "ranks" / "conftest.py")
ranks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(ranks)
text = ranks.text  # the fixture: bytes for training

HEADS = "shard heads, ff, vocab over tp"
LAYOUTS = {  # lines of parallel { }, sequences a micro-batch
    "one": ((), 8),
    "dp2": (("mesh dp = 2", "shard batch over dp", "zero 2 over dp"), 2),
    "dp2-zero3": (("mesh dp = 2", "shard batch over dp", "zero 3 over dp"), 4),
    "tp2-seq": (("mesh tp = 2", HEADS + " else seq"), 4),
}


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """compiled(layout, plant=None): its Trainer, made once.  `plant` is a command of sed for trainer.c."""
    made = {}

    def make(name, plant=None):
        if (name, plant) not in made:
            layout, micro = LAYOUTS[name]
            folder = tmp_path_factory.mktemp(name)
            model = (HERE / "models" / "trained.mdl").read_text()
            (folder / "model.mdl").write_text(model + "parallel {\n" + "\n".join(layout) + "\n}\n" if layout else model)
            said = ["--set", f"train.microbatch={micro}", ranks.QUICK, "--cc", planting_compiler(folder, plant)]
            ranks.start([ranks.MPC, "compile", "model.mdl", "-o", "out", *said], folder)
            made[name, plant] = ranks.Trainer(folder, ranks.ranks_of(layout))
        return made[name, plant]
    return make


def planting_compiler(folder, plant):
    """A C compiler that edits trainer.c first, and complains if that changed nothing."""
    if not plant:
        return "cc"
    script = folder / "cc"
    script.write_text(f"""#!/bin/sh
set -e
for word; do
    case $word in
    *trainer.c)
        sed -E {shlex.quote(plant)} "$word" >"$word.wrong"
        if cmp -s "$word" "$word.wrong"; then
            echo "nothing planted" >&2
            exit 1
        fi
        mv "$word.wrong" "$word"
        ;;
    esac
done
exec cc "$@"
""")
    script.chmod(0o755)
    return script


@pytest.fixture
def train(text, tmp_path):
    """train(trainer, steps, option, ...): its log; files are relative to tmp_path."""
    def run(trainer, steps, *options, data=text):
        fed = ["--data", data, "--data-format", "bytes", "--log", "log"] if steps else []
        ranks.start(trainer.command("--steps", steps, *fed, *options), tmp_path)
        return ranks.read_log(tmp_path / "log") if steps else []
    return run


def is_same(log, expected, tolerance=1e-5):
    """Loss and norm of every step.  Why 1e-5 is derived in tests/ranks/test_layouts.py."""
    assert [line["step"] for line in log] == [line["step"] for line in expected]
    return all(abs(line[key] - other[key]) <= tolerance * abs(other[key])
               for line, other in zip(log, expected) for key in ("loss", "grad_norm"))
