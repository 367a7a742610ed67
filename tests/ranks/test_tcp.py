"""Ranks without MPI (--comm=tcp): started by anything, they find each other, or say why not; none outlives the others."""
import errno
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time

import pytest
from conftest import QUIET, TCP, error_of, free_port, layout_of, mpirun, start

LAUNCHERS = re.compile("RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|(MASTER_|OMPI_|PMI_|PMIX_|SLURM_|TORCHELASTIC_).*")
LAYOUT = layout_of("llama", dict(dp=2, tp=2), " else seq", zero=1)


@pytest.fixture(scope="session")
def mpi(compiled):
    return compiled("llama", LAYOUT, (), {"microbatch": 4})


@pytest.fixture(scope="session")
def tcp(compiled):
    return compiled("llama", LAYOUT, (), {"microbatch": 4}, *TCP)


class Ranks:
    """Processes that no launcher has started; each a rank with options and an environment of its own."""

    def __init__(self, directory, data):
        self.directory, self.data, self.processes = directory, data, []

    def add(self, program, *options, before=(), **environment):
        clean = {name: value for name, value in os.environ.items() if not LAUNCHERS.fullmatch(name)}
        data = [] if options[:2] == ("--steps", 0) else ["--data", self.data, "--data-format", "bytes"]
        words = [*before, program, *data, *options]
        self.processes.append(subprocess.Popen(
            list(map(str, words)), cwd=self.directory, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**clean, **QUIET, **{name: str(value) for name, value in environment.items()}}))
        return self.processes[-1]

    def add_numbered(self, trainer, *options, ranks=(0, 1, 2, 3), port=None, count=4):
        port = port or free_port()
        for rank in ranks:
            self.add(trainer.program, "--rank", rank, "--ranks", count, "--master", f"127.0.0.1:{port}", *options)
        return port

    def end(self, timeout=60):
        """[status], everything on stdout, everything on stderr."""
        said = [process.communicate(timeout=timeout) for process in self.processes]
        return ([process.returncode for process in self.processes],
                "".join(stdout for stdout, _ in said), "".join(stderr for _, stderr in said))

    def refused(self):
        """The one line that says why none of them runs."""
        status, stdout, stderr = self.end()
        assert set(status) == {1} and stdout == "", (status, stdout, stderr)
        return error_of(stderr)


@pytest.fixture
def ranks(text, tmp_path):
    started = Ranks(tmp_path, text)
    yield started
    for process in started.processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


# --- Launchers -----------------------------------------------------------------------------------------------------

def torchrun(rank, port):
    return dict(RANK=rank, WORLD_SIZE=4, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=4, MASTER_ADDR="localhost", MASTER_PORT=port,
                TORCHELASTIC_RUN_ID="none", TORCHELASTIC_RESTART_COUNT=0)


def srun(rank, port):
    return dict(SLURM_PROCID=rank, SLURM_NTASKS=4, SLURM_LOCALID=rank, SLURM_JOB_ID=port, SLURM_STEP_ID=0,
                SLURM_STEP_NODELIST="localhost")


def mpirun_elsewhere(rank, port):
    """Two machines, of two ranks each."""
    return dict(OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_SIZE=4, OMPI_COMM_WORLD_LOCAL_RANK=rank % 2,
                OMPI_COMM_WORLD_LOCAL_SIZE=2, PMIX_NAMESPACE=port, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)


STARTS = {
    "torchrun": torchrun,
    "torchrun whose own store has the port": lambda rank, port: {**torchrun(rank, port), "TORCHELASTIC_USE_AGENT_STORE": "True"},
    "torchrun within srun": lambda rank, port: {**srun(0, port), **torchrun(rank, port)},
    "srun": srun,
    "mpirun": mpirun_elsewhere,
    "mpiexec": lambda rank, port: dict(PMI_RANK=rank, PMI_SIZE=4, MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
}


@pytest.fixture(scope="session")
def expected(mpi, text, tmp_path_factory):
    """Of four ranks over MPI: the checkpoint after three steps."""
    folder = tmp_path_factory.mktemp("mpi")
    start(mpi.command("--data", text, "--data-format", "bytes", "--steps", 3, "--save", "a"), folder)
    return (folder / "a").read_bytes()


@pytest.mark.parametrize("kind", STARTS)
def test_launcher(tcp, ranks, expected, tmp_path, kind):
    """All bits are those of MPI."""
    port = free_port()
    with socket.socket() as store:
        if "store" in kind:
            store.bind(("127.0.0.1", port))
            store.listen()
        for rank in range(4):
            ranks.add(tcp.program, "--steps", 3, "--save", "a", "--print-mesh", **STARTS[kind](rank, port))
        status, stdout, stderr = ranks.end()
    assert status == [0] * 4, stderr
    assert (tmp_path / "a").read_bytes() == expected
    table = [line.split()[:3] for line in stdout.splitlines()[1:5]]
    local = [rank % 2 if kind == "mpirun" else rank for rank in range(4)]
    assert table == [[str(rank), os.uname().nodename[:63], str(local[rank])] for rank in range(4)]


def address():
    """Of this machine: the newer kind, where it has that."""
    with socket.socket(socket.AF_INET6) as probe:
        return "127.0.0.1" if probe.connect_ex(("::1", 9)) == errno.EADDRNOTAVAIL else "[::1]"


def test_numbered_by_hand(tcp, ranks, expected, tmp_path):
    """Options win over what a launcher says."""
    port = free_port()
    for rank in (3, 1, 0, 2):
        ranks.add(tcp.program, "--steps", 3, "--save", "a", "--rank", rank, "--ranks", 4, "--master", f"{address()}:{port}",
                  **torchrun(0, 1))
    status, _, stderr = ranks.end()
    assert status == [0] * 4, stderr
    assert (tmp_path / "a").read_bytes() == expected


def test_mpirun_of_one_machine(tcp, text, expected, tmp_path):
    """It tells no address: rank 0 listens in mpirun's folder.  Twice in a run, so that nothing may be left."""
    train = f"{tcp.program} --data {text} --data-format bytes --steps 3 --save"
    start(mpirun(4, "sh", "-c", f"{train} a && {train} b"), tmp_path)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == expected


@pytest.mark.parametrize("kind", ["dp2-zero3", "dp2-cp2-tp2-zero3"])
def test_layouts(compiled, train, kind):
    """The same steps as over MPI, to the last bit."""
    mesh = {axis: int(n) for axis, n in re.findall(r"(dp|cp|tp)(\d)", kind)}
    layout = layout_of("llama", mesh, " else seq" if "tp" in mesh else "", zero=3 if "zero3" in kind else 0)
    logs = [train(compiled("llama", layout, (), {"microbatch": 4 if "dp" in mesh else 8}, *options), 5)
            for options in [(), TCP]]
    assert without_times(logs[0]) == without_times(logs[1])


def without_times(log):
    return [{name: line[name] for name in ("step", "loss", "grad_norm", "lr", "sent_bytes")} for line in log]


def test_large_messages(compiled, train):
    """Of 4 MB, which no connection takes at once."""
    sizes = {"layers": 1, "embed": 256, "vocab": 8192}
    logs = [train(compiled("llama", layout_of("llama", dict(dp=2)), sizes, {"microbatch": 4}, *options), 2)
            for options in [(), TCP]]
    assert without_times(logs[0]) == without_times(logs[1]) and logs[0][0]["sent_bytes"] > 16e6


def test_checkpoints_go_from_one_to_the_other(compiled, tcp, ranks, expected, tmp_path):
    """Read by ranks of another layout over TCP, and written as they were."""
    (tmp_path / "a").write_bytes(expected)
    other = compiled("llama", layout_of("llama", dict(dp=4), zero=2), (), {"microbatch": 2}, *TCP)
    port = free_port()
    for rank in range(4):
        ranks.add(other.program, "--steps", 0, "--load", "a", "--save", "b", **srun(rank, port))
    status, _, stderr = ranks.end()
    assert status == [0] * 4, stderr
    assert (tmp_path / "b").read_bytes() == expected


def test_linked_libraries(tcp, mpi, compiled):
    """Only what a trainer needs: one of a single rank starts where there is neither."""
    libraries = [start(["ldd", trainer.program], trainer.program.parent).stdout for trainer in (tcp, mpi, compiled("llama"))]
    assert [("libmpi" in text, "libcrypto" in text) for text in libraries] == [(False, True), (True, False), (False, False)]


def test_help_needs_no_others(tcp, ranks):
    for rank in range(2):
        ranks.add(tcp.program, "--help", **torchrun(rank, 1))
    status, stdout, _ = ranks.end()
    assert status == [0, 0] and stdout.count("Usage: ") == 1


# --- Who does not know what it is ----------------------------------------------------------------------------------

OPTIONS = ["--rank", 1, "--ranks", 4]
UNKNOWN = [
    ([], dict(RANK=1), "RANK is set, but WORLD_SIZE is not: torchrun sets both"),
    ([], dict(SLURM_NTASKS=4), "SLURM_NTASKS is set, but SLURM_PROCID is not: srun sets both"),
    ([], dict(RANK="one", WORLD_SIZE=4), "RANK is 'one', but must be a whole number from 0 to"),
    ([], dict(RANK="-1", WORLD_SIZE=4), "RANK is '-1', but must be"),
    ([], dict(RANK=4, WORLD_SIZE=4), "RANK is '4', but must be a whole number from 0 to 3"),
    ([], {**torchrun(1, 29500), "LOCAL_RANK": 4}, "LOCAL_RANK is '4', but must be a whole number from 0 to 3"),
    ([], dict(RANK=1, WORLD_SIZE=4), "rank 1 of 4 does not know where rank 0 is: give --master HOST:PORT"),
    ([], dict(RANK=1, WORLD_SIZE=4, MASTER_ADDR="127.0.0.1"), "MASTER_ADDR is set, but MASTER_PORT is not"),
    ([], {**torchrun(1, 70000)}, "MASTER_PORT is '70000', but must be a whole number from 1 to 65535"),
    ([], {**mpirun_elsewhere(1, 1), "MASTER_ADDR": "", "MASTER_PORT": ""},
     "does not know where rank 0 is, since mpirun gives no address where ranks are on several machines"),
    ([], {**srun(1, 7), "SLURM_STEP_NODELIST": "n[07-09,12].invalid,x"}, "cannot find the machine 'n07.invalid' of rank 0"),
    ([], {**srun(1, 7), "SLURM_STEP_NODELIST": "a.invalid,b"}, "cannot find the machine 'a.invalid' of rank 0"),
    (["--rank", 1], {}, "--rank is given, but --ranks is not: give both"),
    (["--ranks", 4], {}, "--ranks is given, but --rank is not: give both"),
    (OPTIONS, {}, "rank 1 of 4 does not know where rank 0 is: give --master HOST:PORT"),
    ([*OPTIONS, "--master", "10.0.0.7"], {}, "--master is '10.0.0.7', but must be HOST:PORT, such as"),
    ([*OPTIONS, "--master", "host:x"], {}, "the port of --master is 'x', but must be a whole number from 1 to 65535"),
    (["--rank", 0, "--ranks", 4, "--master", "192.0.2.77:29500"], {}, "cannot listen at 192.0.2.77:29500 on "),
    ([], {}, "was compiled for 4 ranks (dp=2,tp=2), but 1 runs"),
]


@pytest.mark.parametrize("options, environment, said", UNKNOWN, ids=[said[:40] for *_, said in UNKNOWN])
def test_unknown(tcp, ranks, options, environment, said):
    ranks.add(tcp.program, "--steps", 1, *options, **environment)
    assert said in ranks.refused()


def test_options_that_have_no_effect(mpi, compiled, refused):
    assert "--rank has no effect where ranks communicate over MPI" in refused(mpi, "--steps", 0, "--rank", 0, status=2)
    assert "--master has no effect on one rank" in refused(compiled("llama"), "--steps", 0, "--master=a:1", status=2)


# --- Who does not come, or should not ------------------------------------------------------------------------------

def test_missing(tcp, ranks):
    port = ranks.add_numbered(tcp, "--steps", 1, "--timeout", 2, ranks=(0, 2))
    assert ranks.refused().startswith(f"error: waited 2 s at 127.0.0.1:{port} for rank 1, 3 of 4: start it")


def test_rank_0_is_missing(tcp, ranks):
    port = ranks.add_numbered(tcp, "--steps", 1, "--timeout", 1, ranks=(2,))
    assert f"rank 2: tried for 1 s to reach rank 0 at 127.0.0.1 (127.0.0.1:{port}): Conn" in ranks.refused()


def test_another_program(tcp, ranks, tmp_path):
    """It is turned away, and rank 0 waits for the right one."""
    other = shutil.copy(tcp.program, tmp_path / "other")
    with open(other, "ab") as end:
        end.write(b"x")
    port = ranks.add_numbered(tcp, "--steps", 1, ranks=(0, 1, 3))
    process = ranks.add(other, "--steps", 1, "--rank", 2, "--ranks", 4, "--master", f"127.0.0.1:{port}")
    assert "is turned away, since this rank runs another program: start the same file everywhere: check that rank 0 of this run is there" in process.communicate(timeout=60)[1]
    assert process.returncode == 1
    ranks.processes.remove(process)
    ranks.add_numbered(tcp, "--steps", 1, ranks=(2,), port=port)
    status, _, stderr = ranks.end()
    assert status == [0] * 4
    assert f"note: rank 2 (process {process.pid} on {os.uname().nodename}) runs another program: start the same" in stderr


def test_one_rank_twice(tcp, ranks):
    """Whoever comes second is turned away, and the missing one is named."""
    ranks.add_numbered(tcp, "--steps", 1, "--timeout", 3, ranks=(0, 2, 2))
    status, _, stderr = ranks.end()
    assert status == [1] * 3 and "for rank 1, 3 of 4: start it" in stderr
    assert "is turned away, since this rank has the number of another rank: give each its own (--rank)" in stderr
    assert re.search(r"note: rank 2 \(process .*\) has the number of another rank: give each its own", stderr)


def test_wrong_number_of_ranks(tcp, ranks):
    """Known to each before they meet, so that nobody waits for who will not come."""
    begin = time.monotonic()
    ranks.add_numbered(tcp, "--steps", 1, ranks=(0, 2), count=3)
    status, _, stderr = ranks.end()
    assert time.monotonic() - begin < 10 and status == [1, 1] and set(stderr.splitlines()) == {
        f"error: {tcp.program} was compiled for 4 ranks (dp=2,tp=2), but 3 run: start it with 'torchrun "
        f"--no_python --nproc_per_node=4 {tcp.program} ...', or compile it for another mesh"}


def test_killed_while_they_meet(tcp, ranks):
    port = ranks.add_numbered(tcp, "--steps", 1, ranks=(0, 1))
    while f":{port:04X} 01 " not in re.sub(r"[0-9A-F]{8}:\w{4} (01) ", r"\1 ", open("/proc/net/tcp").read()):
        time.sleep(0.05)  # until a connection to the port is established
    time.sleep(1)
    victim = ranks.processes.pop()
    victim.kill()
    victim.communicate()
    assert f"error: rank 1 (process {victim.pid} on {os.uname().nodename}) ended without a message" in ranks.refused()


def test_another_run_on_the_port(tcp, ranks):
    """Whoever belongs to another run of the same trainer is sent away, and the run goes on."""
    port = free_port()
    for rank in range(3):
        ranks.add(tcp.program, "--steps", 1, **torchrun(rank, port))
    stranger = ranks.add(tcp.program, "--steps", 1, **{**torchrun(3, port), "TORCHELASTIC_RUN_ID": "other"})
    assert "is turned away, since this rank belongs to another run: check that" in stranger.communicate(timeout=60)[1]
    assert stranger.returncode == 1
    ranks.processes.remove(stranger)
    ranks.add(tcp.program, "--steps", 1, **torchrun(3, port))
    status, _, stderr = ranks.end()
    assert status == [0] * 4 and re.search(rf"note: rank 3 \(process {stranger.pid} on .*\) belongs to another run: dropped", stderr)


def test_port_in_use(tcp, ranks):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ranks.add_numbered(tcp, "--steps", 1, ranks=(0,), port=port)
        assert f"cannot listen at 127.0.0.1:{port} on {os.uname().nodename}: Address already in use; " in ranks.refused()


@pytest.mark.parametrize("answer, said", [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "), but it does not answer as a rank does: check that rank 0 of this run is there"),
    (b"", "tried for 1 s to reach rank 0 at 127.0.0.1 (127.0.0.1:")], ids=["another protocol", "nothing"])
def test_something_else_answers(tcp, ranks, answer, said):
    """A connection that is closed without a word may have been among too many: it is tried again."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ranks.add_numbered(tcp, "--steps", 1, "--timeout", 1, ranks=(1,), port=other.getsockname()[1])
        while ranks.processes[0].poll() is None:
            if select.select([other], [], [], 0.02)[0]:
                connection, _ = other.accept()
                connection.sendall(answer)
                connection.close()
        assert said in ranks.refused()


# --- Failures ------------------------------------------------------------------------------------------------------

@pytest.fixture
def four(tcp, ranks):
    """Started by nobody, so that nobody but themselves ends them; some steps in."""
    ranks.add_numbered(tcp, "--steps", 10**6, "--print-every", 1, "--timeout", 3)
    for _ in range(3):
        assert ranks.processes[0].stdout.readline().startswith("step ")
    return ranks


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_killed(four, rank, how):
    """Noticed at once, and named by one of the others."""
    begin = time.monotonic()
    four.processes[rank].send_signal(how)
    status, _, stderr = four.end()
    assert time.monotonic() - begin < 10
    assert status == [-how if q == rank else 1 for q in range(4)]
    assert f"rank {rank} (process {four.processes[rank].pid} on {os.uname().nodename}) ended without a message" in error_of(stderr)


@pytest.mark.parametrize("rank", [0, 3])
def test_stopped(four, rank):
    """Named when the time is over, and killed by the one that names it."""
    four.processes[rank].send_signal(signal.SIGSTOP)
    status, _, stderr = four.end()
    assert status == [-signal.SIGKILL if q == rank else 1 for q in range(4)]
    assert re.search(rf"has waited 3 s in .* for rank {rank} \(dp {rank // 3}, tp {rank // 3}\), which does not answer",
                     error_of(stderr))


def test_signal_to_one(four):
    four.processes[2].send_signal(signal.SIGTERM)
    status, _, stderr = four.end()
    assert status == [128 + signal.SIGTERM] * 4 and "error: " not in stderr
    assert re.search(r"interrupted at step \d+: nothing is saved", stderr)


def test_error_of_all(tcp, ranks):
    """What all find, one says."""
    ranks.add_numbered(tcp, "--steps", 1, "--load", "none")
    assert "--load none: cannot open it" in ranks.refused()
