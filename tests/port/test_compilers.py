"""Every gcc and clang of this machine compiles mpc, its runtime and a trainer without a warning: tests/deps.sh installs the
gccs of the distribution and its newest clang."""
import shutil

import pytest
from conftest import ROOT, compile_chars, make, start

VERSIONS = [f"gcc-{version}" for version in range(12, 20)] + [f"clang-{version}" for version in range(14, 30)]


@pytest.fixture(scope="session")
def openmp(tmp_path_factory):
    """A folder with gcc's omp.h, since a distribution has clang's for one of its clangs."""
    folder = tmp_path_factory.mktemp("openmp")
    (folder / "omp.h").symlink_to(start("gcc", "-print-file-name=include/omp.h").stdout.strip())
    return folder


@pytest.mark.parametrize("cc", [name for name in VERSIONS if shutil.which(name)])
def test_no_warnings(cc, openmp, tmp_path):
    objects = start("sh", "tests/objects.sh", "ir", "frontend", "passes", "codegen", "driver", BUILD=str(tmp_path)).stdout.split()
    # clang says of a loop that it has no vectors of expf in it; gcc does not know this warning.
    compiler = cc if cc.startswith("gcc") else f"{cc} -idirafter {openmp} -Wno-pass-failed"
    said = make(f"BUILD={tmp_path}", f"CC={compiler}", "CUDA_HOME=", "CFLAGS=-O0", "EXTRA_CFLAGS=-Werror", *objects, tmp_path / "libmpcrt.a")
    assert said.stderr == ""
    compile_chars(tmp_path / "out", "--no-cc")
    flags = ["-std=gnu17", "-O1", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", f"-I{ROOT}/runtime"]
    said = start(*compiler.split(), *flags, "-Wall", "-Wextra", "-Werror", "-c", tmp_path / "out/trainer.c", "-o", tmp_path / "trainer.o")
    assert said.stderr == ""
