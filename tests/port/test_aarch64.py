"""mpc and a trainer for aarch64, by a cross compiler and Debian's libraries for it, run by QEMU."""
import re

import pytest
from conftest import BUILD, MPC, ROOT, SMALL, compile_chars, make, start, train

NAME = "aarch64-linux-gnu"


@pytest.fixture(scope="module")
def sysroot():
    folder = BUILD / "aarch64"
    assert (folder / "usr/include/dnnl.h").exists(), "its libraries are fetched by make aarch64-libraries"
    return folder


@pytest.fixture(scope="module")
def built(sysroot, tmp_path_factory):
    """The folder of mpc and its runtime, and the compiler."""
    folder = tmp_path_factory.mktemp("aarch64")
    cc = f"{NAME}-gcc --sysroot={sysroot}"
    make(f"BUILD={folder}", f"CC={cc}", "MPI=no", "CUDA_HOME=", "CFLAGS=-O1", "EXTRA_CFLAGS=-Werror", "all")
    (folder / "include").symlink_to(ROOT / "runtime")
    return folder, cc


def test_a_training(built, sysroot, trained, tmp_path):
    """Sums are in another order, of vectors of four."""
    runtime, cc = built
    trainer = compile_chars(tmp_path / "out", "--march=armv8-a", CC=cc, MPC_RUNTIME=str(runtime))
    assert re.search(r"\bf(mla|mul)\s+v\d+\.4s", start(f"{NAME}-objdump", "-d", trainer).stdout), "no vectors of NEON"
    here = train(tmp_path, "qemu-aarch64", "-L", sysroot, trainer)
    assert here == [pytest.approx(step, rel=2e-6) for step in trained]


def test_the_compiler(built, sysroot, tmp_path):
    """It writes the same trainer."""
    written = []
    for command in ([MPC], ["qemu-aarch64", "-L", sysroot, built[0] / "mpc"]):
        start(*command, "compile", ROOT / "examples/chars.mdl", "-o", "out", "--no-cc", *SMALL[:-1], cwd=tmp_path)
        written.append((tmp_path / "out/trainer.c").read_text())
    assert written[0] == written[1]
