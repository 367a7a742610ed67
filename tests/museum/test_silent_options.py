"""An option has an effect, or is refused.

https://github.com/karpathy/llm.c/blob/master/llmc/zero.cuh: `-z 2` and `-z 3` are taken, one line says that they are not
supported, and training goes on without ZeRO; so does `-z 1` where the number of parameters does not divide.  In
https://github.com/NVIDIA/NeMo the size of a bucket, `bucket_cap_mb`, is read and not used where Megatron reduces.

Here each stage of ZeRO leaves a rank less of something; a smaller bucket makes more messages; what would have no effect is an
error.
"""
import json
import subprocess

import pytest
from conftest import HERE, LAYOUTS, ranks


def mpc(tmp_path, command, layout, *options):
    model = tmp_path / "model.mdl"
    model.write_text((HERE / "models" / "trained.mdl").read_text() + "parallel {\n" + "\n".join(layout) + "\n}\n")
    return subprocess.run([str(word) for word in (ranks.MPC, command, model, *options)], capture_output=True, text=True)


def classes(stage):
    """Bytes of state, gradients and weights at the peak of a rank, of a model that is mostly layers."""
    model = HERE.parents[1] / "examples" / "gpt2.mdl"
    sizes = [f"-D{size}" for size in ("layers=8", "embed=64", "heads=4", "seq=16", "vocab=250")]
    sizes += [f"--set=train.{setting}" for setting in ("batch=16", "microbatch=2", "precision=bf16")]
    done = subprocess.run([ranks.MPC, "report", model, "--json", "--mesh", "dp=4", "--zero", str(stage), *sizes],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout)["memory"]["classes"]
    return memory["master weights"] + memory["optimizer state"], memory["gradients"], memory["weights"]


def test_each_stage_of_zero():
    (state0, gradients0, weights0), one, two, three = (classes(stage) for stage in range(4))
    assert 4 * one[0] == state0 and one[1:] == (gradients0, weights0)
    assert two[0] == one[0] and two[1] < gradients0 / 2 and two[2] == weights0
    assert three[0] == two[0] and three[1] < gradients0 / 2
    assert weights0 / 4 <= three[2] < weights0 / 2  # its share, and what a layer has gathered


def messages(tmp_path, bucket):
    layout = ("mesh dp = 2", "shard batch over dp", f"zero 1 over dp (bucket = {bucket}, overlap_grads = false)")
    out = tmp_path / "program.mir"
    done = mpc(tmp_path, "compile", layout, "--set", "train.microbatch=4", "--compile-to=padding", "-o", out)
    assert done.returncode == 0, done.stderr
    step = out.read_text().split("func step @step(")[1].split("\n  }\n")[0]
    sums = [line for line in step.splitlines() if "= reduce_scatter %grad." in line]
    numbers = {line.split("bucket=")[1].split(",")[0] for line in sums if "bucket=" in line}
    return len(numbers) + sum("bucket=" not in line for line in sums)


def test_bucket(tmp_path):
    assert messages(tmp_path, 25_000_000) == 1
    assert messages(tmp_path, 4096) > 2


@pytest.mark.parametrize("layout, options, said", [
    (LAYOUTS["tp2-seq"][0], ("--zero", 2), "zero"),
    (("mesh dp = 2", "shard batch over dp", "zero 4 over dp"), (), "0, 1, 2 or 3"),
    (("mesh dp = 2", "shard batch over dp", "zero 0 over dp (bucket_cap_mb = 5)"), (), "bucket_cap_mb"),
])
def test_no_effect(tmp_path, layout, options, said):
    done = mpc(tmp_path, "compile", layout, "--no-cc", "-o", tmp_path / "out", *options)
    assert done.returncode != 0 and said in done.stderr, done.stderr
