"""The GPU bench reads what trainers say; here they run on the emulated GPU, whose times mean nothing."""
import importlib.util

import pytest
from conftest import DEVICE, QUIET, ROOT, emulated

TINY = dict(model="gpt2", vocab=250, layers=2, embed=32, heads=2, ff=128)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu", ROOT / "bench" / "gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in {**QUIET, "CUDA_HOME": str(DEVICE), "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    usual = module.compile_command
    monkeypatch.setattr(module, "compile_command", lambda *of: [*usual(*of), "--cflags=-rdynamic"])
    monkeypatch.setattr(module, "OUT", tmp_path)
    monkeypatch.setattr(module, "STEPS", 6)
    return module


@emulated
def test_a_row(bench, tmp_path):
    text = tmp_path / "tokens.u16"
    text.write_bytes(b"".join(bytes((byte % 240, 0)) for byte in (ROOT / "LICENSE").read_bytes()[:4000]))
    ours = bench.measure_mpc(TINY, 2, 16, text, 1e12)
    kinds = {kind: (float(ms), speed, share) for kind, ms, speed, share in ours["kinds"]}
    assert {"product", "attend", "attend_grad", "fused", "update", "gather"} <= set(kinds)
    assert all(ms > 0 for ms, *_ in kinds.values())
    assert {kind for kind, (_, speed, _) in kinds.items() if speed} == set(bench.COMPUTING)
    assert kinds["fused"][2].endswith(" %") and kinds["update"][2].endswith(" %")
    assert all(float(ms) > 0 and share.endswith(" %") and "(" in name for name, ms, share in ours["kernels"])
    assert len(ours["kernels"]) > 10
    assert all(line.count("|") in (0, 4, 5) for line in bench.details_of("tiny", 2, 16, ours))
    assert any("ms by cuDNN" in line for line in bench.details_of("tiny", 2, 16, ours))
    cells = bench.row_text("tiny", 2, 16, ours, dict(ms=2 * ours["ms"], bytes=ours["bytes"] / 2), 1e15).split("|")[1:-1]
    assert len(cells) == bench.HEAD.split("\n")[0].count("|") - 1 and [cell.strip() for cell in cells[-2:]] == ["2.00", "2.00"]


def test_a_failure(bench, monkeypatch):
    """Of one row or of PyTorch does not end the others."""
    def fail(*of):
        bench.run(["sh", "-c", "echo no GPU; exit 3"])

    monkeypatch.setattr(bench, "measure_mpc", fail)
    row, details, failure = bench.measure("tiny", TINY, 2, 16, None, 0, 1e15, True)
    assert "failed" in row and row.count("|") == bench.HEAD.split("\n")[0].count("|") and not details and "no GPU" in failure
    monkeypatch.setattr(bench, "PATIENCE", 0.1)
    with pytest.raises(bench.Failed, match="still runs after 0.1 s"):
        bench.run(["sleep", "60"])
