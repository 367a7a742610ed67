"""Softmaxes of blocks of keys are merged in f32, in all steps of a ring.

https://github.com/Dao-AILab/flash-attention/pull/2723: each step's result went through bf16, and so did the gradient of the
queries; https://github.com/tenstorrent/tt-metal/pull/41683: what was kept of the sums of exponentials was bf16, and
training had spikes.

Planted after `padding`, as casts around a merge.  No check of types or of meaning can notice it, since neither rounds: what
notices is that the dtype of every merge and of its operands is looked at.
"""
import re
import subprocess

from conftest import ranks

LAYOUT = "parallel {\n    mesh cp = 4\n    shard seq over cp (attend = ring)\n}\n"
VALUE = re.compile(r"^    (%\S+) = (\w+) (.*?)(?: \{.*)? : (\w+)\[", re.M)
STEP = re.compile(r"^    (%\S+) = (\w+) (.*?) \{step=\d+\} : (\w+)\[", re.M)


def program(tmp_path):
    model, out = tmp_path / "model.mdl", tmp_path / "program.mir"
    model.write_text((ranks.ROOT / "examples" / "llama.mdl").read_text().split("parallel {")[0] + LAYOUT)
    said = [word for name, size in ranks.SIZES["llama"].items() for word in ("-D", f"{name}={size}")]
    subprocess.run([ranks.MPC, "compile", model, *said, "--set=train.batch=2", "--set=train.microbatch=2",
                    "--set=train.precision=bf16", "--compile-to=padding", "-o", out], check=True)
    return out.read_text()


def dtypes(text):
    """Of the merges of a layer's steps, and of values from which a cast makes their operands."""
    found = set()
    for layer in re.split(r"(?m)^(?=  func )", text):
        made = {name: (kind, operands, dtype) for name, kind, operands, dtype in VALUE.findall(layer)}
        for _, kind, operands, dtype in STEP.findall(layer):
            found.add((kind, dtype))
            casts = [made[x][1] for x in operands.split(", ") if made.get(x, " ")[0] == "cast"]
            found |= {(kind, made[x][2]) for x in casts if made.get(x, " ")[0] == "cast"}  # to bf16, and back
    return found


def test_right(tmp_path):
    found = dtypes(program(tmp_path))
    assert {kind for kind, _ in found} == {"lse_add", "lse_share", "sub", "mul", "add"}
    assert {dtype for _, dtype in found} == {"f32"}


def test_planted(tmp_path):
    text, count = re.subn(r"    (%\S+) = lse_add (%\S+), (%\S+) (\{step=2\}) : f32(\[.*\])( loc\(.*\))",
                          r"    %short = cast \2 {dtype=bf16} : bf16\5\6\n    %back = cast %short {dtype=f32} : f32\5\6\n"
                          r"    \1 = lse_add %back, \3 \4 : f32\5\6", program(tmp_path), count=1)
    planted = tmp_path / "planted.mir"
    planted.write_text(text)
    subprocess.run([ranks.MPC, "print", planted], check=True, stdout=subprocess.DEVNULL)
    assert count == 1 and ("lse_add", "bf16") in dtypes(text)
