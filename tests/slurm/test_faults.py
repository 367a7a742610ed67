"""200 steps under Slurm with ten faults at random: the weights are those of an unbroken run, bit for bit."""
import os
import random
import re
import signal
import time

import pytest
from cluster import await_that
from conftest import WORDS, mpc

STEPS, EVERY, SEED = 200, 10, int(os.environ.get("FAULTS_SEED", "1"))
WIDER = [*WORDS[:1], "-D", "embed=64", "-D", "heads=4", "-D", "ff=256", *WORDS[7:]]


class Job:
    """A run that a loop in its script starts again, and Slurm where a node is lost."""

    def __init__(self, cluster, directory, trainer, text):
        self.cluster, self.trainer, self.path = cluster, trainer, directory / "said"
        train = (f"{trainer} --data {text} --steps {STEPS} --save {cluster.disk}/a --save-every {EVERY} --keep 2 --resume "
                 "--print-every=1 --timeout=8")
        script = ("export OMP_NUM_THREADS=1 MPC_PEAK_FLOPS=1e9\n"
                  f"for attempt in $(seq 50); do srun {train} && exit 0; sleep 1; done\nexit 1\n")
        self.number = cluster.submit(directory, script, "--nodes=2", "--ntasks=4", "--time=60", "--requeue")

    def said(self):
        return self.path.read_text() if self.path.exists() else ""

    def starts(self):
        """How often all ranks have met; the job goes on, or waits to."""
        assert self.cluster.job(self.number)[0] not in ("COMPLETED", "FAILED", "CANCELLED"), self.said()[-4000:]
        return len(re.findall("^memory: ", self.said(), re.M))

    def last_step(self):
        """Of the start that runs."""
        self.starts()
        steps = re.findall("^step ([0-9]+)/", self.said().rsplit("\nmemory: ", 1)[-1], re.M)
        return int(steps[-1]) if steps else 0

    def await_error(self, what, since):
        await_that(what, 120, lambda: re.search(what, self.said()[since:]))


def kill_rank(job, number):
    rank = number.randrange(4)
    os.kill(await_that("all ranks", 60, lambda: (found := job.cluster.ranks(job.trainer)) and len(found) == 4 and found)[rank], signal.SIGKILL)
    return f"rank {rank} killed"


def kill_node(job, number):
    node = number.choice(["n0", "n1"])
    job.cluster.kill_node(node)
    await_that("the node to be down", 60, lambda: job.cluster.state_of(node).startswith("down"))
    job.cluster.start_node(node)
    return f"node {node} killed"


def fill_disk(job, number):
    ballast, since = job.cluster.disk / "ballast", len(job.said())
    with open(ballast, "wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    job.await_error("error: .*--save", since)
    ballast.unlink()
    return "disk full"


def cut_link(job, number):
    node, since = number.choice(["n0", "n1"]), len(job.said())
    job.cluster.set_link(node, "down")
    time.sleep(5)
    try:
        job.await_error("has waited|ended without a message|does not answer|error: ", since)
    finally:
        job.cluster.set_link(node, "up")
    return f"link of {node} cut"


@pytest.fixture(scope="session")
def wider(tmp_path_factory, text):
    """Its trainer, and the weights of an unbroken run."""
    folder = tmp_path_factory.mktemp("wider")
    mpc(folder, "run", *WIDER, "--mesh", "dp=4", "-o", "out", "--data", text, "--steps", STEPS, "--save", "a", "--save-every", EVERY)
    return folder / "out/trainer", (folder / "a").read_bytes()


def go_on(folder, text, checkpoint):
    """The weights after the last steps, from these."""
    folder.mkdir()
    (folder / "a").write_bytes(checkpoint)
    mpc(folder, "run", *WIDER, "--mesh", "dp=4", "--data", text, "--steps", STEPS, "--save", "a", "--load", "a")
    return (folder / "a").read_bytes()


def test_ten_faults(cluster, wider, text, tmp_path):
    trainer, unbroken = wider
    number = random.Random(SEED)
    faults = [kill_rank] * 6 + [kill_node] * 2 + [fill_disk, cut_link]
    number.shuffle(faults)
    job, begin = Job(cluster, tmp_path, trainer, text), time.monotonic()
    for fault, step in zip(faults, sorted(number.sample(range(2, STEPS - 20), len(faults)))):
        await_that(f"step {step}", 120, lambda: job.last_step() >= step)
        starts, at, seen = job.starts(), job.last_step(), time.monotonic()
        what = fault(job, number)
        await_that(f"another start after {what}", 120, lambda: job.starts() > starts)
        print(f"{what} at step {at}: again after {time.monotonic() - seen:.1f} s", flush=True)
    starts = job.starts()
    state, status, restarts = cluster.await_end(job.number)
    print(f"seed {SEED}: {state} after {time.monotonic() - begin:.0f} s, {starts} starts, {restarts} by Slurm", flush=True)
    assert (state, status) == ("COMPLETED", 0), job.said()[-4000:]
    assert starts > len(faults) and (cluster.disk / "a").read_bytes() == unbroken

    kept = (cluster.disk / f"a.step{STEPS - EVERY}").read_bytes()
    assert go_on(tmp_path / "good", text, kept) == unbroken
    wrong = bytearray(kept.replace(b'"checksum.', b'"unchecked'))
    wrong[-1] ^= 1
    assert go_on(tmp_path / "wrong", text, bytes(wrong)) != unbroken, "one wrong bit of one tensor is not noticed"
