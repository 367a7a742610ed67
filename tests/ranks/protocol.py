"""What ranks without MPI say when they connect, written from the description in runtime/net/tcp_handshake.c: to speak with
trainers as a stranger, a rank, or rank 0 would."""
import hashlib
import hmac
import os
import socket
import struct
import time

JOIN, CONTROL, DATA = range(3)
WELCOME, NO_SECRET, OTHER_RUN, OTHER_PROGRAM, TAKEN = range(5)
TABLE, ABORT, CALL, ANSWER, CLAIM, BYE = range(6)
MAGIC = b"mpcrank4"
HELLO = struct.Struct("=8s32siiHHIQQ64sQq")
FIELDS = ("magic", "nonce", "rank", "ranks", "kind", "port", "zero", "program", "job", "host", "machine", "pid")
PLACE = struct.Struct("=16sIHH64sQq")


def hello(**fields):
    """Bytes of a hello; what is not said is 0, but the magic, and a new nonce."""
    values = {name: 0 for name in FIELDS} | {"magic": MAGIC, "nonce": os.urandom(32), "host": b"elsewhere", "port": 9} | fields
    return HELLO.pack(*(values[name] for name in FIELDS))


def unpack(data):
    return dict(zip(FIELDS, HELLO.unpack(data)))


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def proof(key, label, caller, called):
    return mac(key, label.ljust(8, b"\0"), caller, called)


def receive(connection, count):
    """Fewer if the other side closes."""
    data = b""
    while len(data) < count:
        try:
            part = connection.recv(count - len(data))
        except ConnectionResetError:
            break
        if not part:
            break
        data += part
    return data


def connect(port, timeout=30):
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=timeout)
            connection.settimeout(timeout)
            return connection
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


class Listener:
    def __init__(self, port=0):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", port))
        self.socket.listen(64)
        self.socket.settimeout(30)
        self.port = self.socket.getsockname()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept(self):
        connection, _ = self.socket.accept()
        connection.settimeout(30)
        return connection


def call(connection, said, key):
    """(verdict, its proof is right, hello of the called): verdict None if the connection is closed before."""
    connection.sendall(said)
    called = receive(connection, HELLO.size)
    if len(called) < HELLO.size:
        return None, False, None
    connection.sendall(proof(key, b"caller", said, called))
    last = receive(connection, 36)
    if len(last) < 36:
        return None, False, called
    return struct.unpack("=i", last[:4])[0], last[4:] == proof(key, b"called", said, called), called


def answer(connection, said, key, verdict=WELCOME):
    """(the caller knows the key, its hello): gives the verdict whatever it has proved."""
    caller = receive(connection, HELLO.size)
    connection.sendall(said)
    is_right = receive(connection, 32) == proof(key, b"caller", caller, said)
    connection.sendall(struct.pack("=i", verdict) + proof(key, b"called", caller, said))
    return is_right, caller


def take_table(connection, ranks, key, said, called):
    """(random number of the run, places): checks who has made it."""
    head = receive(connection, 8)
    assert struct.unpack("=ii", head) == (TABLE, ranks), head
    made, rest = receive(connection, 32), receive(connection, 32 + ranks * PLACE.size)
    assert made == mac(proof(key, b"session", said, called), rest)
    return rest[:32], [PLACE.unpack_from(rest, 32 + q * PLACE.size) for q in range(ranks)]


def make_table(ranks, key, caller, said, random, places):
    rest = random + b"".join(PLACE.pack(*place) for place in places)
    return struct.pack("=ii", TABLE, ranks) + mac(proof(key, b"session", caller, said), rest) + rest
