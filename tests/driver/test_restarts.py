"""mpc run after faults: it goes on from the newest checkpoint, and ends with the bits of an unbroken run."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
from conftest import MPC, QUICK, ROOT, start

MODEL = ROOT / "examples/chars.mdl"
WORDS = [MODEL, "-D", "embed=16", "-D", "heads=2", "-D", "ff=32", "--set", "train.batch=4", "--cflags=-O0"]
FOUR = ["--mesh", "dp=4"]
STEPS = 120
SAVE = ["--data", "text", "--steps", STEPS, "--save", "a", "--save-every", 20, "--keep", 3]
ENVIRONMENT = {**QUICK, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


in_check_all = pytest.mark.skipif(os.environ.get("ALL") != "1", reason="takes longer: make check-all")


def patience(seconds):
    """So long where the processors are free, longer where others want them too."""
    return seconds * max(1, os.getloadavg()[0] / os.cpu_count())


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return []


class Run:
    """One mpc run; all that it says is in `said`."""

    def __init__(self, here, *words, **environment):
        self.process = subprocess.Popen([MPC, "run", *map(str, WORDS), "--print-every=1", *map(str, words)], cwd=here, text=True,
                                        env={**os.environ, **ENVIRONMENT, "TMPDIR": str(here / "tmp"), **environment},
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said, self.here = [], here

    def await_line(self, pattern):
        for line in self.process.stdout:
            self.said.append(line)
            if re.search(pattern, line):
                return re.search(pattern, line)
        raise AssertionError(f"no {pattern} in\n{''.join(self.said)}")

    def ranks(self):
        """By rank, as they were started; the C compiler has ended by then."""
        return children(self.process.pid)

    def kill(self, rank):
        os.kill(self.ranks()[rank], signal.SIGKILL)

    def end(self, status=0):
        rest, _ = self.process.communicate(timeout=patience(120))
        self.said.append(rest)
        said = "".join(self.said)
        assert self.process.returncode == status, said
        assert not list((self.here / "tmp").iterdir()), "temporary files are left"
        return said


@pytest.fixture
def here(tmp_path):
    (tmp_path / "text").write_bytes(bytes(i * i % 200 for i in range(4000)))
    (tmp_path / "tmp").mkdir()
    return tmp_path


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory):
    """unbroken(layout): the last checkpoint of a run without faults, and its log."""
    made = {}

    def make(*layout):
        if layout not in made:
            folder = tmp_path_factory.mktemp("unbroken")
            (folder / "text").write_bytes(bytes(i * i % 200 for i in range(4000)))
            start([MPC, "run", *WORDS, *layout, *SAVE, "--log", "log"], folder, 0, **ENVIRONMENT)
            made[layout] = (folder / "a").read_bytes(), losses(folder / "log")
        return made[layout]
    return make


def losses(path):
    return [(line["step"], line["loss"]) for line in map(json.loads, path.read_text().splitlines())]


@pytest.mark.parametrize("rank", [0, 3])
def test_goes_on_after_kill(here, unbroken, rank):
    """Within five seconds, and the file is read in an instant; the log has each step once."""
    one = Run(here, *FOUR, *SAVE, "--log", "log")
    one.await_line("saved step 40 ")
    begin = time.monotonic()
    one.kill(rank)
    said = one.await_line(f"mpc run: rank {rank} was killed by signal 9 .Killed.; goes on from step ([0-9]+) in 1 s; 2 restarts left")
    one.await_line("^step")
    assert time.monotonic() - begin < patience(5)
    assert int(said[1]) >= 40 and f"loaded a: step {said[1]}, seed" in one.end()
    weights, log = unbroken(*FOUR)
    assert (here / "a").read_bytes() == weights and losses(here / "log") == log


@in_check_all
def test_one_rank_without_a_mesh(here, unbroken):
    one = Run(here, *SAVE)
    one.await_line("saved step 40 ")
    one.kill(0)
    assert "mpc run: the trainer was killed by signal 9" in one.end()
    assert (here / "a").read_bytes() == unbroken()[0]


@in_check_all
def test_under_mpirun(here):
    """The launcher ends all ranks, and mpc sees only the launcher's end."""
    one = Run(here, "--mesh", "dp=2", "--comm=mpi", *SAVE)
    one.await_line("saved step 40 ")
    os.kill(children(one.ranks()[0])[1], signal.SIGKILL)
    one.await_line("mpc run: mpirun ended with status [0-9]+; goes on from step [0-9]+ in 1 s; 2 restarts left")
    one.end()
    start([MPC, "run", *WORDS, "--mesh", "dp=2", "--comm=mpi", *SAVE[:-5], "b"], here, 0, **ENVIRONMENT)
    assert (here / "a").read_bytes() == (here / "b").read_bytes()


def tamper(path, wipes_checksums):
    """One bit of the last tensor, under all names of the file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    if wipes_checksums:
        content = content.replace(b'"checksum.', b'"unchecked')
    with open(path, "r+b") as file:
        file.write(content)


@pytest.mark.parametrize("wipes_checksums", [False, True], ids=["noticed by its checksum", "noticed by the end"])
def test_a_damaged_checkpoint_is_passed_over(here, unbroken, wipes_checksums):
    """The control: without checksums the wrong tensor is loaded, and the weights at the end differ."""
    one = Run(here, *FOUR, *SAVE)
    one.await_line("saved step 60 ")
    one.kill(1)
    one.await_line("mpc run: rank 1 was killed")
    tamper(here / "a", wipes_checksums)
    said = one.end()
    assert ("note: --resume passes over a: tensor" in said) == (not wipes_checksums), said
    assert ((here / "a").read_bytes() == unbroken(*FOUR)[0]) == (not wipes_checksums)


def test_an_error_that_passes(here, unbroken):
    """A rank ends with status 1: the data cannot be read for a moment."""
    content = (here / "text").read_bytes()
    one = Run(here, *FOUR, *SAVE)
    one.await_line("saved step 40 ")
    os.truncate(here / "text", 0)
    one.await_line("mpc run: rank [0-9] ended with status 1; goes on from step [0-9]+ in 1 s")
    (here / "text").write_bytes(content)
    one.end()
    assert (here / "a").read_bytes() == unbroken(*FOUR)[0]


@in_check_all
def test_pauses_grow_up_to_the_limit(here):
    """Without --save it begins again each time, also over the log that it has begun."""
    one = Run(here, "--mesh", "dp=2", "--data", "text", "--steps", 10**8, "--log", "log", "--restarts", 2)
    for pause, left in [(1, "1 restart"), (2, "0 restarts")]:
        one.await_line("^step")
        one.kill(1)
        one.await_line(f"mpc run: rank 1 was killed by signal 9 .*; begins again in {pause} s; {left} left")
    one.await_line("^step")
    one.kill(0)
    assert "mpc run: rank 0 was killed by signal 9 (Killed); no restarts are left\n" in one.end(128 + signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("rank", [None, 1])
def test_what_ends_by_a_signal_ends(here, number, rank):
    """To mpc, or to one rank: all save, and nothing starts again."""
    one = Run(here, "--mesh", "dp=2", *SAVE[:2], "--steps", 10**8, *SAVE[4:])
    one.await_line("saved step 20 ")
    os.kill(one.process.pid if rank is None else one.ranks()[rank], number)
    said = one.end(128 + number)
    assert "resume with --load a" in said and "mpc run:" not in said


def test_a_signal_in_a_pause(here):
    one = Run(here, "--mesh", "dp=2", *SAVE[:2], "--steps", 10**8, *SAVE[4:])
    one.await_line("saved step 20 ")
    one.kill(0)
    one.await_line("mpc run: rank 0 was killed")
    one.process.send_signal(signal.SIGINT)
    one.end(128 + signal.SIGINT)


def test_a_loss_that_is_not_finite_is_tried_twice(here):
    """The same step from the same state has the same bits: a third time would not help."""
    one = Run(here, "--mesh", "dp=2", *SAVE, "--restarts", 9, "--set", "train.optimizer.lr=1e30")
    said = one.end(3)
    assert len(re.findall("mpc run: rank [01] ended with status 3; begins again in 1 s; 8 restarts left", said)) == 1
    assert said.count("mpc run:") == 1 and len(set(re.findall("step ([0-9]+): the ", said))) == 1


@pytest.mark.parametrize("words, status", [(["--data", "none"], 1), (["--data", "text", "--steps", "many"], 2)])
def test_what_never_began_is_no_fault(here, words, status):
    assert "mpc run:" not in Run(here, "--mesh", "dp=2", *words, "--restarts", 9).end(status)


def test_requeued_by_slurm(here, unbroken):
    """Another process, that knows by a variable that the files are its own."""
    one = Run(here, *FOUR, *SAVE, "--log", "log", "--restarts", 0)
    one.await_line("saved step 40 ")
    one.process.kill()
    one.process.communicate()
    for path in (here / "tmp").glob("*"):
        subprocess.run(["rm", "-r", path], check=True)
    said = Run(here, *FOUR, *SAVE, "--log", "log", SLURM_RESTART_COUNT="1").end()
    weights, log = unbroken(*FOUR)
    assert "loaded a: step" in said and (here / "a").read_bytes() == weights and losses(here / "log") == log


def test_fewer_ranks(here, unbroken):
    """Ranks that end twice before they finish a step are taken for lost.  From then on all is as two ranks do it."""
    one = Run(here, *FOUR, "--elastic", "dp=2:dp=1", *SAVE[:2], "--steps", 10**8, *SAVE[4:], "--log", "log")
    one.await_line("saved step 40 ")
    one.kill(3)
    for _ in range(2):
        one.await_line("mpc run: rank 3 was killed")
        deadline = time.monotonic() + patience(20)
        while len(one.ranks()) < 4:
            assert time.monotonic() < deadline
        one.kill(3)
    step = int(one.await_line("goes on from step ([0-9]+) in . s, with 2 ranks .dp=2., since twice no step was finished; 0 restarts left")[1])
    shutil.copy(here / "a", here / "then")
    one.await_line(f"step {step + 20}/")
    assert len(one.ranks()) == 2
    one.process.send_signal(signal.SIGKILL)
    one.process.communicate()
    log, of_four = losses(here / "log"), unbroken(*FOUR)[1]
    common = min(len(log), len(of_four))
    assert [line[1] for line in log[:common]] == pytest.approx([line[1] for line in of_four[:common]], rel=1e-4)
    start([MPC, "run", *WORDS, "--mesh", "dp=2", "--data", "text", "--steps", step + 20, "--load", "then", "--log", "two"], here, 0,
          **ENVIRONMENT)
    assert [line for line in losses(here / "two") if line[0] > step] == log[step:step + 20]


@pytest.mark.parametrize("elastic, status, said", [
    ("dp=4", 1, "--elastic: the mesh dp=4 has 4 ranks, and that before it, dp=4, has 4: give fewer"),
    ("dp=2:dp=2", 1, "--elastic: the mesh dp=2 has 2 ranks, and that before it, dp=2, has 2: give fewer"),
    ("dp=3", 1, "train.batch"),
    ("pq=2", 1, "pq"),
])
def test_meshes_that_do_not_do(here, elastic, status, said):
    assert said in Run(here, *FOUR, *SAVE, "--elastic", elastic).end(status)


def test_one_rank_has_no_fewer(here):
    (here / "alone.mdl").write_text(re.sub(r"parallel \{[^}]*\}", "", MODEL.read_text()))
    done = start([MPC, "run", "alone.mdl", *SAVE, "--elastic", "dp=1", "--restarts", 1, "--data", "text"], here, 1, **ENVIRONMENT)
    assert "--elastic: there are no fewer ranks than the one of a model without a mesh" in done.stderr


def test_batch_of_fewer_ranks(here):
    """Unless it is set, there is a sequence for each rank: then a step would be another one."""
    (here / "any.mdl").write_text(re.sub("batch *= .*", "", MODEL.read_text()))
    done = start([MPC, "run", "any.mdl", *FOUR, "--elastic", "dp=2", "--restarts", 1, "--data", "text"], here, 1, **ENVIRONMENT)
    assert "--elastic: a step of the mesh dp=2 has" in done.stderr and "--set train.batch=" in done.stderr


@pytest.mark.parametrize("number", ["-1", "1.5", "many", "1e3", "12345678901"])
def test_number_of_restarts(here, number):
    assert "--restarts" in Run(here, *SAVE, f"--restarts={number}").end(2)


@pytest.mark.parametrize("options", [(), ("--save", "a.safetensors"), ("--save", "a.safetensors", "--save-every", 1, "--restarts", 0)])
def test_meshes_without_restarts(here, options):
    done = start([MPC, "run", MODEL, *FOUR, "--elastic", "dp=2", "--data", "text", *options], here, 2, **ENVIRONMENT)
    assert "--elastic has no effect without restarts: give --save-every or --restarts" in done.stderr
