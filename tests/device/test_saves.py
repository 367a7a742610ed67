"""Saves beside training: the state is copied on a stream of its own, before the next step changes it."""
import pytest
from conftest import emulated, read_log, some, start

STEPS = 5


@pytest.fixture(scope="module")
def gpt2(compiled):
    return compiled("gpt2", "cuda", (("precision", "bf16"),))


def kept(trainer, data, folder, *options, environment=(), status=0):
    """The checkpoints of the first steps, by name; later runs replace them."""
    start(trainer.command("--data", data, "--data-format", "bytes", "--steps", STEPS, "--save", "a", "--save-every", 1, "--keep", STEPS,
                          "--overwrite", "--log", "log", *options), folder, status, environment)
    return {path.name: path.read_bytes() for path in folder.glob("a.step*")}


@pytest.mark.parametrize("option", some(["--no-graph", "--print-every=1"], 1))
def test_the_bits_are_those_of_saves_that_training_waits_for(option, gpt2, data, tmp_path):
    """Launch by launch, and with a graph, which waits for an event from outside."""
    waiting = kept(gpt2, data, tmp_path, option, "--save-wait")
    assert len(waiting) == STEPS and kept(gpt2, data, tmp_path, option) == waiting
    assert read_log(tmp_path / "log")[-1]["save_wait_ms"] is None


@emulated
@pytest.mark.parametrize("option", some(["--no-graph", "--print-every=1"], 1))
def test_a_missing_wait_is_noticed(option, gpt2, data, tmp_path):
    """The third wait for an event is that of the second step for the copy of the first one, after those of the first step
    and of the copy; left out as if the runtime had forgotten it, other bytes are saved.  The copy is as late as it may be."""
    right = kept(gpt2, data, tmp_path, option)
    late = {"EMULATED_IN_ORDER": "1"}
    assert kept(gpt2, data, tmp_path, option, environment=late.items()) == right
    assert kept(gpt2, data, tmp_path, option, environment={**late, "EMULATED_FORGET_WAIT": "3"}.items()) != right


def test_offloaded_state(compiled, data, tmp_path):
    """In memory of the host, from where a step fetches it, and where it puts it back."""
    trainer = compiled("gpt2", "cuda", (("precision", "bf16"),), ("--offload=optimizer to host",))
    waiting = kept(trainer, data, tmp_path, "--save-wait")
    assert len(waiting) == STEPS and kept(trainer, data, tmp_path) == waiting


def test_the_best_one(gpt2, data, tmp_path):
    """Under a second name; its bytes are those of that step."""
    evaluate = ("--eval-fraction", 0.2, "--eval-every", 2, "--eval-batches", 1, "--keep-best")
    steps = kept(gpt2, data, tmp_path, *evaluate)
    losses = {line["step"]: line["eval_loss"] for line in read_log(tmp_path / "log") if "eval_loss" in line}
    best = min(losses, key=losses.get)
    assert (tmp_path / "a.best").read_bytes() == steps[f"a.step{best}"]
