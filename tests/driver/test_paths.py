"""Paths of any bytes: what mpc and its trainers write about them is UTF-8, and JSON where it should be."""
import json
import os
import pathlib
import resource
import subprocess

import pytest

from conftest import MPC

NAME = b"caf\xe9.mdl"  # Latin-1


@pytest.fixture
def model(mpc):
    """tiny.mdl under a name that is no UTF-8, in a folder of which the same is true."""
    folder = os.fsencode(mpc.directory) + b"/\xff"
    os.mkdir(folder)
    (mpc.directory / "tiny.mdl").rename(os.fsdecode(folder + b"/" + NAME))
    return os.fsdecode(folder + b"/" + NAME)


def text_of(path):
    return pathlib.Path(path).read_bytes().decode()


def test_reports(mpc, model):
    files = "costs.json", "graph.json", "page.html", "step.svg", "memory.svg"
    done = mpc("report", model, "--json", "--machine", "h100", "--costs", files[0], "--model-explorer", files[1],
               "--html", files[2], "--svg", files[3], "--memory-svg", files[4])
    report = json.loads(done.stdout)
    assert report["source"].endswith(r"/\xFF/caf\xE9.mdl")
    assert r'"caf\\xE9.mdl:' in done.stdout
    for name in files:
        text = text_of(mpc.directory / name)
        assert "caf" in text
        if name.endswith(".json"):
            json.loads(text)


def test_plan(mpc, model):
    plan = json.loads(mpc("plan", model, "--ranks", "2", "--machine", "h100", "--json", "--html", "plan.html").stdout)
    assert plan["model"].endswith(r"/\xFF/caf\xE9.mdl")
    text_of(mpc.directory / "plan.html")


def test_trainer(mpc, model):
    mpc("compile", model, "-o", "out", "--cflags=-O0")
    plan = json.loads(text_of(mpc.directory / "out" / "plan.json"))
    assert plan["model"]["source"].endswith(r"/\xFF/caf\xE9.mdl")
    text_of(mpc.directory / "out" / "trainer.c")



@pytest.mark.parametrize("words", [("plot", "-o", "p.html"), ("trace", "merge", "-o", "t.json")])
def test_endless(mpc, words):
    """A line without end, as of a device, must not fill the memory."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
    done = subprocess.run([MPC, *words[:-2], "/dev/zero", *words[-2:]], cwd=mpc.directory, capture_output=True,
                          text=True, timeout=60, preexec_fn=limit)
    assert (done.returncode, done.stderr[:23]) == (1, "mpc: error: /dev/zero:1")
