"""Whoever connects to a rank, or says that it is one (--comm=tcp): it is not believed, it ends nothing that is not its own, and
nobody waits longer for it than --timeout.  It speaks the protocol of protocol.py, which knows nothing of the runtime's code."""
import os
import re
import socket
import struct
import subprocess
import threading
import time

import protocol
import pytest
from conftest import EXTRA, ROOT, TCP, error_of, free_port, layout_of, start
from protocol import (ABORT, BYE, CALL, CLAIM, CONTROL, DATA, HELLO, JOIN, NO_SECRET, OTHER_PROGRAM, OTHER_RUN, TABLE, TAKEN, WELCOME,
                      Listener, connect, hello, mac, receive, unpack)
from test_tcp import ranks, torchrun  # noqa: F401 (a fixture)

SECRET = b"correct horse battery staple"


@pytest.fixture(scope="session")
def pair(compiled):
    return compiled("chars", layout_of("chars", dict(dp=2)), {"layers": 1}, {"microbatch": 4}, *TCP)


@pytest.fixture(scope="session")
def program(pair):
    """The hash of the trainer, which a stranger can learn: its ranks say it to whoever listens."""
    with Listener() as first:
        command = [pair.program, "--rank", "1", "--ranks", "2", "--master", f"127.0.0.1:{first.port}", "--data", "x", "--steps", "1"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        with first.accept() as connection:
            said = unpack(receive(connection, HELLO.size))
        process.kill()
        process.wait()
    return said["program"]


@pytest.fixture(params=[b"", SECRET], ids=["open", "secret"])
def secret(request, monkeypatch):
    monkeypatch.setenv("MPC_SECRET", request.param.decode())
    return request.param


class False1:
    """Rank 1 of two, as somebody else would play it who knows `key`; `port` is that of rank 0.  When it is told that all end it
    leaves, so that nobody has to wait for it."""

    def __init__(self, port, program, key=b"", **fields):
        self.port, self.key = port, key
        self.fields = dict(rank=1, ranks=2, program=program) | fields
        self.control = connect(port)
        said = hello(kind=JOIN, **self.fields)
        verdict, is_right, called = protocol.call(self.control, said, key)
        assert verdict == WELCOME and is_right
        random, self.places = protocol.take_table(self.control, 2, key, said, called)
        self.run = mac(key, random)

    def call(self, kind, key=None):
        connection = connect(self.port)
        return connection, *protocol.call(connection, hello(kind=kind, **self.fields), self.run if key is None else key)[:2]

    def join(self):
        self.data, *verdict = self.call(DATA)
        assert verdict == [WELCOME, True]
        return self

    def leave(self):
        """Once it is told so, in the background."""
        def listen():
            try:
                while len(frame := receive(self.control, 8)) == 8 and frame[0] != ABORT:
                    pass
                self.control.close()
            except OSError:
                pass
        threading.Thread(target=listen, daemon=True).start()

    def frame(self, kind, value=0):
        self.control.sendall(struct.pack("=ii", kind, value))


def rank_0(ranks, pair, *options, timeout=1, **environment):
    port = free_port()
    ranks.add(pair.program, "--steps", 2, "--rank", 0, "--ranks", 2, "--master", f"127.0.0.1:{port}", "--timeout", timeout, *options,
              **environment)
    return port


def rank_1(ranks, pair, port, timeout=20, **environment):
    return ranks.add(pair.program, "--steps", 2, "--rank", 1, "--ranks", 2, "--master", f"127.0.0.1:{port}", "--timeout", timeout,
                     **environment)


def both_run(ranks):
    status, _, stderr = ranks.end()
    assert status == [0, 0], stderr
    return stderr


# --- What a peer says of itself ------------------------------------------------------------------------------------

def test_a_process_that_a_peer_names_is_not_killed(pair, program, ranks, text):
    """It runs the same program for the same user; but it is not at the other end."""
    with Listener() as elsewhere:
        other = subprocess.Popen([pair.program, "--rank", "1", "--ranks", "2", "--master", f"127.0.0.1:{elsewhere.port}", "--data",
                                  text, "--timeout", "300"], stderr=subprocess.DEVNULL)
        try:
            one = False1(rank_0(ranks, pair, timeout=30), program, pid=other.pid).join()
            one.frame(ABORT, 3)
            status, _, stderr = ranks.end()
            assert status == [3] and other.poll() is None
            assert f"note: rank 1 (process {other.pid} on elsewhere) does not end: end it there (kill -9 {other.pid})" in stderr
        finally:
            other.kill()
            other.wait()


def test_who_is_at_the_other_end(tmp_path):
    """The kernel says it, of all kinds of connections."""
    sources = [ROOT / "runtime" / name for name in ("net/tcp_peer.c", "net/tcp_socket.c", "error.c", "visible.c")]
    start(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", *EXTRA.split(), f"-I{ROOT}/runtime",
           ROOT / "tests/ranks/peer.c", *sources, "-o", "peer", "-lm"], tmp_path)
    said = start([tmp_path / "peer", tmp_path / "socket"], tmp_path).stdout.splitlines()
    assert said.count("the other end") >= 2 and said[-1] == "the other end" and "Unix: not another process of the program" in said


@pytest.mark.parametrize("value, status", [(0, 1), (256, 1), (-1, 1), (2 ** 31 - 1, 1), (7, 7)])
def test_status_of_another(pair, program, ranks, value, status):
    """What is no status of failure, or would be none of eight bits, is an error."""
    one = False1(rank_0(ranks, pair, timeout=30), program).join()
    one.frame(ABORT, value)
    one.control.shutdown(socket.SHUT_WR)
    assert ranks.end()[0] == [status]


ESCAPES = b"\x1b]0;x\x07\x1b[2J" + b"\x9b" * 55


NO_ANSWER = r"has waited 1 s in .* for rank 1 \(dp 1\), which does not answer"
DEEDS = {
    "frame of no kind": (lambda one: one.control.sendall(struct.pack("=ii", 77, 0)), r"ended without a message \(Protocol error\)"),
    "negative kind": (lambda one: one.control.sendall(struct.pack("=ii", -1, 0)), r"ended without a message \(Protocol error\)"),
    "table": (lambda one: one.frame(TABLE, 2), r"ended without a message \(Protocol error\)"),
    "closes": (lambda one: one.control.close(), "ended without a message"),
    "length": (lambda one: one.data.sendall(b"\xff" * 4096), "sent a message of -1 bytes where 8 bytes are expected"),
    "large length": (lambda one: one.data.sendall(struct.pack("=q", 2 ** 62)), "sent a message of 4611686018427387904 bytes where 8"),
    "a part of a frame": (lambda one: one.control.sendall(b"\1\2\3"), NO_ANSWER),
    "calls": (lambda one: [one.frame(CALL) for _ in range(3000)], NO_ANSWER),
    "bye": (lambda one: (one.frame(BYE), one.control.shutdown(socket.SHUT_WR)), "has waited 1 s in"),
    "silence": (lambda one: None, NO_ANSWER)}


def test_after_it_has_joined(pair, program, ranks):
    """Whatever it does then, or does not, all end and say why.  Its name has no power over the terminal.  All at the same time,
    since each takes its time."""
    others = [False1(rank_0(ranks, pair), program, host=ESCAPES).join() for _ in DEEDS]
    for one, (deed, _) in zip(others, DEEDS.values()):
        deed(one)
        one.leave()
    for process, (name, (_, said)) in zip(ranks.processes, DEEDS.items()):
        stderr = process.communicate(timeout=60)[1]
        assert process.returncode == 1 and re.search(said, error_of(stderr)), (name, stderr)
        assert "\x1b" not in stderr and "\x9b" not in stderr


def processor_of(process):
    """(seconds that its first thread ran, that it waited for a processor)."""
    with open(f"/proc/{process.pid}/task/{process.pid}/schedstat") as file:
        return [int(word) / 1e9 for word in file.read().split()[:2]]


def test_waiting_takes_no_processor(pair, program, ranks):
    """For a rank that has fallen silent: of the time in which it could run, it sleeps most, however many others want to run."""
    one = False1(rank_0(ranks, pair, timeout=60), program).join()
    time.sleep(0.3)
    begin, (ran, queued) = time.monotonic(), processor_of(ranks.processes[0])
    time.sleep(1)
    end, (ran_then, queued_then) = time.monotonic(), processor_of(ranks.processes[0])
    ran, queued = ran_then - ran, queued_then - queued
    assert ranks.processes[0].poll() is None and one
    assert ran < 0.2 * (end - begin - queued), (ran, queued)


def echo(one, change):
    """Says what rank 0 says, which is what another rank of the same options says; `change` of (number, bytes) but for some."""
    number = 0
    while len(head := receive(one.data, 8)) == 8:
        message = receive(one.data, struct.unpack("=q", head)[0])
        one.data.sendall(head + change(number, message))
        number += 1


def test_texts_of_another_have_no_power_over_the_terminal(pair, program, ranks):
    """Said of an option that differs: of 120 bytes, none of which ends it."""
    one = False1(rank_0(ranks, pair, timeout=20), program).join()
    differs = lambda number, message: b"\x1b" * 120 if len(message) == 120 else bytes(8) if number > 0 and len(message) == 8 else message
    threading.Thread(target=echo, args=(one, differs), daemon=True).start()
    one.leave()
    status, _, stderr = ranks.end()
    assert status == [1] and re.search(r"the ranks differ in --\S+: .*, rank 1: \?{119}; start all", stderr), stderr
    assert "\x1b" not in stderr


@pytest.mark.parametrize("fields, verdict", [
    (dict(rank=0), OTHER_RUN), (dict(rank=2), OTHER_RUN), (dict(rank=-1), OTHER_RUN), (dict(rank=2 ** 31 - 1), OTHER_RUN),
    (dict(ranks=3), OTHER_RUN), (dict(ranks=-2 ** 31), OTHER_RUN), (dict(port=0), OTHER_RUN), (dict(kind=CONTROL), OTHER_RUN),
    (dict(kind=DATA), OTHER_RUN), (dict(program=1), OTHER_PROGRAM), (dict(kind=3), None), (dict(kind=65535), None),
    (dict(magic=b"mpcrank3"), None)])
def test_numbers_of_a_hello(pair, program, ranks, secret, fields, verdict, shared={}):
    """All are put to one rank 0, which a right one joins in the end."""
    if secret not in shared:
        shared.clear()
        shared[secret] = rank_0(ranks, pair, timeout=60), ranks.processes.pop()
    port, process = shared[secret]
    with connect(port) as connection:
        said = hello(**dict(kind=JOIN, rank=1, ranks=2, program=program) | fields)
        assert protocol.call(connection, said, secret)[0] == verdict
    if fields == dict(magic=b"mpcrank3"):
        ranks.processes.append(process)
        rank_1(ranks, pair, port)
        both_run(ranks)


# --- The secret ----------------------------------------------------------------------------------------------------

def test_an_honest_rank(pair, program, ranks, secret):
    """That it is a rank of the run it proves with each connection; and rank 0 proves it, too."""
    port = rank_0(ranks, pair, timeout=30)
    one = False1(port, program, secret)
    for key in (secret, b"", bytes(32)):  # of DATA: the key of the run, which it has
        assert one.call(DATA, key)[1:] == (OTHER_RUN, False)
    assert one.call(CONTROL)[1:] == (TAKEN, False) and one.call(JOIN, secret)[1:] == (OTHER_RUN, False)
    one.join()
    assert receive(one.data, 8) == struct.pack("=q", 8)  # rank 0 goes on
    one.control.close()
    one.data.close()
    assert ranks.end()[0] == [1]


@pytest.mark.parametrize("of_0, of_1", [("one", "two"), ("one", ""), ("", "two")])
def test_another_secret(pair, ranks, of_0, of_1):
    """Or none, where the other has one."""
    rank_1(ranks, pair, rank_0(ranks, pair, MPC_SECRET=of_0), MPC_SECRET=of_1)
    status, _, stderr = ranks.end()
    assert status == [1, 1] and stderr.count("does not know the secret of this run (MPC_SECRET): dropped") == 1
    assert stderr.count("is turned away, since this rank does not know the secret of this run (MPC_SECRET): check") == 1


def pass_on(source, target, seen):
    try:
        while data := source.recv(65536):
            seen.append(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


class Between:
    """Stands between a rank and rank 0, and passes on what each says to the other; `said` is what the rank has said."""

    def __init__(self, port):
        self.port, self.listener, self.said, self.answered = port, Listener(), [], []
        threading.Thread(target=self.go_on, daemon=True).start()

    def go_on(self):
        try:
            while True:
                one, first = self.listener.accept(), connect(self.port)
                said, answered = [], []
                self.said.append(said), self.answered.append(answered)
                for words in ((one, first, said), (first, one, answered)):
                    threading.Thread(target=pass_on, args=words, daemon=True).start()
        except OSError:
            pass


def test_replay(pair, ranks, monkeypatch):
    """What a rank has said in one run, word for word, opens no other run of the same secret."""
    monkeypatch.setenv("MPC_SECRET", SECRET.decode())
    port = rank_0(ranks, pair, timeout=20)
    between = Between(port)
    rank_1(ranks, pair, between.listener.port)
    both_run(ranks)
    ranks.processes.clear()
    port = rank_0(ranks, pair)
    for said in between.said:
        with connect(port) as connection:
            connection.sendall(b"".join(said)[:HELLO.size + 32])
            answer = receive(connection, HELLO.size + 36)
            assert len(answer) in (0, HELLO.size + 36)  # closed, or a verdict
            assert not answer or struct.unpack("=i", answer[HELLO.size:][:4])[0] in (NO_SECRET, OTHER_RUN)
    status, _, stderr = ranks.end()
    assert status == [1] and "for rank 1 of 2: start it" in stderr and "does not know the secret" in stderr


def test_replay_to_the_same_process(pair, ranks):
    """What a rank has proved in one connection to rank 0 proves nothing in the next."""
    port = rank_0(ranks, pair, MPC_SECRET=SECRET.decode())
    with Listener() as between:
        rank_1(ranks, pair, between.port, timeout=1, MPC_SECRET=SECRET.decode())
        with between.accept() as one, connect(port) as first:
            first.sendall(caller := receive(one, HELLO.size))
            one.sendall(receive(first, HELLO.size))
            proof = receive(one, 32)
    with connect(port) as again:
        again.sendall(caller)
        receive(again, HELLO.size)
        again.sendall(proof)
        assert struct.unpack("=i", receive(again, 36)[:4]) == (NO_SECRET,)
    assert ranks.end()[0] == [1, 1]


def test_replay_of_rank_0(pair, ranks):
    """And what rank 0 has proved to a rank proves nothing to it when it connects again."""
    port = rank_0(ranks, pair, timeout=20, MPC_SECRET=SECRET.decode())
    with Listener() as between:
        rank_1(ranks, pair, between.port, MPC_SECRET=SECRET.decode())
        with between.accept() as one, connect(port) as first:
            first.sendall(receive(one, HELLO.size))
            one.sendall(called := receive(first, HELLO.size))
            first.sendall(receive(one, 32))
            last = receive(first, 36)
            assert struct.unpack("=i", last[:4]) == (WELCOME,)
        with between.accept() as again:
            receive(again, HELLO.size)
            again.sendall(called)
            receive(again, 32)
            again.sendall(last)
            assert "it does not know the secret of this run (MPC_SECRET)" in error_of(ranks.processes[1].communicate(timeout=60)[1])
    assert ranks.processes[0].wait(60) == 1


@pytest.mark.parametrize("run, secret, said", [("b", SECRET, "belongs to another run"), ("a", b"other", "does not know the secret")])
def test_relay_to_another_run(pair, ranks, run, secret, said):
    """Word for word and at once: a rank of run a, by way of somebody between, is none of run b, and none of another secret."""
    names = lambda rank, port, run: {**torchrun(rank, port), "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "TORCHELASTIC_RUN_ID": run}
    port = free_port()
    options = ["--steps", 2, "--timeout", 1]
    ranks.add(pair.program, *options, **names(0, port, run), MPC_SECRET=secret.decode())
    between = Between(port)
    ranks.add(pair.program, *options, **names(1, between.listener.port, "a"), MPC_SECRET=SECRET.decode())
    status, _, stderr = ranks.end()
    assert status == [1, 1] and f"{said}" in stderr.split("is turned away, since this rank ")[1]


@pytest.mark.parametrize("how", ["guesses", "repeats", "nothing"])
def test_false_rank_0(pair, program, ranks, how):
    """It welcomes everybody, without knowing the secret."""
    with Listener() as first:
        rank_1(ranks, pair, first.port, timeout=1, MPC_SECRET=SECRET.decode())
        connection = first.accept()
        receive(connection, HELLO.size)
        connection.sendall(hello(rank=0, ranks=2, program=program))
        proof = receive(connection, 32)
        last = {"guesses": bytes(32), "repeats": proof, "nothing": b""}[how]
        connection.sendall(struct.pack("=i", WELCOME) + last)
        assert ("but it does not answer:" if how == "nothing" else "it does not know the secret of this run (MPC_SECRET)") in ranks.refused()


PLACES = [(bytes(16), 0, socket.AF_UNIX, 1, b"h", 0, 0), (bytes(16), 0, 65535, 1, b"h", 0, 0), (bytes(16), 0, 0, 0, b"h", 0, 0)]


@pytest.mark.parametrize("how", ["altered", *range(len(PLACES))])
def test_table_of_addresses(pair, program, ranks, how):
    """One that was altered on its way; and ones that rank 0 has made with addresses that no rank has."""
    with Listener() as first:
        rank_1(ranks, pair, first.port, timeout=1, MPC_SECRET=SECRET.decode())
        connection, said = first.accept(), hello(rank=0, ranks=2, program=program)
        is_right, caller = protocol.answer(connection, said, SECRET)
        assert is_right
        good = (bytes(16), 0, 0, 9, b"h", 0, 0)
        table = bytearray(protocol.make_table(2, SECRET, caller, said, os.urandom(32), [good, good if how == "altered" else PLACES[how]]))
        if how == "altered":
            table[-1] ^= 1
        connection.sendall(table)
        assert "joined rank 0 at 127.0.0.1" in (error := ranks.refused()) and "but it does not answer as rank 0 does: see" in error


def test_rank_0_that_falls_silent(pair, program, ranks):
    """At once, in the middle of a message, or after all that it may say before its table; at the same time."""
    kept = []
    for after in (b"", struct.pack("=i", TABLE), struct.pack("=ii", CLAIM, 0) * 9):
        with Listener() as first:
            rank_1(ranks, pair, first.port, timeout=1)
            kept.append(first.accept())
            assert protocol.answer(kept[-1], hello(rank=0, ranks=2, program=program), b"")[0]
            kept[-1].sendall(after)
    for process in ranks.processes:
        stderr = process.communicate(timeout=60)[1]
        assert process.returncode == 1 and "but it has fallen silent: see its messages" in error_of(stderr)


# --- Too many, and too slow ----------------------------------------------------------------------------------------

def trickle(connection, text):
    try:
        for byte in text:
            connection.send(bytes([byte]))
            time.sleep(0.3)
    except OSError:
        pass


def test_silent_strangers_end_no_time_limit(pair, program, ranks):
    """60, and some that say a letter now and then."""
    port = rank_0(ranks, pair)
    strangers = [connect(port) for _ in range(60)]
    for slow in strangers[:4]:
        threading.Thread(target=trickle, args=(slow, hello(program=program)), daemon=True).start()
    assert "waited 1 s at 127.0.0.1" in ranks.refused()  # and not after five seconds for each
    assert strangers


def test_silent_strangers_keep_no_rank_out(pair, ranks):
    """As many as may wait, each for longer than the rank can."""
    port = rank_0(ranks, pair, timeout=4)
    strangers = [connect(port) for _ in range(128)]
    rank_1(ranks, pair, port, timeout=4)
    both_run(ranks)
    assert strangers


def flood(port, go_on, opened):
    """Comes, and goes, or stays silent, or speaks of something else."""
    kept = []
    while go_on.is_set():
        try:
            kept.append(socket.create_connection(("127.0.0.1", port), timeout=1))
            if len(opened) % 3 == 0:
                kept.pop().close()
            elif len(opened) % 3 == 1:
                kept[-1].sendall(os.urandom(200))
            opened.append(1)
        except OSError:
            time.sleep(0.01)
        if len(kept) > 300:
            kept.pop(0).close()


def test_a_rank_joins_among_a_flood(pair, ranks):
    """More than may wait, before it comes and while it does; not all of them are listed."""
    port = rank_0(ranks, pair, timeout=40)
    connect(port).close()
    go_on, opened = threading.Event(), []
    go_on.set()
    threading.Thread(target=flood, args=(port, go_on, opened), daemon=True).start()
    try:
        deadline = time.monotonic() + 30
        while len(opened) < 1000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        rank_1(ranks, pair, port, timeout=40)
        stderr = both_run(ranks)
    finally:
        go_on.clear()
    assert 10 < stderr.count("dropped") < 30 and "more connections are dropped; they are not listed" in stderr


def test_few_open_files(pair, ranks):
    """Strangers may not use them up."""
    port = free_port()
    limited = ["sh", "-c", "ulimit -n 40; exec \"$@\"", "sh"]
    command = ["--steps", 2, "--rank", 0, "--ranks", 2, "--master", f"127.0.0.1:{port}", "--timeout", 30]
    ranks.add(pair.program, *command, before=limited)
    strangers = [connect(port) for _ in range(100)]
    rank_1(ranks, pair, port)
    both_run(ranks)
    assert strangers


def test_a_rank_that_was_dropped_comes_again(pair, ranks):
    port = free_port()
    with Listener(port) as other:
        rank_1(ranks, pair, port)
        for _ in range(3):
            with other.accept() as connection:
                receive(connection, HELLO.size)
    ranks.add(pair.program, "--steps", 2, "--rank", 0, "--ranks", 2, "--master", f"127.0.0.1:{port}", "--timeout", 20)
    both_run(ranks)
