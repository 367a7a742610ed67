"""Stages with different numbers of copies: each holds the weights, gradients and optimizer state of its own copies, and
nothing of the others; checkpoints are those of one process, and load into any other number of stages."""
import json
import struct

import pytest
from conftest import TCP, layout_of, memory_as_planned, read_log, some, start
from test_layouts import reference, same_training  # noqa: F401 (a fixture)

STEPS = 4
SIZES = {"layers": 7, "embed": 64, "vocab": 256}  # each weight fills whole cache lines, also half of it


def bytes_of(checkpoint):
    """{tensor: bytes}, as the file says."""
    size, = struct.unpack("<Q", checkpoint[:8])
    header = json.loads(checkpoint[8:8 + size])
    return {name: entry["data_offsets"][1] - entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"}


def stage_of(name, stages):
    """Those that hold the tensor of gpt2: embeddings are on the first, the head and the tied embedding on the last."""
    name = name.removeprefix("optimizer.m.").removeprefix("optimizer.v.")
    if not name.startswith("h."):
        return {"wte": (0, len(stages) - 1), "wpe": (0,)}.get(name, (len(stages) - 1,))
    copy = int(name.split(".")[1])
    return next((stage,) for stage in range(len(stages)) if copy < sum(stages[:stage + 1]))


KINDS = {  # mesh, stages, settings of layout_of
    "pp3": (dict(pp=3), [1, 4, 2], {}),
    "pp2-naive": (dict(pp=2), [5, 2], dict(schedule="naive")),
    "pp2-zb": (dict(pp=2), [2, 5], dict(schedule="zb")),
    "dp2-pp2": (dict(dp=2, pp=2), [2, 5], {}),
    "pp2-dp2-zero1": (dict(pp=2, dp=2), [5, 2], dict(zero=1)),
    "dp2-pp2-zero1-overlap": (dict(dp=2, pp=2), [1, 6], dict(zero=1, options="overlap_grads, overlap_params")),
    "dp2-pp2-overlap": (dict(dp=2, pp=2), [1, 6], dict(options="overlap_grads, bucket = 65536")),
    "dp2-pp2-zero2": (dict(dp=2, pp=2), [1, 6], dict(zero=2)),
    "dp2-pp2-zero3": (dict(dp=2, pp=2), [6, 1], dict(zero=3)),
    "dp2-pp2-zero3-step": (dict(dp=2, pp=2), [6, 1], dict(zero=3, options="gather = step")),
    "pp2-tp2": (dict(pp=2, tp=2), [3, 4], {}),
}


@pytest.mark.parametrize("kind, precision", some([(kind, "fp32") for kind in KINDS] +
                                                 [(kind, "bf16") for kind in ("pp3", "pp2-dp2-zero1", "dp2-pp2-zero3")], 0, 2, 5, 8, 9, 10, 12))
def test_own_copies(compiled, text, tmp_path, reference, kind, precision):  # noqa: F811
    mesh, stages, how = KINDS[kind]
    settings = {"microbatch": 4 // mesh.get("dp", 1), "precision": precision}
    trainer = compiled("gpt2", layout_of("gpt2", mesh, stages=stages, **how), SIZES, settings, *TCP)
    start(trainer.command("--data", text, "--data-format", "bytes", "--steps", STEPS, "--log", "log", "--save", "saved"), tmp_path)
    log = read_log(tmp_path / "log")
    alone = {} if precision == "fp32" else {"precision": precision}
    same_training(log, reference("gpt2", tuple(SIZES.items()), alone)[:STEPS], *([precision] if alone else []))
    plan = memory_as_planned(trainer, mesh, log)
    sizes = bytes_of((tmp_path / "saved").read_bytes())
    states = [name for name in sizes if name.startswith("optimizer.")]
    shared = mesh.get("tp", 1) == 1 and (mesh.get("dp", 1) if how.get("zero") else 1)
    for stage, held in enumerate(plan["kinds"]):
        own = sum(sizes[name] for name in states if stage in stage_of(name, stages))
        if shared:
            assert held["optimizer"] == own // shared
        else:  # norms and biases are not split over tp
            assert own // 2 <= held["optimizer"] < 0.6 * own


def test_checkpoints(compiled, text, tmp_path):
    """What one layout has saved is, loaded and saved by others, the same file."""
    layouts = [(dict(pp=3), dict(stages=[1, 4, 2])), (dict(dp=2, pp=2), dict(zero=3, stages=[6, 1])),
               (dict(pp=2), dict(schedule="interleaved", chunks=2)), (dict(dp=2, pp=2), dict(zero=1, stages=[2, 5])), ({}, {})]
    for number, (mesh, how) in enumerate(layouts):
        trainer = compiled("gpt2", layout_of("gpt2", mesh, **how) if mesh else (), SIZES, {"microbatch": 2 // mesh.get("dp", 1)}, *TCP)
        load = ("--load", f"{number - 1}", "--steps", 0) if number else ("--steps", STEPS, "--data", text, "--data-format", "bytes")
        start(trainer.command(*load, "--save", f"{number}"), tmp_path)
    saved = [(tmp_path / f"{number}").read_bytes() for number in range(len(layouts))]
    assert all(file == saved[0] for file in saved)


def test_evaluation_and_sampling(compiled, text, tmp_path):
    """Weights are at the same places in the step, the evaluation and the prediction."""
    said = []
    for mesh, how in (({}, {}), (dict(pp=3), dict(stages=[1, 4, 2])), (dict(dp=2, pp=2), dict(zero=1, stages=[5, 2]))):
        trainer = compiled("gpt2", layout_of("gpt2", mesh, **how) if mesh else (), SIZES, {"microbatch": 4 // mesh.get("dp", 1)}, *TCP)
        words = ["--data", text, "--data-format", "bytes", "--eval-data", text, "--eval-every", 1, "--eval-batches", 2, "--steps", 2]
        start(trainer.command(*words, "--log", "log", "--save", "c", "--overwrite"), tmp_path)
        sample = start(trainer.command("--load", "c", "--steps", 0, "--sample", 12, "--temperature", 0), tmp_path).stdout
        said.append((read_log(tmp_path / "log")[-1]["eval_loss"], sample))
    for loss, sample in said[1:]:
        assert loss == pytest.approx(said[0][0], rel=1e-5) and sample == said[0][1]
