"""Offloaded tensors in a file: transfers of any size, from and to any address, beside what one would be in memory."""
import pathlib
import subprocess

import pytest
from conftest import RUNTIME, compile_program


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    return compile_program(tmp_path_factory.mktemp("disk"), "disk", [RUNTIME / "far/disk.c", RUNTIME / "error.c", RUNTIME / "visible.c"])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("in_memory", [False, True])
def test_transfers(disk, seed, in_memory, tmp_path):
    """tmpfs is another kind of file: it may not transfer directly."""
    folder = pathlib.Path("/dev/shm") if in_memory else tmp_path
    done = subprocess.run([disk, folder, str(seed), "150"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
