"""Which rank the others wait for: in the log, in a note, and in the page of mpc plot."""
import re
import subprocess

import pytest
from conftest import MPC, QUICK, ROOT, layout_of, read_log, start

SLOW = (f"{QUICK} -I{ROOT}/runtime -include {ROOT}/tests/ranks/flip.h", "--comm=tcp")
LATE = 30  # ms


@pytest.fixture
def run(compiled, text, tmp_path):
    """run(steps, option, ..., SLOW_...=value): (log, stderr) of four ranks."""
    def go(steps, *options, **environment):
        one = compiled("gpt2", layout_of("gpt2", dict(dp=2, tp=2)), dict(layers=2, embed=16, heads=2, seq=8), {"microbatch": 4}, *SLOW)
        command = one.command("--data", text, "--data-format", "bytes", "--steps", steps, "--log", "log", *options)
        done = start(command, tmp_path, 0, {name: str(value) for name, value in environment.items()}.items())
        return read_log(tmp_path / "log"), done.stderr
    return go


def test_the_slow_rank_is_named_once(run, tmp_path):
    log, said = run(120, SLOW_RANK=2, SLOW_MS=LATE)
    named = re.findall(r"note: steps (\d+) to (\d+): (rank \d) \((.*?)\) on \S+ takes (\S+) times as long as the median rank for its own work", said)
    assert [row[:4] for row in named if row[2] == "rank 2"] == [("1", "50", "rank 2", "dp 1, tp 0")] and float(named[0][4]) > 1.2
    steps = log[10:]
    waited, late = ([sum(line[key][rank] for line in steps) / len(steps) for rank in range(4)] for key in ("rank_wait_ms", "rank_late_ms"))
    assert max(range(4), key=lambda rank: late[rank]) == 2 and late[2] > 0.7 * LATE and min(range(4), key=lambda rank: waited[rank]) == 2
    assert all(waited[rank] > 0.5 * LATE for rank in (0, 1, 3))
    assert all(line["rank_wait_ms"][0] >= line["comm_wait_ms"] - 0.002 for line in log)
    page = subprocess.run([MPC, "plot", tmp_path / "log"], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"<tr><td>log</td><td>(\d)</td><td>(\S+)</td><td>(\S+)</td></tr>", page)
    assert [int(rank) for rank, *_ in rows] == [0, 1, 2, 3]
    for rank, shown_wait, shown_late in rows:
        mean = [sum(line[key][int(rank)] for line in log) / len(log) for key in ("rank_wait_ms", "rank_late_ms")]
        assert [float(shown_wait), float(shown_late)] == pytest.approx(mean, abs=0.051)
