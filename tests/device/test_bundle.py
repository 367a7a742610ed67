"""The folder for bare GPU machines (make gpu-bundle), built for the emulated device: its own check passes, and finds what is
wrong."""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest
from conftest import ALL, DEVICE, ROOT, emulated, start
from test_start import real_cuda

pytestmark = [emulated, pytest.mark.xdist_group("bundle"),  # built once: it takes minutes
              pytest.mark.skipif(not ALL, reason="in make check-all: nothing but the bundle is in these tests alone")]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle") / "gpu-bundle"
    start([sys.executable, ROOT / "tests/gpu/bundle/build.py", folder, "--emulated", DEVICE], ROOT,
          environment={"CUDA_HOME": str(real_cuda() or ""), "CC": os.environ.get("CC", "cc")}.items())
    return folder


def check(folder, status):
    return start([sys.executable, folder / "run.py", "check"], folder, status).stdout.splitlines()


def test_check(bundle):
    lines = check(bundle, 0)
    names = [line[5:].split(":")[0] for line in lines if line.startswith("ok  ")]
    assert names == ["chars-fp32", "gpt2-bf16", "gpt2-bf16, again", "gpt2-bf16, without a graph", "gpt2-bf16, without cuDNN",
                     "gpt2-bf16, without cuDNN and the kernels for Hopper", "chars-tp=2"]  # what may hang is the last
    assert lines[-1] == "7 passed, 0 failed"
    assert "chars-fp32/trainer" in (bundle / "out/check.log").read_text()


def test_check_can_fail(bundle, tmp_path):
    folder = pathlib.Path(shutil.copytree(bundle, tmp_path / "bundle"))
    expected = folder / "check/chars-fp32/expected.jsonl"
    lines = [json.loads(line) for line in expected.read_text().splitlines()]
    lines[-1]["loss"] *= 1 + 4e-5
    expected.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "check/gpt2-bf16/trainer").write_text("#!/bin/sh\necho 'error: no GPU here'; exit 1\n")
    lines = check(folder, 1)
    assert "FAIL gpt2-bf16: error: no GPU here" in lines
    assert any(re.match(r"FAIL chars-fp32: largest error (3.9|4.0)\d of the tolerance", line) for line in lines), lines
    assert lines[-1] == "1 passed, 2 failed: chars-fp32; gpt2-bf16"


def test_late_commands_end(bundle):
    """With what they have started, and what they have said."""
    spec = importlib.util.spec_from_file_location("run", bundle / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    status, text = run.Machine("late", 60).run(["sh", "-c", "sleep 300 & echo $!; wait"], timeout=1)
    number, *said = text.split("\n")
    assert status == 124 and said[-1] == "error: it takes too long"
    state = pathlib.Path(f"/proc/{number}/stat")
    last = time.monotonic() + 30  # it is killed, and ends when it is scheduled next
    while (runs := state.exists() and state.read_text().split()[2] not in "ZX") and time.monotonic() < last:
        time.sleep(0.01)
    assert not runs


def test_what_is_missing_is_said(bundle, tmp_path):
    """On a machine without a GPU each command ends with a reason."""
    said = {"bench": "there is no GPU on this machine", "probe": "probe.c:" if (bundle / "probe").exists() else "No such file"}
    for command, text in said.items():
        done = subprocess.run([sys.executable, bundle / "run.py", command], capture_output=True, text=True)
        assert done.returncode and text in done.stdout, done.stdout
