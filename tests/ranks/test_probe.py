"""`--probe`: the file that it writes is a machine by `mpc check`, says what was there, and has plausible numbers; what it
does not go with."""
import os
import re

import pytest
from conftest import MPC, TCP, by_hand, free_port, layout_of, mpirun, some, start

SMALL = {"layers": 1, "embed": 32, "heads": 2, "seq": 16}
UNIT = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
KINDS = ("", " all_reduce", " reduce_scatter", " all_to_all", " send", " rotate")
QUANTITY = re.compile(r"([0-9.e+]+) ?([numkMGTP]?)(B/s|FLOP/s|FLOP|B|s|%|)$")


def number(text):
    found = QUANTITY.match(text)
    assert found, text
    return float(found[1]) * UNIT[found[2]] * (0.01 if found[3] == "%" else 1)


def read(path):
    """Its lines, by key: words, a number, or points."""
    lines = {}
    for line in re.sub(r"\n +", " ", path.read_text()).splitlines():
        key, value, *origin = re.split(r"  +", line)
        assert key not in lines and (key == "name" or origin == ["measured", "trainer --probe"])
        lines[key] = value if key == "name" else (
            [tuple(map(number, point.split(":"))) for point in value.split()] if ":" in value else number(value))
    return lines


def probe(trainer, folder, *options, environment=(), seconds=0.5):
    path = folder / "own.machine"
    start(trainer.command("--probe", path, "--probe-seconds", seconds, "--overwrite", *options), folder, environment=environment,
          timeout=300)
    assert start([MPC, "check", path], folder).stdout.startswith(f"{path}: ok: ")
    return read(path)


def check_compute(machine, of_rank=1):
    """Larger products and copies take no less time; nothing is faster than a processor of today."""
    for precision in ("f32", "bf16"):
        peak, curve = machine[f"flops {precision}"], machine[f"products {precision}"]
        assert 1e8 < peak < 1e14 and max(share for _, share in curve) == 1
        seconds = [flops / (peak * share) for flops, share in curve]
        assert all(late >= early * 0.999 for early, late in zip(seconds, seconds[1:]))
        for width in (32, 64, 128, 256):
            for way in ("forward", "backward"):
                rates = machine[f"attention {way} {precision} {width}"]
                assert [keys for keys, _ in rates] == [64, 256, 1024]
                assert all(1e7 < rate < 1e13 for _, rate in rates)
    seconds = [bytes_ / rate for bytes_, rate in machine["copy"]]
    assert all(late >= early * 0.999 for early, late in zip(seconds, seconds[1:]))
    assert 1e7 < machine["elementwise"] < 1e13 and 0 < machine["launch"] < 1
    assert 1e8 < machine["memory"] * of_rank <= 1.01 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_link(machine, link):
    """Of each kind, a larger message takes no less time: latency, and bytes at its bandwidth."""
    assert 0 < machine["message"] < 1 and 0 < machine[f"latency {link}"] < 1
    for kind in KINDS:
        curve = machine[link + kind]
        assert all(1e5 < rate < 1e13 for _, rate in curve)
        seconds = [bytes_ / rate for bytes_, rate in curve]
        assert all(late >= early * 0.9 for early, late in zip(seconds, seconds[1:]))


def test_one_rank(compiled, tmp_path):
    machine = probe(compiled("chars", (), SMALL), tmp_path)
    check_compute(machine)
    assert machine["ranks on a machine"] == 1 and machine["name"].startswith("1 rank of 1 on a machine, 1 thread each, ")
    assert not [key for key in machine if key.startswith(("within", "between", "latency", "message", "overlap"))]


@pytest.mark.parametrize("comm", some(["mpi", "tcp"], 0))
def test_two_ranks(compiled, tmp_path, comm):
    trainer = compiled("chars", layout_of("chars", dict(dp=2)), SMALL, {"microbatch": 2}, *(TCP if comm == "tcp" else ()))
    trainer.launch = by_hand if comm == "tcp" else mpirun
    machine = probe(trainer, tmp_path, seconds=0.25)
    check_compute(machine, of_rank=2)
    check_link(machine, "within")
    assert machine["ranks on a machine"] == 2 and 0 <= machine["overlap"] <= 1
    assert not [key for key in machine if "between" in key]


def test_four_ranks_on_two_machines(compiled, tmp_path):
    """The launcher says who is where; all are here, so that both kinds of links are as fast."""
    trainer = compiled("chars", layout_of("chars", dict(dp=4)), SMALL, {"microbatch": 2}, *TCP)
    started = 'for rank in 0 1 2 3; do RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 "$@" & done; wait'
    trainer.launch = lambda ranks, *command: ["sh", "-c", started, "sh", *command]
    machine = probe(trainer, tmp_path, seconds=0.1,
                    environment={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())})
    assert machine["ranks on a machine"] == 2 and machine["name"].startswith("4 ranks of 2 on a machine")
    check_link(machine, "within")
    check_link(machine, "between")


def test_refused(compiled, tmp_path):
    trainer = compiled("chars", (), SMALL)
    (tmp_path / "data").write_bytes(b"a" * 1000)
    (tmp_path / "there.machine").write_text("mine")
    for options, message in [(("--probe", "a.machine", "--data", "data"), "--probe trains nothing: leave --data out"),
                             (("--probe", "a.machine", "--save", "s"), "--probe trains nothing: leave --save out"),
                             (("--probe", "a.machine", "--steps", "5"), "--probe trains nothing: leave --steps out"),
                             (("--probe", "a.machine", "--seed=1"), "--probe trains nothing: leave --seed out"),
                             (("--probe", "a.machine", "--print-mesh"), "--probe trains nothing: leave --print-mesh out"),
                             (("--probe-seconds", "3", "--steps", "0"), "--probe-seconds has no effect without --probe")]:
        assert message in start(trainer.command(*options), tmp_path, status=2).stderr
    done = start(trainer.command("--probe", "there.machine"), tmp_path, status=1)
    assert "--probe there.machine: the file already exists and would be lost" in done.stderr
    assert (tmp_path / "there.machine").read_text() == "mine" and not (tmp_path / "a.machine").exists()
