"""Tensors offloaded to the host: trainers for GPUs do what they do with all of them on the GPU."""
import json

import pytest
from conftest import read_log, some, start
from test_one_rank import assert_same, train
from test_ranks import run

STEPS = 3
CASES = [(model, precision, what) for model, precision in (("gpt2", "bf16"), ("llama", "fp32"), ("mixtral", "bf16"), ("chars", "fp16"))
         for what in ("optimizer", "params", "optimizer, params", "activations", "optimizer, params, activations")]


def trainers(compiled, model, settings, what, *options):
    return [compiled(model, "cuda", settings, options), compiled(model, "cuda", settings, (*options, f"--offload={what} to host"))]


@pytest.mark.parametrize("model,precision,what", some(CASES, 0, 11, 19))
def test_training(model, precision, what, compiled, data, tmp_path):
    """The optimizer's state is where it was, bit for bit; products of weights that are apart add in another order."""
    settings = (("precision", precision),)
    logs = [train(trainer, data, tmp_path / str(i), "--save", "saved") for i, trainer in
            enumerate(trainers(compiled, model, settings, what))]
    assert_same(logs[1], logs[0], precision)
    if what == "optimizer":
        assert [[line[key] for key in ("loss", "grad_norm")] for line in logs[1]] == [[line[key] for key in ("loss", "grad_norm")] for line in logs[0]]
        assert (tmp_path / "1/saved").read_bytes() == (tmp_path / "0/saved").read_bytes()


@pytest.mark.parametrize("option", some(["--no-graph", "--print-every=1"], 1))
def test_just_in_time(option, compiled, data, tmp_path):
    """Updates that wait for the next step, in graphs and in steps that are replayed."""
    logs = []
    for i, when in enumerate(("", " just_in_time")):
        trainer = compiled("gpt2", "cuda", (("precision", "bf16"),), (f"--offload=optimizer to host{when}",))
        folder = tmp_path / str(i)
        folder.mkdir()
        start(trainer.command("--data", data, "--data-format", "bytes", "--steps", 7, "--log", "log", "--save", "saved", "--save-every", 3, "--replay", 2,
                              "--eval-data", data, "--eval-every", 5, "--eval-batches", 2, option), folder)
        logs.append(read_log(folder / "log"))
    assert [[line.get(key) for key in ("loss", "grad_norm", "eval_loss")] for line in logs[1]] == [[line.get(key) for key in ("loss", "grad_norm", "eval_loss")] for line in logs[0]]
    assert (tmp_path / "1/saved").read_bytes() == (tmp_path / "0/saved").read_bytes()


@pytest.mark.parametrize("mesh,together", [("dp=1", " 2"), ("pp=2", "")])
def test_just_in_time_in_micro_batches(mesh, together, compiled, data, tmp_path):
    """With the forward passes of both micro-batches, and on the stages of a pipeline."""
    logs = []
    for i, when in enumerate(("", f" just_in_time{together}")):
        trainer = compiled("gpt2", "cuda", (("precision", "bf16"),), (f"--mesh={mesh}", f"--offload=optimizer to host{when}"))
        run(trainer, mesh, data, tmp_path / str(i), "--save", "saved")
        logs.append(read_log(tmp_path / str(i) / "log"))
    assert [[line[key] for key in ("loss", "grad_norm")] for line in logs[1]] == [[line[key] for key in ("loss", "grad_norm")] for line in logs[0]]
    assert (tmp_path / "1/saved").read_bytes() == (tmp_path / "0/saved").read_bytes()


@pytest.mark.parametrize("option", some(["--no-graph", "--print-every=1"], 1))
def test_resumed(option, compiled, data, tmp_path):
    """State is saved from the host, loaded to it, and read by evaluation, launch by launch or as a graph."""
    def run_to(trainer, steps, *options):
        start(trainer.command("--data", data, "--data-format", "bytes", "--eval-data", data, "--eval-batches", 2, "--log", "log", "--steps", steps, "--overwrite", option, *options), tmp_path)
        return read_log(tmp_path / "log")
    plain, trainer = trainers(compiled, "gpt2", (("precision", "bf16"),), "optimizer")
    log = run_to(plain, STEPS)
    run_to(trainer, STEPS - 1, "--save", "saved")
    resumed = run_to(trainer, STEPS, "--load", "saved")
    assert [resumed[-1][key] for key in ("loss", "eval_loss")] == [log[-1][key] for key in ("loss", "eval_loss")]


@pytest.mark.parametrize("option", [[], ["--no-graph"]])
def test_traffic_is_logged(option, compiled, data, tmp_path):
    """As planned, also of steps that are a graph; how long the GPU waits nobody measures."""
    trainer = trainers(compiled, "gpt2", (("precision", "bf16"),), "optimizer")[1]
    start(trainer.command("--data", data, "--data-format", "bytes", "--log", "log", "--steps", 4, "--overwrite", *option), tmp_path)
    planned = json.loads((trainer.folder / "plan.json").read_text())["memory"]["offloaded"]
    assert [(line["offload_bytes"], line["offload_wait_ms"]) for line in read_log(tmp_path / "log")] == 4 * [(planned["read"] + planned["written"], None)]


@pytest.mark.parametrize("mesh,zero", some([("dp=2", 3), ("tp=2", 0), ("pp=2", 1)], 2))
def test_ranks(mesh, zero, compiled, data, tmp_path):
    settings = (("precision", "fp32"), ("batch", 8), ("microbatch", 4))
    logs = []
    for i, trainer in enumerate(trainers(compiled, "llama" if mesh.startswith("pp") else "gpt2", settings, "optimizer, params", "--mesh", mesh, "--zero", zero)):
        run(trainer, mesh, data, tmp_path / str(i))
        logs.append(read_log(tmp_path / str(i) / "log"))
    assert_same(logs[1], logs[0], "fp32")
