"""Compiles the examples at reduced sizes for a processor and for a GPU, and runs them: on the emulated GPU, or with
MPC_DEVICE=gpu (make check-gpu) on a real one."""
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import cover  # noqa: E402

BUILD = (ROOT / os.environ.get("BUILD", "build")).resolve()
IS_REAL = os.environ.get("MPC_DEVICE") == "gpu"
DEVICE = BUILD / "device"  # stands in for CUDA's folder
HOME = {} if IS_REAL else {"CUDA_HOME": str(DEVICE)}
ALL = cover.ALL or IS_REAL
emulated = pytest.mark.skipif(IS_REAL, reason="needs the emulated device")
again = pytest.mark.skipif(not ALL, reason="in make check-all: the choice is that of the program, made for another kernel in make check")

SIZES = {
    "chars": dict(layers=2, embed=32, heads=2, seq=16),
    "gpt2": dict(layers=2, embed=40, heads=4, seq=16, vocab=250),
    "llama": dict(layers=2, embed=32, kv_heads=2, group=2, head=8, ff=56, seq=20, vocab=256),
    "bert": dict(layers=2, embed=32, heads=4, seq=16, vocab=243),
    "mixtral": dict(layers=2, embed=32, kv_heads=2, group=2, head=8, ff=24, seq=20, vocab=256, experts=4),
    "deepseek": dict(dense_layers=1, layers=1, vocab=256, seq=12, embed=16, heads=2, nope=6, turned=4, vhead=6, q_rank=8,
                     kv_rank=8, ff=24, expert_ff=8, experts=8, groups=4, choice=2, limit=2),
}
SETTINGS = {"batch": 4, "microbatch": 2, "precision": "fp32", "optimizer.lr": 1e-3, "schedule.warmup": 2}
QUIET = {"CC": f"'{ROOT}/tests/quick_cc.sh'", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def some(cases, *numbers):
    """The cases of these numbers; with ALL, and on a GPU, every one."""
    return cover.some(cases, *numbers, every=ALL)


def start(command, directory, status=0, environment=(), timeout=240):
    """Runs it to its end, which must be `status` (None: any)."""
    done = subprocess.run(list(map(str, command)), cwd=directory, capture_output=True, timeout=timeout, text=True, errors="replace",
                          env={**os.environ, **QUIET, **HOME, **dict(environment)})
    assert status in (None, done.returncode), (f"status {done.returncode}, not {status}: {shlex.join(map(str, command))}\n"
                                       f"{done.stdout}\n{done.stderr}")
    return done


def planned_bytes(trainer):
    """What mpc has said that the trainer takes of a GPU."""
    memory = json.loads((trainer.folder / "plan.json").read_text())["memory"]
    return memory["arena"] + memory["products"] + memory["messages"]


def read_log(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Trainer:
    def __init__(self, folder, target, cache):
        self.folder, self.target, self.cache = folder, target, cache

    def command(self, *options):
        return [self.folder / "trainer", *(["--kernel-cache", self.cache] if self.target == "cuda" and self.cache else []), *options]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One for all that run tests beside each other: what one of them has compiled, the others need not."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "kernels"
    folder.mkdir(exist_ok=True)
    return folder


def copy_kernels(cache, folder):
    """Those that are compiled, without what else was found."""
    for path in cache.iterdir():
        if path.suffix.startswith(".sm_") and not (folder / path.name).exists():
            shutil.copy(path, folder)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory, cache):
    """compiled(model, target, settings, options): its trainer, made once."""
    made = {}

    def compile_it(model, target, settings=(), options=(), environment=(), edit=("", "")):
        key = repr((model, target, settings, options, edit))
        if key not in made:
            folder = tmp_path_factory.mktemp("trainer")
            changed = {str(word).split("=")[0] for word in options}  # given once, here or there
            said = [f"-D{name}={value}" for name, value in SIZES[model].items() if name not in changed]
            for name, value in {**SETTINGS, **dict(settings)}.items():
                said += ["--set", f"train.{name}={value}"]
            cflags = "--cflags=-O0" + (" -rdynamic" if target == "cuda" else "")
            said += ["--target", target, *([] if "--cflags" in changed else [cflags]), *options]
            text = (ROOT / "examples" / f"{model}.mdl").read_text()
            for old, new in zip(edit[::2], edit[1::2]):
                assert old in text
                text = text.replace(old, new)
            (folder / f"{model}.mdl").write_text(text)
            start([BUILD / "mpc", "compile", f"{model}.mdl", *said, "-o", folder], folder,  # no path in its kernels: others have the same
                  environment=environment)
            made[key] = Trainer(folder, target, cache)
        return made[key]
    return compile_it


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Bytes below 240: tokens of every model."""
    path = tmp_path_factory.mktemp("data") / "data"
    path.write_bytes(bytes(b % 240 for b in (ROOT / "LICENSE").read_bytes()[:8000]))
    return path
