"""Attention with biases, masks and sinks under layouts: no pass changes what a step computes, with reals and modulo a
prime."""
import subprocess

import pytest

from layouts import MPC, ROOT, product

SIZES = ["-D", "layers=2", "-D", "seq=8", "-D", "distance=15", "-D", "source=4", "-D", "embed=8", "-D", "kv_heads=4", "-D",
         "group=2", "-D", "head=2", "--set", "train.batch=4"]


OPTIONS = ["--verify-passes", "--verify-passes=exact --set train.microbatch=1", "--verify-passes --recompute=full --set train.precision=bf16"]


@pytest.mark.parametrize("mesh, options, attend", product(
    mesh=["dp=2", "cp=2", "tp=2", "cp=4", "dp=2,cp=2", "cp=2,tp=2"], options=OPTIONS, attend=["gather", "all_to_all"]))
def test_logits_under_layouts(mesh, options, attend, tmp_path):
    model = (ROOT / "tests/oracle/logits.mdl").read_text().replace("seq over cp", f"seq over cp (attend = {attend})")
    (tmp_path / "logits.mdl").write_text(model)
    run = subprocess.run([MPC, "compile", tmp_path / "logits.mdl", "--no-cc", "-o", tmp_path, "--mesh", mesh,
                          *SIZES, *options.split()], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
