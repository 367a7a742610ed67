"""Gradients are summed over ranks in the dtype that is asked for, over every axis.

https://github.com/jax-ml/jax/issues/27496: gradients computed in bf16 were summed over the data ranks in bf16 and cast to f32
afterwards, where the user had expected the cast to come first.
https://github.com/pytorch/pytorch/pull/190627: reduce_dtype = f32 held for the reduce-scatter of FSDP; the all-reduce over the
tensor-parallel axis, for norms under sequence parallelism, ran in bf16.

Planted after `padding`, as a cast around the sum over tp.  No check of types or of meaning can notice it, since neither
rounds: what notices is that the dtype of each sum is looked at, which `mpc report` shows as well.
"""
import re
import subprocess

import pytest
from conftest import HERE, ranks

LAYOUT = """parallel {{
    mesh dp = 2, tp = 2
    shard batch over dp
    shard heads, ff, vocab over tp else seq
    zero 1 over dp (overlap_grads = false{options})
}}
"""
SUM = re.compile(r"= (?:all_reduce|reduce_scatter) \S+ \{[^}]*axis=([a-z+]+)[^}]*\} : (\w+)\[.* loc\(grad\.\S+\)$", re.M)


def program(tmp_path, options="", kept="f32"):
    model, out = tmp_path / "model.mdl", tmp_path / "program.mir"
    model.write_text((HERE / "models" / "trained.mdl").read_text() + LAYOUT.format(options=options))
    subprocess.run([ranks.MPC, "compile", model, "--set", "train.microbatch=4", "--set", "train.precision=bf16",
                    "--set", f"train.grad_storage={kept}", "--compile-to=padding", "-o", out], check=True)
    return out.read_text()


def sums(text):
    """{axes: dtypes} of the sums of gradients."""
    found = {}
    for axes, dtype in SUM.findall(text):
        found.setdefault(axes, set()).add(dtype)
    return found


@pytest.mark.parametrize("options, kept, dtype", [("", "f32", "f32"), (", grad_dtype = f32", "f32", "f32"),
                                                  (", grad_dtype = bf16", "f32", "bf16"), ("", "bf16", "bf16"),
                                                  (", grad_dtype = f32", "bf16", "f32")])
def test_right(tmp_path, options, kept, dtype):
    assert sums(program(tmp_path, options, kept)) == {"dp": {dtype}, "tp": {dtype}}


def test_planted(tmp_path):
    text, count = re.subn(r"(    )(%\S+) = all_reduce (%\S+) (\{axis=tp[^}]*\}) : f32(\[.*\])( loc\(grad\.last\.gain\))",
                          r"\1%short = cast \3 {dtype=bf16} : bf16\5 partial(tp)\6\n"
                          r"\1%sum = all_reduce %short \4 : bf16\5\6\n\1\2 = cast %sum {dtype=f32} : f32\5\6", program(tmp_path))
    assert count == 1
    planted = tmp_path / "planted.mir"
    planted.write_text(text)
    subprocess.run([ranks.MPC, "print", planted], check=True, stdout=subprocess.DEVNULL)
    assert sums(text) == {"dp": {"f32"}, "tp": {"f32", "bf16"}}
