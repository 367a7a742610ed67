"""Builds mpc's runtime with other libraries and compilers, for other processors, and trains examples/chars.mdl with it."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("BUILD", "build")).resolve()
MPC = BUILD / "mpc"
SMALL = ["-D", "layers=2", "--set", "train.batch=4", "--cflags=-O1"]
STEPS = 4


def start(*command, status=0, cwd=ROOT, timeout=600, **environment):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", **environment})
    assert done.returncode == status, f"status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
    return done


def make(*words, **environment):
    return start("make", "-s", "-j2", *words, **environment)


def make_runtime(folder, *words, **environment):
    """The folder of a runtime as MPC_RUNTIME names one, built with these variables of make."""
    make(f"BUILD={folder}", "CFLAGS=-O1", "EXTRA_CFLAGS=-Werror", *words, folder / "libmpcrt.a", **environment)
    (folder / "include").symlink_to(ROOT / "runtime")
    return folder


def compile_chars(folder, *options, **environment):
    small = SMALL[:-1] if "--no-cc" in options else SMALL
    start(MPC, "compile", "examples/chars.mdl", "-o", folder, *small, *options, **environment)
    return folder / "trainer"


def train(folder, *command, **environment):
    """Loss and norm of the gradients at each step, as the command logs them."""
    text = folder / "text"
    text.write_bytes(b"".join(path.read_bytes() for path in sorted((ROOT / "ir").rglob("*.c"))))
    start(*command, "--data", text, "--steps", STEPS, "--log", folder / "log", "--overwrite", "--peak-flops", "1e9", **environment)
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert len(lines) == STEPS
    return [(line["loss"], line["grad_norm"]) for line in lines]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """What the trainer logs that is made with the runtime, libraries and compiler of this build."""
    folder = tmp_path_factory.mktemp("here")
    return train(folder, compile_chars(folder / "out"))
