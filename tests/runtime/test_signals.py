"""Signals that ask for the end, and a reader who leaves."""
import fcntl
import os
import signal
import subprocess
import termios
import time

import numpy as np
import pytest
from conftest import read_checkpoint, read_log


@pytest.fixture(autouse=True)
def signals_are_heard():
    """A trainer respects signals that its parent ignores, and under nohup the parent of the tests ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def running(trainer, tmp_path, data):
    """A run that goes on until it is told otherwise, some steps in."""
    def start(*options):
        process = subprocess.Popen([trainer, "--data", "data.txt", "--steps", "1000000", "--print-every", "1", *options],
                                   cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "TINY_SLEEP_MS": "5"})
        for _ in range(3):
            process.stdout.readline()
        return process
    return start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
                                    signal.SIGXCPU])
def test_signal_saves_and_ends(run, running, tmp_path, data, number):
    with running("--save", "a", "--log", "log") as process:
        process.send_signal(number)
        errors = process.communicate(timeout=30)[1]
    assert process.returncode == 128 + number
    step = int(read_checkpoint(tmp_path / "a")[0]["step"])
    assert step >= 3 and f"interrupted at step {step}: resume with --load a" in errors
    assert read_log(tmp_path / "log")[-1]["step"] == step
    run("--data", "data.txt", "--steps", step + 2, "--load", "a", "--save", "a")
    run("--data", "data.txt", "--steps", step + 2, "--save", "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_signal_while_nobody_reads(running, tmp_path):
    """A launcher that ends its ranks reads no more of them: a trainer that waits for it to read still saves."""
    with running("--save", "a") as process:
        pipe = process.stdout.fileno()
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        waiting = -1
        while waiting != (waiting := waiting_in(pipe)):
            time.sleep(1)  # of 200 steps, were it not stuck
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
        assert "interrupted at step" in process.stderr.read()
    assert read_checkpoint(tmp_path / "a")


def waiting_in(pipe):
    """How many bytes nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), "little")


def test_signal_without_save(running, tmp_path):
    with running() as process:
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=30)[1]
    assert process.returncode == 130 and "nothing is saved (no --save)" in errors
    assert [p.name for p in tmp_path.iterdir()] == ["data.txt"]


def test_signal_writes_the_trace_there_is(running, tmp_path):
    with running("--trace", "trace.json", "--trace-steps", "1000") as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 143 and (tmp_path / "trace.json").read_text().endswith("]}\n")


@pytest.fixture
def step_ms():
    return 900


@pytest.fixture
def in_first_step(trainer, tmp_path, data, step_ms):
    """A run in the middle of its first step."""
    process = subprocess.Popen([trainer, "--data", "data.txt", "--steps", "9", "--save", "a"], cwd=tmp_path,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TINY_SLEEP_MS": str(step_ms), "TINY_DUMP": "dump"})
    while not (tmp_path / "dump").exists():
        time.sleep(0.01)
    with process:
        yield process


def test_the_step_that_runs_is_finished(in_first_step, tmp_path):
    in_first_step.send_signal(signal.SIGINT)
    in_first_step.communicate(timeout=30)
    assert in_first_step.returncode == 130 and read_checkpoint(tmp_path / "a")[0]["step"] == "1"


def test_a_signal_that_comes_twice_at_one_time_is_one(in_first_step, tmp_path):
    """As `timeout` and launchers send it: to the process and to its group."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGCONT, signal.SIGINT):
        in_first_step.send_signal(number)
        time.sleep(0.05)
    in_first_step.communicate(timeout=30)
    assert in_first_step.returncode == 143 and read_checkpoint(tmp_path / "a")[0]["step"] == "1"


@pytest.mark.parametrize("step_ms", [2500])
def test_second_signal_ends_at_once(in_first_step, tmp_path):
    in_first_step.send_signal(signal.SIGINT)
    time.sleep(1.2)
    in_first_step.send_signal(signal.SIGINT)
    in_first_step.communicate(timeout=30)
    assert in_first_step.returncode == -signal.SIGINT and not (tmp_path / "a").exists()


def test_nohup_is_heeded(trainer, tmp_path, data):
    start = ["nohup", trainer, "--data", "data.txt", "--steps", "1000000", "--print-every", "1", "--save", "a"]
    with subprocess.Popen(start, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env={**os.environ, "TINY_SLEEP_MS": "5"}) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        for _ in range(20):
            assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 143


def test_a_reader_who_leaves_ends_the_run_and_it_is_saved(running, tmp_path):
    """trainer | head"""
    with running("--save", "a") as process:
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(30) == 128 + signal.SIGPIPE
    step = int(read_checkpoint(tmp_path / "a")[0]["step"])
    assert step >= 3 and f"interrupted at step {step}: resume with --load a" in errors


def test_a_full_disk_behind_stdout_is_told(trainer, tmp_path, data):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([trainer, "--data", "data.txt", "--steps", "3", "--save", "a"], cwd=tmp_path, stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "error: cannot write to stdout; the output is incomplete" in done.stderr
    assert read_checkpoint(tmp_path / "a")[0]["step"] == "3"


# --- Evaluation, and what comes before the first step -----------------------------------------------------------------

@pytest.fixture
def in_evaluation(trainer, tmp_path, data):
    """in_evaluation(option, ...): a run some calls into an evaluation of 50,000, and how many calls it has made."""
    calls = tmp_path / "calls"
    np.resize(data, 1000000).tofile(tmp_path / "long.txt")

    def start(*options):
        process = subprocess.Popen([trainer, "--eval-data", "long.txt", "--eval-batches", "25000", *options], cwd=tmp_path,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "TINY_EVAL_MS": "2", "TINY_EVAL_CALLS": str(calls)})
        while not calls.exists() or calls.stat().st_size < 3:
            time.sleep(0.01)
        return process, lambda: calls.stat().st_size
    return start


def test_a_signal_ends_an_evaluation(in_evaluation, run, tmp_path):
    """The step done is saved and logged, without the loss of half an evaluation."""
    process, calls = in_evaluation("--data", "data.txt", "--steps", "9", "--eval-every", "2", "--save", "a", "--log", "log")
    with process:
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=30)[1]
    assert process.returncode == 143 and calls() < 10000
    assert read_checkpoint(tmp_path / "a")[0]["step"] == "2" and "interrupted at step 2: resume with --load a" in errors
    assert "the evaluation of step 2 was interrupted: it has no loss" in errors
    assert [(line["step"], "eval_loss" in line) for line in read_log(tmp_path / "log")] == [(1, False), (2, False)]
    run("--data", "data.txt", "--steps", 5, "--load", "a", "--save", "a")
    run("--data", "data.txt", "--steps", 5, "--save", "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_signal_ends_an_evaluation_without_training(in_evaluation):
    process, calls = in_evaluation("--steps", "0", "--sample", "20")
    with process:
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and calls() < 10000 and said == ""
    assert "interrupted at step 0: nothing is saved (no --save)" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_before_the_first_step_ends_the_run_at_once(trainer, tmp_path, data, number):
    """Whatever it is about to do, as loading or tuning, which takes minutes; it leaves nothing behind."""
    process = subprocess.Popen([trainer, "--data", "data.txt", "--steps", "9", "--save", "a"], cwd=tmp_path,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TINY_CREATED": "created", "TINY_CREATE_MS": "60000"})
    while not (tmp_path / "created").exists():
        time.sleep(0.01)
    with process:
        process.send_signal(number)
        errors = process.communicate(timeout=30)[1]
    assert process.returncode == 128 + number and errors.endswith("interrupted before the first step: nothing is saved\n")
    assert {path.name for path in tmp_path.iterdir()} == {"data.txt", "created"}
