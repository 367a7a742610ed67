"""Ranks on several machines, which are network namespaces: what a link carries and how fast, one that fails, a machine that vanishes."""
import json
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import MPC, QUIET, TCP, error_of, layout_of, options_of, patience, read_log, start
from cover import ALL
from network import Network, NoNetwork

PORT = 29500  # each machine has its own


class Ranks:
    """Processes of a trainer over TCP, `each` on a machine."""

    def __init__(self, network, trainer, folder, options, each=1, late=()):
        self.network, self.process = network, [None] * trainer.ranks
        self.command = [[*network.within(rank // each, trainer.program, "--rank", rank, "--ranks", trainer.ranks, "--master",
                                         f"{network.address(0)}:{PORT}", *options)] for rank in range(trainer.ranks)]
        self.folder = folder
        for rank in range(trainer.ranks):
            if rank not in late:
                self.start(rank)

    def start(self, rank):
        self.process[rank] = subprocess.Popen(list(map(str, self.command[rank])), cwd=self.folder, env={**os.environ, **QUIET}, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def await_step(self, step):
        while not re.match(rf"step {step}/", self.process[0].stdout.readline()):
            assert self.process[0].poll() is None, self.process[0].stderr.read()

    def end(self, timeout=60):
        """Of each rank (status, what it said)."""
        said = [process.communicate(timeout=patience(timeout))[1] for process in self.process]
        return [(process.returncode, text) for process, text in zip(self.process, said)]

    def kill(self):
        for process in filter(None, self.process):
            process.kill()
            process.communicate()


@pytest.fixture
def network(tmp_path):
    """network(machines, rate): a Network."""
    made = []

    def make(*words, **more):
        try:
            made.append(Network(tmp_path, *words, **more))
        except NoNetwork as error:
            pytest.fail(str(error)) if ALL else pytest.skip(str(error))
        return made[-1]
    yield make
    for one in made:
        one.close()


@pytest.fixture
def ranks(tmp_path, text):
    """ranks(network, trainer, steps, option, ...): Ranks that train."""
    started = []

    def train(network, trainer, steps, *options, **more):
        data = ["--data", text, "--data-format", "bytes", "--steps", steps, "--print-every", 1, "--log", "log", "--overwrite"]
        started.append(Ranks(network, trainer, tmp_path, [*data, *options], **more))
        return started[-1]
    yield train
    for one in started:
        one.kill()


@pytest.fixture
def trainer_of(compiled):
    def make(mesh, *options, **more):
        layout = layout_of("gpt2", mesh, **more)
        return compiled("gpt2", layout, {}, {"microbatch": 4}, *(options or TCP))
    return make


def results(log):
    return [(line["step"], line["loss"], line["grad_norm"]) for line in log]


def all_well(ended):
    assert {status for status, _ in ended} == {0}, ended


# --- Over a link ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("mesh, more", [(dict(dp=2), dict(zero=3)), (dict(tp=2), {}), (dict(pp=2), {})])
def test_two_machines_compute_what_one_does(network, ranks, train, trainer_of, tmp_path, mesh, more):
    trainer = trainer_of(mesh, **more)
    here = results(train(trainer, 4))
    two = ranks(network(2, rate="200mbit"), trainer, 4, "--print-mesh")
    table = [two.process[0].stdout.readline().split() for _ in range(3)]
    assert [row[1] for row in table] == ["host", "machine0", "machine1"]
    all_well(two.end())
    assert results(read_log(tmp_path / "log")) == here


def test_under_mpi(network, train, compiled, text, tmp_path):
    """OpenMPI starts its daemon and the rank of the other machine by an agent, as by ssh."""
    trainer = compiled("gpt2", layout_of("gpt2", dict(dp=2), zero=3), {}, {"microbatch": 4})
    here = results(train(trainer, 4))
    net = network(2, rate="200mbit")
    data = ["--data", text, "--data-format", "bytes", "--steps", 4, "--log", "log", "--overwrite", "--print-mesh"]
    said = start(net.mpirun(trainer.program, *data), tmp_path).stdout
    assert [line.split()[1] for line in said.splitlines()[:3]] == ["host", "machine0", "machine1"]
    assert results(read_log(tmp_path / "log")) == here and net.sent(0) > 4 * read_log(tmp_path / "log")[0]["sent_bytes"]


@pytest.mark.parametrize("rate", [4, 12])
def test_the_link_bounds_a_step(network, ranks, compiled, tmp_path, rate):
    """The sum of gradients takes what its bytes take at the rate of the link, with 66 of 1514 bytes for headers; of some steps the
    quickest, since others use the processors too."""
    net = network(2, rate=f"{rate}mbit")
    trainer = compiled("gpt2", layout_of("gpt2", dict(dp=2)), {"embed": 64}, {"microbatch": 4}, *TCP)
    all_well(ranks(net, trainer, 6).end())
    log = read_log(tmp_path / "log")
    sent = log[0]["sent_bytes"]
    assert min(line["comm_ms"] for line in log) / 1e3 == pytest.approx(8 * sent * 1514 / 1448 / (rate * 1e6), rel=0.15)
    assert net.sent(0) == pytest.approx(6 * sent * 1514 / 1448, rel=0.1)


@pytest.mark.parametrize("mesh", [dict(dp=2, tp=2), dict(tp=2, dp=2)])
def test_the_inner_axis_stays_within_a_machine(network, ranks, compiled, tmp_path, mesh):
    """Four ranks on two machines: what crosses the link are the messages of the outer axis, of both ranks of a machine."""
    net = network(2, rate="400mbit")
    trainer = compiled("gpt2", layout_of("gpt2", mesh), {"embed": 64}, {"microbatch": 4}, *TCP)
    words = options_of("gpt2", {"embed": 64}, {"microbatch": 4})
    report = json.loads(start([MPC, "report", "--json", trainer.source, *words], tmp_path).stdout)
    crossing = sum(message["sent"] for message in report["communication"]["collectives"] if list(mesh)[0] in message["axes"].split(", "))
    all_well(ranks(net, trainer, 6, each=2).end())
    assert net.sent(0) == pytest.approx(2 * 6 * crossing * 1514 / 1448, rel=0.1)


# --- A link that fails ---------------------------------------------------------------------------------------------

def test_a_link_that_is_down_for_a_while(network, ranks, train, trainer_of, tmp_path):
    """The step waits, and the results are those of a run without the fault."""
    trainer = trainer_of(dict(dp=2), zero=3)
    here = results(train(trainer, 8))
    net = network(2)
    two = ranks(net, trainer, 8)
    two.await_step(3)
    net.set(1, "down")
    time.sleep(2)
    net.set(1, "up")
    all_well(two.end())
    log = read_log(tmp_path / "log")
    assert results(log) == here and max(line["step_ms"] for line in log) > 1500


def test_a_link_that_stays_down(network, ranks, trainer_of):
    """All ranks end after the time-out; each says for whom it has waited, since none hears of the other."""
    net = network(2)
    two = ranks(net, trainer_of(dict(dp=2), zero=3), 10**6, "--timeout", 3)
    two.await_step(3)
    begin = time.monotonic()
    net.set(0, "down")
    for rank, (status, said) in enumerate(two.end()):
        assert status == 1 and f"rank {1 - rank} (" in error_of(said), said
    assert time.monotonic() - begin < patience(20)


def test_a_rank_that_dies_on_another_machine(network, ranks, trainer_of):
    """Its kernel closes the connections: known at once."""
    two = ranks(network(2), trainer_of(dict(dp=2), zero=3), 10**6)
    two.await_step(3)
    begin = time.monotonic()
    two.process[1].send_signal(signal.SIGKILL)
    status, said = two.end()[0]
    assert status == 1 and re.search(r"rank 1 \(process \d+ on machine1\) ended without a message", error_of(said))
    assert time.monotonic() - begin < patience(5)


def test_a_machine_that_vanishes(network, ranks, trainer_of, compiled, tmp_path):
    """Nothing more comes from it, not even the end of a connection.  The other ends after the time-out, and the run goes on from the
    checkpoint, here on one machine alone."""
    net = network(2)
    two = ranks(net, trainer_of(dict(dp=2), zero=3), 10**6, "--timeout", 3, "--save", "a", "--save-every", 2)
    two.await_step(6)
    net.set(1, "down")
    two.process[1].send_signal(signal.SIGKILL)
    status, said = two.end()[0]
    assert status == 1 and "for rank 1 (dp 1), which does not answer" in error_of(said), said
    steps = len(read_log(tmp_path / "log"))
    rest = start(compiled("gpt2").command("--load", "a", "--steps", 0), tmp_path)
    assert 2 <= int(re.search(r"loaded a: step (\d+)", rest.stderr)[1]) <= steps


# --- The rendezvous ------------------------------------------------------------------------------------------------

def test_a_machine_that_joins_late(network, ranks, compiled, tmp_path):
    """Its link comes up while the others wait for it."""
    net = network(4)
    net.set(3, "down")
    four = ranks(net, compiled("gpt2", layout_of("gpt2", dict(dp=4)), {}, {"microbatch": 2}, *TCP), 3, "--timeout", 60)
    time.sleep(2)
    assert [process.poll() for process in four.process] == [None] * 4 and not (tmp_path / "log").exists()
    net.set(3, "up")
    all_well(four.end())
    assert len(read_log(tmp_path / "log")) == 3


def test_a_machine_that_does_not_join(network, ranks, trainer_of):
    """Each side says what it has waited for."""
    net = network(2)
    net.set(1, "down")
    ended = ranks(net, trainer_of(dict(dp=2), zero=3), 3, "--timeout", 2).end()
    assert [status for status, _ in ended] == [1, 1]
    assert f"waited 2 s at {net.address(0)}:{PORT} for rank 1 of 2" in error_of(ended[0][1])
    assert f"rank 1: tried for 2 s to reach rank 0 at {net.address(0)}" in error_of(ended[1][1])
