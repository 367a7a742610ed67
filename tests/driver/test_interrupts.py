"""What is left of a command that is told to end while it works: nothing that is not finished."""
import os
import pathlib
import signal
import subprocess
import time

import pytest
from conftest import MPC, ROOT

MODEL = ROOT / "examples/chars.mdl"
SLOW = "#!/bin/sh\n[ \"$1\" != --version ] || exec cc --version\necho $$ >>{}/started\nexec sleep 60\n"


@pytest.fixture
def interrupted(tmp_path):
    """interrupted(signal, command, option, ...): its status, told to end while the C compiler runs."""
    compiler = tmp_path / "compiler"
    compiler.write_text(SLOW.format(tmp_path))
    compiler.chmod(0o755)
    for folder in ("tmp", "cache"):
        (tmp_path / folder).mkdir()

    def run(number, *words):
        process = subprocess.Popen([MPC, *map(str, words), "-D", "layers=1", f"--cc={compiler}"], cwd=tmp_path, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "MPC_CACHE": str(tmp_path / "cache")},
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
        while not (tmp_path / "started").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        process.send_signal(number)
        assert process.communicate(timeout=30)[1] == ""
        return process.returncode
    yield run
    for compiling in map(int, (tmp_path / "started").read_text().split()):
        assert not pathlib.Path(f"/proc/{compiling}").exists(), "the compiler goes on"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_compile(interrupted, tmp_path, number):
    assert interrupted(number, "compile", MODEL, "-o", "out") == -number
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"trainer.c", "plan.json"}


def test_run(interrupted, tmp_path):
    text = ROOT / "README.md"
    assert interrupted(signal.SIGINT, "run", MODEL, "--data", text, "--data-format", "bytes") == -signal.SIGINT
    assert not any((tmp_path / "tmp").iterdir())
