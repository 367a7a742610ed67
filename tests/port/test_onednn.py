"""oneDNN 3 beside the distribution's 2: the same products, and the same digits of a training."""
import pytest
from conftest import BUILD, compile_chars, make_runtime, start, train


@pytest.fixture(scope="module")
def onednn3():
    """The environment in which compiler, linker and loader find it first."""
    folder = BUILD / "onednn3"
    assert (folder / "include/dnnl.h").exists(), "it is installed by make onednn3"
    return {"CPATH": f"{folder}/include", "LIBRARY_PATH": f"{folder}/lib", "LD_LIBRARY_PATH": f"{folder}/lib"}


def test_products(onednn3):
    said = start("sh", "tests/kernels/run.sh", "product", **onednn3).stdout
    assert said.count(", 0 failures") == 2, said


def test_a_training(onednn3, trained, tmp_path):
    runtime = make_runtime(tmp_path / "runtime", **onednn3)
    trainer = compile_chars(tmp_path / "out", MPC_RUNTIME=str(runtime), **onednn3)
    assert "libdnnl.so.3" in start("ldd", trainer, **onednn3).stdout
    assert train(tmp_path, trainer, **onednn3) == trained
