"""Runs mpc, and the trainers that it makes, in a directory of their own."""
import os
import pathlib
import shutil
import subprocess
import types

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MPC = (ROOT / os.environ.get("BUILD", "build") / "mpc").resolve()
RUNTIME = ROOT / "runtime"
QUICK = {"CC": f"'{ROOT}/tests/quick_cc.sh'", "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}


def start(command, directory, status, **environment):
    done = subprocess.run(list(map(str, command)), cwd=directory, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **QUICK, **environment})
    assert done.returncode == status, f"status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture
def mpc(tmp_path):
    """mpc(word, ..., status=0): with copies of this folder's models at hand; `stdin` is what it reads there."""
    for model in HERE.glob("*.mdl"):
        shutil.copy(model, tmp_path)

    def run(*words, status=0, **environment):
        return start([MPC, *words], tmp_path, status, **environment)
    run.directory = tmp_path
    return run


@pytest.fixture
def refused(mpc):
    """What mpc says when it must refuse: all of stderr, of which the first line is an error."""
    def run(*words, status=2):
        done = mpc(*words, status=status)
        assert done.stderr.splitlines()[0].startswith("mpc"), done.stderr
        assert "error: " in done.stderr.splitlines()[0], done.stderr
        return done.stderr
    run.directory = mpc.directory
    return run


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    """trainer(model, option, ..., threads=1): the folder of its trainer, made once a session for the same words."""
    made = {}

    def make(model, *options, threads=1):
        if (model, options, threads) not in made:
            folder = tmp_path_factory.mktemp("trainer")
            start([MPC, "compile", HERE / model, "-o", folder / "out", "--cflags=-O0", *options], folder, 0,
                  OMP_NUM_THREADS=str(threads))
            made[model, options, threads] = folder / "out"
        return made[model, options, threads]
    return make


@pytest.fixture
def train(trainer, tmp_path):
    """train(folder, steps, option, ...): its log, a list of dictionaries."""
    import json
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "ir").rglob("*.c")))
    (tmp_path / "text").write_bytes(bytes(byte % 250 for byte in text))

    def run(folder, steps, *options):
        start([folder / "trainer", "--data", "text", "--steps", steps, "--log", "log", "--overwrite", "--no-shuffle", *options],
              tmp_path, 0)
        return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    return run
