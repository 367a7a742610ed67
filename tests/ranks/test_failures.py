"""A rank that stops, dies, is told to end, or finds what others do not: all ranks end, and say why once."""
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from conftest import error_of, layout_of, mpirun, patience, quiet, read_log, start

SEQ = " else seq"


@pytest.fixture(scope="session")
def four(compiled):
    return compiled("llama", layout_of("llama", dict(dp=2, tp=2), SEQ, zero=1), (), {"microbatch": 4})


@pytest.mark.parametrize("rank", [1, 2])
def test_silence(four, running, rank):
    """A rank that hangs is named, with the collective that waits for it, its op and its line."""
    one = running(four, "--timeout", 1)
    begin = time.monotonic()
    one.signal(rank, signal.SIGSTOP)
    status, _, stderr = one.end()
    message = error_of(stderr)
    assert status == 1 and 1 <= time.monotonic() - begin < 40
    silent = re.search(r"has waited [1-9][0-9]* s in (.*) for (.*), which does not answer: check whether", message)
    assert silent[2] == f"rank {rank} (dp {rank // 2}, tp {rank % 2})", message
    waiting = re.match(r"error: (?:rank \d: )?rank (\d) \(dp \d, tp \d\) has waited", message)
    assert waiting and int(waiting[1]) != rank, message
    assert re.match(r"(all_reduce|all_gather|reduce_scatter|all_to_all) over (dp|tp|dp, tp) at '.+' \(|the meeting of all "
                    r"ranks between two steps", silent[1]), message


def test_silence_names_the_line(compiled, running):
    """Over cp alone every large collective is of attention, in each layer: its line is known."""
    trainer = compiled("llama", layout_of("llama", dict(cp=2)), {"seq": 256})
    line = next(number for number, text in enumerate(trainer.source.read_text().splitlines(), 1) if "attend(" in text)
    for _ in range(20):  # most of the time goes into attention, and the rest into few others
        one = running(trainer, "--timeout", 1)
        one.signal(1, signal.SIGSTOP)
        message = error_of(one.end()[2])
        if f"'h.attn.y' (model.mdl:{line}:9; " in message:
            assert re.search(r"in all_gather over cp at .* for rank 1 \(cp 1\), which does not answer: check", message)
            return
    pytest.fail(message)


@pytest.mark.parametrize("rank", [0, 3])
def test_killed(four, running, tmp_path, rank):
    one = running(four, "--save", "a", "--save-every", 2)
    one.await_file("a")
    one.signal(rank, signal.SIGKILL)
    status, _, stderr = one.end(20)
    assert status != 0 and "signal 9" in stderr
    start(four.command("--steps", 0, "--load", "a"), tmp_path)


@pytest.mark.parametrize("rank", [0, 3])
def test_signal_to_one_rank(four, running, train, tmp_path, rank):
    """All finish the same step and save it; going on from there equals an unbroken run."""
    one = running(four, "--save", "a", "--log", "log")
    one.signal(rank, signal.SIGTERM)
    status, _, stderr = one.end()
    assert status == 128 + signal.SIGTERM and "error: " not in stderr
    step = int(re.search(r"interrupted at step (\d+): resume with --load a", stderr)[1])
    assert read_log(tmp_path / "log")[-1]["step"] == step
    steps = step + 2
    resumed = train(four, steps, "--load", "a")[-2:]
    unbroken = train(four, steps)[-2:]
    assert [line["loss"] for line in resumed] == [line["loss"] for line in unbroken]


@pytest.mark.parametrize("rank", [0, 3])
def test_signal_to_one_rank_in_an_evaluation(four, running, text, tmp_path, rank):
    """Of minutes: all end it after the same batch, and the step before it is saved, without a loss of half of it."""
    (tmp_path / "long").write_bytes(text.read_bytes() * 400)
    one = running(four, "--save", "a", "--log", "log", "--eval-data", "long", "--eval-every", 4, "--eval-batches", 10**6)
    time.sleep(patience(1))  # the fourth step takes milliseconds
    one.signal(rank, signal.SIGTERM)
    status, stdout, stderr = one.end(30)
    assert status == 128 + signal.SIGTERM and "error: " not in stderr and "eval loss" not in stdout
    assert "the evaluation of step 4 was interrupted: it has no loss" in stderr
    assert "interrupted at step 4: resume with --load a" in stderr
    assert read_log(tmp_path / "log")[-1]["step"] == 4 and "eval_loss" not in read_log(tmp_path / "log")[-1]


def test_signal_to_the_launcher(four, running, tmp_path, monkeypatch):
    """mpirun tells all ranks, and gives them some seconds, as docs/trainer.md says; by default one."""
    monkeypatch.setenv("OMPI_MCA_odls_base_sigkill_timeout", "5")
    one = running(four, "--save", "a")
    one.launcher.send_signal(signal.SIGTERM)
    status, _, stderr = one.end()
    assert status != 0 and re.search(r"interrupted at step \d+: resume with --load a", stderr)
    start(four.command("--steps", 0, "--load", "a"), tmp_path)


def test_signals_while_products_are_computed(compiled, running, train, tmp_path, monkeypatch):
    """A handler's frame lies where the stack pointer of what it interrupts is, and in products of oneDNN that is within the
    heap: hundreds of them in one step, and it ends as an unbroken one, bit for bit."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "ALL")  # not all products do
    large = compiled("chars", (), dict(embed=128, seq=128), dict(batch=16, microbatch=16))
    one = running(large, "--save", "a")
    end = time.monotonic() + 0.8  # later ones end it at once
    while one.launcher.poll() is None and time.monotonic() < end:
        one.launcher.send_signal(signal.SIGTERM)
    status, _, stderr = one.end()
    assert status == 128 + signal.SIGTERM, stderr
    step = int(re.search(r"interrupted at step (\d+): resume with --load a", stderr)[1])
    train(large, step, "--save", "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("sequence, rank", [(1, 0), (5, 1)])
def test_bad_token_of_one_rank(compiled, refused, tmp_path, sequence, rank):
    """Of the eight sequences of the first step each of two ranks reads four."""
    tokens = np.full(1000, 97, np.uint8)
    tokens[16 * sequence + 3] = 253
    tokens.tofile(tmp_path / "bad")
    trainer = compiled("gpt2", layout_of("gpt2", dict(dp=2)), (), {"microbatch": 4})
    message = refused(trainer, "--data", "bad", "--data-format", "bytes", "--no-shuffle", "--steps", 3)
    said = f"--data bad: token 253 at position {16 * sequence + 3} is not in the vocabulary of 250"
    assert message.startswith(f"error: rank 1: {said}" if rank else f"error: {said}")


def test_data_that_are_missing(four, refused):
    assert "--data none: cannot open it" in refused(four, "--data", "none", "--steps", 3)


def test_error_leaves_no_mark(four, refused, text, tmp_path):
    """Of a checkpoint that was never written, not even the file that locks its name."""
    message = refused(four, "--data", text, "--data-format", "bytes", "--steps", 3, "--save", "a", "--log", "none/log")
    assert "--log none/log: cannot write it" in message
    assert not list(tmp_path.glob("a*"))


def test_divergence(compiled, refused, text, tmp_path):
    layout = layout_of("llama", dict(dp=2, tp=2), SEQ, zero=1)
    trainer = compiled("llama", layout, (), {"microbatch": 4, "optimizer.lr": 1e30})
    message = refused(trainer, "--data", text, "--data-format", "bytes", "--steps", 9, "--save", "a", status=3)
    assert re.match(r"error: step \d: the (loss|gradient norm) is (-?nan|inf); last checkpoint: none", message)
    assert not (tmp_path / "a").exists()


def test_data_cut_short_for_a_rank(four, tmp_path):
    """All ranks end after the same step, and save it."""
    for name in ("whole", "cut"):
        np.random.default_rng(1).integers(0, 256, 1 << 18).astype("u1").tofile(tmp_path / name)
    data = 'data=whole; [ "$OMPI_COMM_WORLD_RANK" = 2 ] && data=cut; '
    command = mpirun(4, "sh", "-c", data + 'exec "$@" --data $data', "sh", four.program, "--data-format", "bytes", "--steps", 100000,
                     "--print-every", 1, "--save", "a")
    with subprocess.Popen(list(map(str, command)), cwd=tmp_path, env={**os.environ, **quiet()}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        os.truncate(tmp_path / "cut", 0)
        errors = process.communicate(timeout=patience(60))[1]
    cut = re.search(r"error: rank 2: --data cut: a page of it cannot be read: .*; ended at step (\d+): resume with --load a, or add --resume\n", errors)
    assert process.returncode == 1 and cut, errors
    step = cut.group(1)
    assert f"saved step {step} to a" in errors
    start(four.command("--load", "a", "--steps", 0), tmp_path)
