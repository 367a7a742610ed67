"""A cluster for all tests, trainers of four ranks, and what they come to without faults."""
import os
import pathlib
import subprocess

import pytest
from cluster import Cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
MPC = (ROOT / os.environ.get("BUILD", "build") / "mpc").resolve()
WORDS = [ROOT / "examples/chars.mdl", "-D", "embed=16", "-D", "heads=2", "-D", "ff=32", "--set", "train.batch=4", "--cflags=-O0"]
STEPS = 200


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        made.open()
        yield made
    finally:
        made.close()


def mpc(folder, *words):
    subprocess.run([MPC, *map(str, words)], cwd=folder, check=True, capture_output=True,
                   env={**os.environ, "CC": f"'{ROOT}/tests/quick_cc.sh'", "OMP_NUM_THREADS": "1", "MPC_PEAK_FLOPS": "1e9"})


@pytest.fixture(scope="session")
def trainers(tmp_path_factory):
    """The trainer of four ranks, by its transport."""
    folder = tmp_path_factory.mktemp("trainers")
    for comm in ("tcp", "mpi"):
        mpc(folder, "compile", *WORDS, "--mesh", "dp=4", f"--comm={comm}", "-o", comm)
    return {comm: folder / comm / "trainer" for comm in ("tcp", "mpi")}


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "text"
    path.write_bytes(bytes(i * i % 200 for i in range(4000)))
    return path


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory, text):
    """The weights after STEPS steps, without Slurm and without faults."""
    folder = tmp_path_factory.mktemp("unbroken")
    mpc(folder, "run", *WORDS, "--mesh", "dp=4", "--data", text, "--steps", STEPS, "--save", "a", "--save-every", 10)
    return (folder / "a").read_bytes()
