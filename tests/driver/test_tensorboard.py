"""mpc plot --tensorboard: read by TensorBoard itself, where `make tensorboard` has installed it, and by a second reader."""
import json
import os
import struct
import subprocess

import numpy as np
import pytest
from conftest import ROOT

PYTHON = ROOT / os.environ.get("BUILD", "build") / "tensorboard/bin/python"
READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
found.Reload()
print(json.dumps({tag: [(e.wall_time, e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}))
"""
LOG = [dict(step=t, loss=3 / t, grad_norm=None if t == 5 else 1.5 * t, lr=1e-3, tokens_per_s=12345.6, step_ms=250.0,
            peak_bytes=10**10, rank_bytes=[1, 2], **({"eval_loss": 2.5} if t % 4 == 0 else {})) for t in range(1, 301)]


@pytest.fixture
def logs(mpc):
    for name in ("a", "b"):
        (mpc.directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LOG) + '{"step": 9')
    return mpc


def expected(end):
    """Each number of each step; the file was written when the last one ended."""
    wanted = {}
    for line in LOG:
        lists = {f"{tag}/{i}": one for tag, value in line.items() if isinstance(value, list) for i, one in enumerate(value)}
        for tag, value in (line | lists).items():
            if tag != "step" and isinstance(value, (int, float)):
                wanted.setdefault(tag, []).append((end - 0.25 * (300 - line["step"]), line["step"], float(np.float32(value))))
    return wanted


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """(number, value) of the wire format of protocol buffers."""
    def varint(at):
        number, shift = 0, 0
        while True:
            number |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                return number, at
    at = 0
    while at < len(data):
        key, at = varint(at)
        if key & 7 == 0:
            value, at = varint(at)
        else:
            size, at = varint(at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def read(path):
    raw, found, at = path.read_bytes(), {}, 0
    versions = []
    while at < len(raw):
        size, = struct.unpack_from("<Q", raw, at)
        assert struct.unpack_from("<I", raw, at + 8)[0] == crc32c(raw[at:at + 8])
        data = raw[at + 12:at + 12 + size]
        assert struct.unpack_from("<I", raw, at + 12 + size)[0] == crc32c(data)
        at += 16 + size
        event = dict(fields(data))
        versions.append(event.get(3))
        for _, value in fields(event.get(5, b"")):
            value = dict(fields(value))
            found.setdefault(value[1].decode(), []).append((struct.unpack("<d", event[1])[0], event[2],
                                                           struct.unpack("<f", value[2])[0]))
    assert versions[0] == b"brain.Event:2" and not any(versions[1:])
    return found


def test_crc_of_the_published_vectors():
    """RFC 3720, B.4, unmasked."""
    unmask = lambda crc: (lambda x: (x >> 17 | x << 15) & 0xFFFFFFFF)((crc - 0xA282EAD8) & 0xFFFFFFFF)
    assert unmask(crc32c(bytes(32))) == 0x8A9136AA and unmask(crc32c(bytes(range(32)))) == 0x46DD794E


def test_a_second_reader(logs):
    logs("plot", "a.jsonl", "b.jsonl", "--tensorboard", "runs/all")
    end = int((logs.directory / "a.jsonl").stat().st_mtime)
    path, = (logs.directory / "runs/all/a").iterdir()
    assert read(path) == expected(end)
    assert len(list((logs.directory / "runs/all").iterdir())) == 2


def test_both_at_once_and_again(logs):
    for _ in range(2):
        assert logs("plot", "a.jsonl", "--tensorboard=runs", "-o", "page.html").stdout == ""
    assert (logs.directory / "page.html").exists() and len(list((logs.directory / "runs/a").iterdir())) == 1


@pytest.mark.skipif(not PYTHON.exists(), reason="no TensorBoard: `make tensorboard` installs it")
def test_tensorboard_reads_it(logs):
    logs("plot", "a.jsonl", "--tensorboard", "runs")
    end = int((logs.directory / "a.jsonl").stat().st_mtime)
    done = subprocess.run([PYTHON, "-c", READ, logs.directory / "runs/a"], check=True, capture_output=True, text=True, timeout=120)
    found = {tag: [tuple(event) for event in events] for tag, events in json.loads(done.stdout).items()}
    assert found == expected(end)
