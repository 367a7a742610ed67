"""Saves beside training: steps go on while the disk takes its time, and whatever ends the run ends it with a whole file."""
import contextlib
import os
import resource
import select
import signal
import subprocess

import pytest
from conftest import read_checkpoint, read_log


def step_of(path):
    return int(read_checkpoint(path)[0]["step"])


def kept(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.step*")}


class Slow:
    """A run that saves every ten steps on a disk that answers when it is told to; it prints each step."""

    def __init__(self, process, folder):
        self.process, self.folder, self.step = process, folder, 0

    def answer(self):
        (self.folder / "answers").touch()

    def fall_silent(self):
        (self.folder / "answers").unlink()

    def await_step(self, step):
        while self.step < step:
            self.step = int(self.process.stdout.readline().split()[1].split(b"/")[0])

    def await_save(self):
        while not self.process.stderr.readline().startswith(b"saved step"):
            pass

    def stands_still(self, seconds=0.7):
        """Does no step end for so long?"""
        return not select.select([self.process.stdout], [], [], seconds)[0]

    def end(self):
        errors = self.process.communicate(timeout=60)[1].decode()
        return self.process.returncode, errors


@pytest.fixture
def slow(trainer, elsewhere, tmp_path, data):
    started = []

    def start(*options, **environment):
        command = [trainer, "--data", "data.txt", "--print-every", 1, "--save", "a", "--save-every", 10, *options]
        env = {**os.environ, **elsewhere, "DISK_ANSWERS": "answers", "TINY_SLEEP_MS": "2", "OMP_NUM_THREADS": "2",
               **{name: str(value) for name, value in environment.items()}}
        started.append(subprocess.Popen(list(map(str, command)), cwd=tmp_path, env=env, bufsize=0, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE))
        return Slow(started[-1], tmp_path)
    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_bits_are_those_of_saves_that_training_waits_for(run, tmp_path, data):
    """Each step changes all that is saved, so a copy that a later one has touched would differ."""
    for name in ("beside", "waiting"):
        (tmp_path / name).mkdir()
        run("--data", "data.txt", "--steps", 20, "--save-every", 1, "--keep", 20, "--save", f"{name}/a",
            *(["--save-wait"] if name == "waiting" else []))
    assert len(kept(tmp_path / "beside")) == 20 and kept(tmp_path / "beside") == kept(tmp_path / "waiting")
    assert [step_of(tmp_path / f"beside/a.step{n}") for n in (1, 7, 20)] == [1, 7, 20]


def test_steps_go_on_until_the_next_save(slow, tmp_path):
    """Step 21 waits for the save of step 10, since that of step 20 does."""
    one = slow("--steps", 30, "--log", "log")
    one.await_step(20)
    assert one.stands_still() and not (tmp_path / "a").exists()
    one.answer()
    status, errors = one.end()
    assert status == 0 and [line for line in errors.splitlines() if line.startswith("saved")] == \
        [f"saved step {step} to a" for step in (10, 20, 30)]
    stood = {line["step"]: line["save_ms"] for line in read_log(tmp_path / "log")}
    assert stood[21] > 500 and stood[1] == 0


def test_what_a_step_has_changed_under_the_disk_is_written_again(slow, run, tmp_path, data):
    """The disk reads the arena of step 10 when step 20 has ended; steps do not wait for it."""
    one = slow("--steps", 30, "--keep", 3, DISK_TAKES="takes", TINY_LARGE=1)
    one.answer()
    one.await_step(20)
    (tmp_path / "takes").touch()
    assert one.end()[0] == 0
    (tmp_path / "waiting").mkdir()
    run("--data", "data.txt", "--steps", 30, "--save-every", 10, "--keep", 3, "--save", "waiting/a", "--save-wait", TINY_LARGE=1)
    assert len(kept(tmp_path)) == 3 and kept(tmp_path) == kept(tmp_path / "waiting")


def test_with_save_wait_they_do_not(slow, tmp_path):
    """The control of the test above; the time is logged with the step after."""
    one = slow("--steps", 12, "--save-wait", "--log", "log")
    one.await_step(10)
    assert one.stands_still()
    one.answer()
    assert one.end()[0] == 0
    stood = {line["step"]: line["save_ms"] for line in read_log(tmp_path / "log")}
    assert stood[11] > 500 and stood[10] == 0


def test_killed_while_it_writes(slow, run, tmp_path):
    one = slow("--steps", 1000)
    one.answer()
    one.await_save()
    one.fall_silent()
    one.await_step(22)
    one.process.send_signal(signal.SIGKILL)
    assert one.end()[0] == -signal.SIGKILL
    assert step_of(tmp_path / "a") % 10 == 0
    run("--steps", 0, "--load", "a")


def test_a_signal_while_it_writes(slow, tmp_path):
    """That save is finished, then the last step is saved."""
    one = slow("--steps", 1000)
    one.await_step(12)
    one.process.send_signal(signal.SIGTERM)
    one.answer()
    status, errors = one.end()
    step = step_of(tmp_path / "a")
    assert status == 143 and step >= 12 and f"interrupted at step {step}: resume with --load a" in errors
    assert "saved step 10 to a" in errors and f"saved step {step} to a" in errors


def test_a_full_disk_while_it_writes(slow, run, tmp_path):
    """It is told at a later step, and the file there before is intact."""
    one = slow("--steps", 100000)
    one.answer()
    one.await_save()
    resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (100000, 100000))
    status, errors = one.end()
    assert status == 1 and "error: --save a: cannot write it: File too large; the file there before is intact" in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "answers", "data.txt"]
    run("--steps", 0, "--load", "a")


def test_a_loss_that_is_not_finite_while_it_writes(slow, tmp_path):
    """The last good step is saved before the run ends."""
    one = slow("--steps", 1000, TINY_BAD_STEP=12)
    one.await_step(12)
    assert one.process.poll() is None
    one.answer()
    status, errors = one.end()
    assert status == 3 and "step 13: the loss is nan; last checkpoint: a holds step 10" in errors
    assert step_of(tmp_path / "a") == 10


def test_memory_for_the_copy_is_planned(run, tmp_path, data):
    """What is copied is what is in the file, here with the padding in memory: 4.5 bytes more for each of 8,448 rows."""
    save = ["--data", "data.txt", "--steps", 2, "--log", "log", "--overwrite", "--save", "a"]
    used = []
    for more in ([], ["--save-every", 1, "--save-wait"], ["--save-every", 1]):
        run(*save, *more)
        used.append(read_log(tmp_path / "log")[-1]["peak_bytes"])
    tensors = sum(array.nbytes for array in read_checkpoint(tmp_path / "a")[1].values())
    assert used[0] == used[1] and tensors <= used[2] - used[0] < 1.05 * tensors


def test_without_memory_for_the_copy_training_waits(run, elsewhere, tmp_path, data):
    root = tmp_path / "root"
    for path, text in {"proc/self/cgroup": "0::/a\n", "proc/meminfo": "MemAvailable: 2000 kB\n"}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    done = run("--data", "data.txt", "--steps", 2, "--save", "a", "--save-every", 1, **{**elsewhere, "ELSEWHERE": root})
    assert "note: training stops while a checkpoint is written: to write it beside training takes memory " \
        "for a copy, of 1.08 MB on a rank, and there is not so much" in done.stderr
    assert step_of(tmp_path / "a") == 2


@pytest.mark.parametrize("how", ["refused", "short"])
def test_writes_past_the_cache(killed, run, tmp_path, data, how):
    """Where the file system does not write so, or only a part, the file is the same."""
    options = ["--data", "data.txt", "--steps", 1, "--save"]
    run(*options, "a.safetensors")
    run(*options, "b.safetensors", **killed, DIRECT=how)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    with contextlib.suppress(OSError), open(tmp_path / "c", "wb", opener=lambda path, flags: os.open(path, flags | os.O_DIRECT)):
        run(*options, "d.safetensors", **killed, DIRECT="fatal", status=-signal.SIGKILL)  # there are such writes, if the file system has them


def test_a_place_on_the_disk(killed, run, refused, tmp_path, data):
    """Where the file system cannot reserve one, the file is the same; a full disk leaves what was there."""
    name = "a.safetensors"
    run("--data", "data.txt", "--steps", 1, "--save", name)
    before = (tmp_path / name).read_bytes()
    again = ["--data", "data.txt", "--steps", 1, "--save", name, "--overwrite"]
    run(*again, **killed, RESERVE="fatal", status=-signal.SIGKILL)  # it is reserved
    run(*again, **killed, RESERVE="refused")
    run(*again, "--save-every", 1, **killed, RESERVE="fatal", status=-signal.SIGKILL)  # also beside training
    assert (tmp_path / name).read_bytes() == before
    assert f"error: --save {name}: cannot write it: No space left on device; the file there before is intact" in refused(*again, **killed, FULL_AT=1)
