"""--replay on a GPU: the state is put back from memory of the host, and a step that is a graph runs again."""
import pytest
from conftest import ROOT, emulated, read_log, some, start

STEPS = 6


def saved(trainer, data, folder, *options, environment=()):
    done = start(trainer.command("--data", data, "--data-format", "bytes", "--steps", STEPS, "--save", "a", "--overwrite", "--log", "log",
                                 *options), folder, 0, environment)
    return (folder / "a").read_bytes(), done.stderr


@pytest.mark.parametrize("model,options,option", some([
    ("gpt2", (), "--no-graph"), ("gpt2", (), "--print-every=1"),
    ("mixtral", ("--offload=optimizer to host",), "--no-graph"), ("mixtral", ("--offload=optimizer to host",), "--print-every=1")], 0, 3))
def test_runs_that_differ_in_nothing(model, options, option, compiled, data, tmp_path):
    trainer = compiled(model, "cuda", (("precision", "bf16"),), options)
    right = saved(trainer, data, tmp_path, option)[0]
    got, said = saved(trainer, data, tmp_path, option, "--replay", 2, "--save-every", 1)
    assert got == right and "other results" not in said
    assert [line["runs"] for line in read_log(tmp_path / "log")] == [1, 2] * (STEPS // 2)


@emulated
def test_flips_are_found(compiled, data, tmp_path):
    """In a tensor on the GPU, before a run or after it: tests/ranks/flip.h."""
    flipping = f"--cflags=-O0 -rdynamic -I{ROOT}/runtime -include {ROOT}/tests/ranks/flip.h"
    trainer = compiled("gpt2", "cuda", (("precision", "bf16"),), (flipping,))
    right = saved(trainer, data, tmp_path, "--no-graph")[0]
    got, said = saved(trainer, data, tmp_path, "--no-graph", "--replay", 1, "--replay-retries", 1, environment=(("FLIP_EVERY", "1"),))
    assert got == right and said.count("two runs from one state have other results") == STEPS
