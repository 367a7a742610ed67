"""MPI is optional, and any will do: MPICH beside OpenMPI, and TCP alone."""
import os
import subprocess

import pytest
from conftest import compile_chars, make, make_runtime, start, train

OPENMPI = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "2"]
MPICH = ["mpirun.mpich", "-n", "2"]
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    return make_runtime(tmp_path_factory.mktemp("mpich") / "runtime", "MPICC=mpicc.mpich")


@pytest.fixture(scope="module")
def mpich(runtime):
    """A trainer of two ranks."""
    return compile_chars(runtime.parent / "out", "--mesh=dp=2", MPC_RUNTIME=str(runtime))


def test_a_training_under_mpich(mpich, tmp_path):
    """The same digits as of ranks over TCP, which the tests of ranks compare with OpenMPI's."""
    assert "libmpich" in start("ldd", mpich).stdout
    tcp = compile_chars(tmp_path / "out", "--mesh=dp=2", "--comm=tcp")
    assert train(tmp_path, *MPICH, mpich) == train(tmp_path, *OPENMPI, tcp, **ROOT_MAY)


def test_collectives_under_mpich(runtime):
    said = start("sh", "tests/pytest.sh", "-n", "0", "tests/ranks/test_collectives.py", "-k", "mpi-2 or pieces",
                 MPICC="mpicc.mpich", MPIRUN="mpirun.mpich", MPC_RUNTIME=str(runtime)).stdout
    assert "2 passed" in said, said


def test_a_launcher_of_another_mpi(mpich, tmp_path):
    """Each process would train alone."""
    done = subprocess.run([*OPENMPI, mpich, "--steps", "0"], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **ROOT_MAY})
    assert "but 1 runs (OMPI_COMM_WORLD_SIZE is 2, so a launcher of another MPI started it?): start it with" in done.stderr
    assert done.returncode


def test_where_there_is_no_mpicc(trained, tmp_path):
    runtime = make_runtime(tmp_path / "runtime", "MPICC=no-mpicc")
    assert not (runtime / "runtime/net/comm_mpi.o").exists()
    trainer = compile_chars(tmp_path / "out", MPC_RUNTIME=str(runtime))
    assert train(tmp_path, trainer) == trained


def test_make_says_what_is_missing(tmp_path):
    note = "without MPI: trainers of several ranks need --comm=tcp"
    assert note in start("make", "-n", f"BUILD={tmp_path}", "MPICC=no-mpicc").stdout
    assert note not in start("make", "-n", f"BUILD={tmp_path}", "MPI=no").stdout
    failed = start("make", f"BUILD={tmp_path}", "MPI=yes", "MPICC=no-mpicc", f"{tmp_path}/mpi.flags", status=2).stderr
    assert "error: 'no-mpicc' does not tell MPI's flags: install an MPI, name its compiler (make MPICC=...)" in failed


def test_an_mpi_stays_until_another_is_named(tmp_path):
    def flags(*words):
        make(f"BUILD={tmp_path}", *words, tmp_path / "mpi.flags")
        return (tmp_path / "mpi.flags").read_text()
    assert "-lmpich" in flags("MPICC=mpicc.mpich")
    assert "-lmpich" in flags()
    assert flags("MPI=no") == "\n" == flags()
    assert "-lmpi" in flags("MPI=yes")
