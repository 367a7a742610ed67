"""Collectives alone: every kind, type and shape, against what each is for."""
import shlex

import pytest
from conftest import EXTRA, ROOT, mpirun, start

SOURCES = ["comm", "comm_mpi", "collective", "exchange", "error", "trace", "output"]


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """program(flag, ...): collectives.c with the runtime's sources, made once a session for the same flags."""
    made = {}

    def make(*flags):
        if flags not in made:
            path = tmp_path_factory.mktemp("collectives") / "collectives"
            runtime = ROOT / "runtime"
            sources = [runtime / f"{name}.c" for name in SOURCES]
            start(["mpicc", "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                   "-Wno-unused-parameter", f"-I{runtime}", *shlex.split(EXTRA), *flags,
                   ROOT / "tests/ranks/collectives.c", *sources, "-o", path, "-lcjson", "-lm", "-lpthread"], path.parent)
            made[flags] = path
        return made[flags]
    return make


@pytest.mark.parametrize("ranks, compared", [(2, 1289), (4, 5155), (8, 7732)])
def test_collectives(program, tmp_path, ranks, compared):
    done = start(mpirun(ranks, program(), ranks), tmp_path)
    assert done.stdout == f"{compared} compared\n"


def test_messages_in_pieces(program, tmp_path):
    """MPI counts bytes in an int, so larger messages are cut; here those of more than 1000 bytes."""
    assert start(mpirun(4, program("-DPIECE=1000"), 4), tmp_path).stdout == "5155 compared\n"


def test_messages_in_rounds(program, tmp_path):
    """Large ones are exchanged bit by bit; here those of more than 192 bytes, which cuts through tensors and rows."""
    assert start(mpirun(4, program("-DROUND=192"), 4), tmp_path).stdout == "5155 compared\n"
