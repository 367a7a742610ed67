"""mpc run: compiles a model, and starts its trainer, once for each rank."""
import fcntl
import json
import os
import signal
import subprocess
import time

import pytest
from conftest import MPC, QUICK, ROOT, start

MODEL = ROOT / "examples/chars.mdl"
WORDS = [MODEL, "-D", "embed=16", "-D", "heads=2", "-D", "ff=32", "--set", "train.batch=4", "--cflags=-O0"]


@pytest.fixture
def here(tmp_path):
    """A folder with text/; temporary folders are made in tmp/."""
    (tmp_path / "text").write_bytes(bytes(i * i % 200 for i in range(4000)))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def run(here, *words, status=0, **environment):
    done = start([MPC, "run", *WORDS, *words], here, status,
                 **{"TMPDIR": str(here / "tmp"), "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMPI_MCA_rmaps_base_oversubscribe": "1", **environment})
    assert not [path for path in (here / "tmp").iterdir() if path.name.startswith("mpc-run")]
    return done


def losses(path):
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("layout", [[], ["--mesh", "dp=2"], ["--mesh=tp=2"], ["--mesh", "dp=2", "--comm=mpi"]], ids=str)
def test_trains_as_the_compiled_trainer(here, layout):
    start([MPC, "compile", *WORDS, "-o", "out"], here, 0, OMP_NUM_THREADS="1")
    start(["out/trainer", "--data", "text", "--steps", "3", "--log", "a"], here, 0)
    done = run(here, *layout, "--data", "text", "--steps=3", "--log", "b")
    assert losses(here / "b") == pytest.approx(losses(here / "a"), rel=1e-5) and len(losses(here / "a")) == 3
    first = done.stdout.splitlines()[0]
    assert first.startswith(f"{MODEL}: model chars, ") and first.endswith(" a rank planned" if layout else " planned")


def test_trains_where_nobody_reads(here):
    """Were the numbers of stdout and stderr free, the files of mpc and of the ranks would get them, and what is printed."""
    words = [MPC, "run", *WORDS, "--mesh", "dp=2", "--data", "text", "--steps=3", "--log", "log", "-o", "out"]
    start(["sh", "-c", '"$@" >&- 2>&-', "sh", *words], here, 0)
    assert len(losses(here / "log")) == 3


def test_named_folder_stays(here):
    run(here, "-o", "kept", "--mesh", "dp=2", "--data", "text", "--steps", "1")
    assert {path.name for path in (here / "kept").iterdir()} == {"trainer", "trainer.c", "plan.json"}
    assert json.loads((here / "kept/plan.json").read_text())["mesh"]["ranks"] == 2


@pytest.mark.parametrize("words, status, said", [
    (["--dta", "text"], 2, "mpc run: error: unknown option --dta: did you mean --data? ('mpc help run' lists the options)"),
    (["--weight-decay=0"], 2, "mpc run: error: unknown option --weight-decay: did you mean --set train.optimizer.weight_decay=...? "
                              "('mpc help run' lists the options)"),
    (["--batch=8"], 2, "mpc run: error: unknown option --batch: did you mean --set train.batch=...? ('mpc help run' lists the options)"),
    (["--learning-rate=8"], 2, "did you mean --set train.optimizer.lr=...?"),
    (["--epochs=8"], 2, "did you mean --steps?"),
    (["--msh=dp=2"], 2, "mpc run: error: unknown option --msh: did you mean --mesh? ('mpc help run' lists the options)"),
    (["--dump-ir=x"], 2, "mpc run: error: --dump-ir is an option of 'mpc compile', 'mpc opt', not of 'mpc run'"),
    (["--ranks=2", "--data", "text"], 2, "mpc run: error: --ranks is set by mpc run for each rank: leave it out"),
    (["--rank", "0", "--data", "text"], 2, "--rank is set by mpc run for each rank"),
    (["--master=localhost:1", "--data", "text"], 2, "--master is set by mpc run for each rank"),
    (["--data", "no-file"], 1, "--data no-file"),
    (["--data", "text", "--steps"], 2, "--steps"),
    (["--mesh", "dp=2", "--data", "no-file", "--timeout", "9"], 1, "--data no-file"),
    (["--comm=tcp", "--data", "text"], 1, "--comm=tcp has no effect on one rank"),
    (["--target=cuda", "--comm=mpi"], 2, "--target=cuda always uses --comm=tcp"),
])
def test_errors(here, words, status, said):
    assert said in run(here, *words, status=status).stderr


def test_more_ranks_than_a_machine_has(refused):
    assert "the mesh has 512 ranks, and mpc run starts at most 256, all on this machine" in refused(
        "run", MODEL, "--set", "train.batch=512", "--mesh", "dp=512", status=1)


def test_help_lists_options_of_the_trainer(mpc):
    said = mpc("help", "run").stdout
    assert "Options that go to the trainer" in said and "\nCheckpoints\n" in said and "  --eval-every=N" in said and "  --mesh=AXIS=N,..." in said


def started(here, *words):
    """A run of many steps that has made the first one."""
    process = subprocess.Popen([MPC, "run", *map(str, WORDS), "--data", "text", "--steps", "100000000", "--print-every=1", *words],
                               cwd=here, env={**os.environ, **QUICK, "OMP_NUM_THREADS": "1", "TMPDIR": str(here / "tmp")},
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if line.startswith("step"):
            return process
    raise AssertionError("no step")


def ranks_of(process):
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    return [int(pid) for pid in open(children).read().split()]


def is_locked(folder):
    """Then systemd-tmpfiles leaves it alone, however long a run takes."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@pytest.mark.parametrize("layout", [[], ["--mesh", "dp=2"]], ids=str)
def test_signals_go_to_all_ranks(here, layout):
    process = started(here, *layout, "--save", "saved")
    assert len(ranks_of(process)) == (2 if layout else 1)
    assert is_locked(*(here / "tmp").glob("mpc-run*"))
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and "resume with --load saved" in said
    assert (here / "saved").exists() and not list((here / "tmp").glob("mpc-run*"))


def test_a_killed_rank_ends_the_run(here):
    process = started(here, "--mesh", "dp=2")
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL


@pytest.mark.skipif(os.environ.get("ALL") != "1", reason="takes 30 s: make check-all")
def test_a_rank_that_does_not_end_is_killed(here):
    process = started(here, "--mesh", "dp=2")
    ranks = ranks_of(process)
    os.kill(ranks[0], signal.SIGSTOP)
    os.kill(ranks[1], signal.SIGKILL)
    process.communicate(timeout=90)
    assert process.returncode == 128 + signal.SIGKILL and not os.path.exists(f"/proc/{ranks[0]}")


def test_ranks_end_with_mpc(here):
    process = started(here, "--mesh", "dp=2")
    ranks = ranks_of(process)
    process.kill()
    process.communicate(timeout=60)
    end = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") and "(trainer)" in open(f"/proc/{pid}/stat").read() for pid in ranks):
        assert time.monotonic() < end
        time.sleep(.1)
