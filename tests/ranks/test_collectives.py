"""Collectives alone: every kind, type and shape, against what each is for; and messages between two ranks."""
import os
import pathlib
import shlex

import pytest
from conftest import EXTRA, MPC, ROOT, mpirun, some, start

# Of the runtime's sources, those that a flag changes; the library has the others.
CHANGED = {"-DPIECE": ["net/comm_mpi"], "-DWINDOW": [], "-DRT_ROUND": ["cpu/collective", "cpu/exchange", "cpu/gaps"], "-DRT_UNIT": []}


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """program(transport, flag, ..., source=NAME): that with the runtime as `flag` has it, made once a session for the same words."""
    made = {}

    def make(comm, *flags, source="collectives"):
        if (source, comm, *flags) not in made:
            path = tmp_path_factory.mktemp(source) / source
            runtime = ROOT / "runtime"
            library = pathlib.Path(os.environ.get("MPC_RUNTIME", MPC.parent)) / "libmpcrt.a"
            sources = [runtime / f"{name}.c" for flag in flags for name in CHANGED[flag.split("=")[0]]]
            start([os.environ.get("MPICC", "mpicc"), "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                   "-Wno-unused-parameter", f"-I{runtime}", f"-DCOMM=rt_{comm}", *shlex.split(EXTRA), *flags,
                   ROOT / f"tests/ranks/{source}.c", *sources, library, "-o", path, "-fopenmp", "-lcjson", "-lcrypto", "-lm"], path.parent)
            made[source, comm, *flags] = path
        return made[source, comm, *flags]
    return make


COMPARED = {2: 2358, 4: 9743, 8: 14929}


def compare(program, ranks, tmp_path):
    assert start(mpirun(ranks, program, ranks), tmp_path).stdout == f"{COMPARED[ranks]} compared\n"


@pytest.mark.parametrize("comm, ranks", some([("mpi", 2), ("mpi", 8), ("tcp", 2), ("tcp", 4)], 0, 3))
def test_collectives(program, tmp_path, comm, ranks):
    compare(program(comm), ranks, tmp_path)


def test_messages_in_pieces(program, tmp_path):
    """MPI counts bytes in an int, so larger messages are cut; here those of more than 1000 bytes."""
    compare(program("mpi", "-DPIECE=1000", "-DWINDOW=INT64_MAX"), 2, tmp_path)


def test_messages_in_windows(program, tmp_path):
    """As between machines: a part of a message waits until the one before has met its receive."""
    compare(program("mpi", "-DPIECE=500", "-DWINDOW=1250"), 2, tmp_path)


@pytest.mark.parametrize("comm, ranks", some([("mpi", 4), ("tcp", 2)], 1))
def test_messages_in_rounds(program, tmp_path, comm, ranks):
    """Large ones are exchanged bit by bit; here those of more than 192 bytes, which cuts through tensors and rows."""
    compare(program(comm, "-DRT_ROUND=192"), ranks, tmp_path)


@pytest.mark.parametrize("comm, ranks", some([("mpi", 4), ("tcp", 2)], 1))
def test_zeros_are_left_out(program, tmp_path, comm, ranks):
    """Of messages of rows, here eight bytes at a time."""
    compare(program(comm, "-DRT_UNIT=8", "-DRT_ROUND=192"), ranks, tmp_path)


@pytest.mark.parametrize("comm, flags", [("tcp", ()), ("mpi", ()), ("mpi", ("-DPIECE=10000", "-DWINDOW=25000"))])
def test_messages_both_ways_at_once(program, tmp_path, comm, flags):
    """See messages.c: none waits for another that it need not wait for, and none comes before one that it has to follow."""
    assert start(mpirun(4, program(comm, *flags, source="messages")), tmp_path).stdout == "67 have come\n"
