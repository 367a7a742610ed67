"""The time to compile a program grows as its size: by at most 2.5 for twice the size.

Only mpc is measured, by the processor time of the process, and only against itself in the same run, over programs of
which one is twice as large as the other.  Other processes slow it down: it is tried again where it was too slow,
and the least time of each counts.
"""
import os
import subprocess

import pytest

from conftest import MPC

HEAD = "dim batch\ndim d = 8\n"
MODEL = """model m {{
    input x : [batch, d]
    input y : [batch, d]
    param w : [d] = ones
    h = x * w
{}    loss mean((h - y)^2)
}}
"""
LAYOUT = """parallel {
    mesh dp = 1, tp = 1
    shard batch over dp
    shard d over tp
    zero 1 over dp
}
train {
    batch = 2
}
"""
BLOCK = "block b{}(x: [batch, d]) {{\n    param p : [d] = ones\n    return x * p + {}\n}}\n"
TIMES = 2
MOST = 2.5
ATTEMPTS = 4
LEAST = 0.05  # seconds: what a process takes that does nothing


def lines(count):
    """One value after the other, without parameters."""
    return HEAD + MODEL.format("    h = h + h * 0.5\n" * count)


def shared_value(count):
    """The same, each reads one value."""
    return HEAD + MODEL.format("    h = tanh(h + x)\n" * count)


def numbered_copies(count):
    """Copies that compute with their number, each of them a function."""
    return HEAD + MODEL.format("    repeat 512 as i { h = h * (i + 1) }\n" * (count // 512))


def instances(count):
    """Of one block with a parameter."""
    calls = "".join(f"    h = b(h) as q{i}\n" for i in range(count))
    return HEAD + BLOCK.format("", 1) + MODEL.format(calls)


def blocks(count):
    """Each another one, and called once."""
    calls = "".join(f"    h = b{i}(h) as q{i}\n" for i in range(count))
    return HEAD + "".join(BLOCK.format(i, i + 1) for i in range(count)) + MODEL.format(calls)


def parameters(count):
    """Of the model itself."""
    params = "".join(f"    param p{i} : [d] = ones\n    h = h * p{i}\n" for i in range(count))
    return HEAD + MODEL.format(params)


def repeats(count):
    """All of one name."""
    return HEAD + MODEL.format("    repeat 2 { h = h * 0.9 }\n" * count)


CASES = [(lines, 4096, []), (shared_value, 4096, []), (numbered_copies, 2048, []), (instances, 2048, []),
         (blocks, 1024, []), (parameters, 1024, []), (repeats, 1024, []),
         (blocks, 512, ["--mesh=dp=2,tp=2", "--zero=1"]),
         (lines, 4096, ["--recompute=full", "--set=train.precision=bf16"])]


def seconds(source, out, said):
    """Processor time, in user mode, of one compilation without the C compiler."""
    with open(out.with_suffix(".log"), "w") as log:
        process = subprocess.Popen([MPC, "compile", "--no-cc", source, "-o", out, *said], stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, out.with_suffix(".log").read_text()
    return used.ru_utime


@pytest.mark.parametrize("family,count,said", CASES, ids=lambda case: getattr(case, "__name__", str(case)))
def test_time_grows_as_size(family, count, said, tmp_path):
    sizes, least = [count, TIMES * count], [1e9, 1e9]
    for size in sizes:
        (tmp_path / f"{size}.mdl").write_text(family(size) + LAYOUT)
    for _ in range(ATTEMPTS):
        used = [seconds(tmp_path / f"{size}.mdl", tmp_path / str(size), said) for size in sizes]
        least = list(map(min, least, used))
        if least[1] <= MOST * least[0] + LEAST:
            return
    pytest.fail(f"{least[0]:.2f} s for {count}, {least[1]:.2f} s for {TIMES * count}")
