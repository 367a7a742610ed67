"""Jobs of four ranks on two nodes: started, preempted, requeued, and resumed with the bits of an unbroken run."""
import os
import re
import signal

import pytest
from cluster import await_that
from conftest import MPC, ROOT, STEPS, WORDS

FOUR = ["--nodes=2", "--ntasks=4", "--time=60"]
ENVIRONMENT = "export OMP_NUM_THREADS=1 MPC_PEAK_FLOPS=1e9\n"


def command(trainer, text, steps=STEPS):
    return f"{trainer} --data {text} --steps {steps} --save a --save-every 10 --keep 2 --resume --print-every=1 --timeout=60"


def said(directory):
    path = directory / "said"
    return path.read_text() if path.exists() else ""


def await_said(directory, pattern, seconds=120):
    return await_that(f"{pattern} in {directory}/said", seconds, lambda: re.search(pattern, said(directory)))


@pytest.mark.parametrize("comm", ["tcp", "mpi"])
def test_a_job(cluster, trainers, text, unbroken, tmp_path, comm):
    """Rank 0 is on the first node of the step, whose name all look up; MPI is started by PMIx."""
    plugin = "--mpi=pmix " if comm == "mpi" else ""
    job = cluster.submit(tmp_path, f"{ENVIRONMENT}srun {plugin}{command(trainers[comm], text)} --print-mesh\n", *FOUR)
    assert cluster.await_end(job) == ("COMPLETED", 0, 0), said(tmp_path)
    assert (tmp_path / "a").read_bytes() == unbroken
    assert len(re.findall("^ *[0-3] ", said(tmp_path), re.M)) >= 4


def test_preempted(cluster, trainers, text, unbroken, tmp_path):
    """A job that is more important takes both nodes: the first one is put back, starts again, and goes on."""
    job = cluster.submit(tmp_path, f"{ENVIRONMENT}srun {command(trainers['tcp'], text, 10**8)}\n", *FOUR, "--requeue")
    await_said(tmp_path, "saved step 20 ")
    other = tmp_path / "other"
    other.mkdir()
    important = cluster.submit(other, "sleep 2\n", "--partition=high", "--nodes=2", "--ntasks=4")
    assert cluster.await_end(important)[0] == "COMPLETED"
    await_that("another start", 60, lambda: cluster.job(job)[0] == "RUNNING")
    assert int(await_said(tmp_path, "loaded a: step ([0-9]+)")[1]) >= 20 and cluster.job(job)[2] == 1
    cluster.run("scancel", job)
    assert cluster.await_end(job)[0] == "CANCELLED"


def test_signal_before_the_limit(cluster, trainers, text, tmp_path):
    """--signal tells the ranks: they save, and the script puts the job back into the queue, where it goes on."""
    script = (f"{ENVIRONMENT}[ \"${{SLURM_RESTART_COUNT:-0}}\" = 0 ] || steps=$(cat steps)\n"
              f"srun {command(trainers['tcp'], text, '${steps:-100000000}')}\n"
              "status=$?\n[ $status != 138 ] || scontrol requeue $SLURM_JOB_ID\nexit $status\n")
    job = cluster.submit(tmp_path, script, "--nodes=2", "--ntasks=4", "--time=2", "--signal=USR1@100", "--requeue")
    step = int(await_said(tmp_path, "interrupted at step ([0-9]+): resume with --load a", 200)[1])
    (tmp_path / "steps").write_text(str(step + 20))
    assert cluster.await_end(job) == ("COMPLETED", 0, 1), said(tmp_path)
    assert f"loaded a: step {step}," in said(tmp_path) and f"saved step {step + 20} " in said(tmp_path)


def test_a_rank_is_killed(cluster, trainers, text, unbroken, tmp_path):
    """The others end, and with them the step; the script tries again, as often as it likes."""
    script = f"{ENVIRONMENT}for attempt in 1 2 3; do srun {command(trainers['tcp'], text)} && exit 0; done; exit 1\n"
    job = cluster.submit(tmp_path, script, *FOUR)
    await_said(tmp_path, "saved step 20 ")
    os.kill(cluster.ranks(trainers["tcp"])[2], signal.SIGKILL)
    assert cluster.await_end(job) == ("COMPLETED", 0, 0), said(tmp_path)
    assert "rank 2 (" in said(tmp_path) and "ended without a message" in said(tmp_path)
    assert (tmp_path / "a").read_bytes() == unbroken


def test_a_node_is_lost(cluster, trainers, text, unbroken, tmp_path):
    """Slurm notices after SlurmdTimeout, and starts the job again when there are two nodes."""
    job = cluster.submit(tmp_path, f"{ENVIRONMENT}srun {command(trainers['tcp'], text)}\n", *FOUR, "--requeue")
    await_said(tmp_path, "saved step 20 ")
    cluster.kill_node("n1")
    await_that("the node to be down", 60, lambda: cluster.state_of("n1").startswith("down"))
    cluster.start_node("n1")
    state, status, restarts = cluster.await_end(job)
    assert (state, status) == ("COMPLETED", 0) and restarts >= 1, said(tmp_path)
    assert (tmp_path / "a").read_bytes() == unbroken


def test_mpc_run_in_a_job(cluster, text, unbroken, tmp_path):
    """It is told by SLURM_RESTART_COUNT that the files are its own."""
    words = " ".join(map(str, [MPC, "run", *WORDS, "--mesh", "dp=4", "--data", text, "--steps", STEPS, "--save", "a", "--save-every", 10]))
    script = f"export CC=\"'{ROOT}/tests/quick_cc.sh'\" OMP_NUM_THREADS=1 MPC_PEAK_FLOPS=1e9\nexec {words} --log log\n"
    job = cluster.submit(tmp_path, script, "--nodes=1", "--ntasks=1", "--cpus-per-task=2", "--requeue")
    await_said(tmp_path, "saved step 20 ")
    cluster.run("scontrol", "requeue", job)
    assert cluster.await_end(job) == ("COMPLETED", 0, 1), said(tmp_path)
    assert "loaded a: step" in said(tmp_path) and (tmp_path / "a").read_bytes() == unbroken
