"""Messages that cross the borders of layers: two ranks train like one."""
import pytest
from conftest import TCP, layout_of, read_log, start

STEPS = 4
SIZES = dict(layers=3, seq=16, embed=8, kv_heads=2, group=1, head=4, ff=8192)  # an odd number of iterations


@pytest.mark.parametrize("abreast, ff", [(1, 2048), (2, 8192)])
def test_two_ranks_train_like_one(abreast, ff, compiled, text, tmp_path):
    settings = {"batch": 4, "microbatch": 1, "precision": "fp32", "clip": 0.5}
    sizes = {**SIZES, "ff": ff}
    found = []
    for name, layout in (("one", ("mesh dp = 1", "shard batch over dp")), ("two", layout_of("llama", dict(tp=2), otherwise=" else seq"))):
        count = abreast if name == "two" else 1
        trainer, folder = compiled("llama", layout, sizes, {**settings, "abreast": count}, *TCP), tmp_path / name
        folder.mkdir()
        start(trainer.command("--data", text, "--data-format", "bytes", "--steps", STEPS, "--log", "log"), folder)
        found.append([line[key] for line in read_log(folder / "log") for key in ("loss", "grad_norm")])
    source = (trainer.source.parent / "out/trainer.c").read_text()
    assert "_whole_next = " in source
    assert len(found[0]) == 2 * STEPS and found[1] == pytest.approx(found[0], rel=2e-4)
