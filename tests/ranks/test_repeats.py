"""Several repeats that share the stages of a pipeline: an encoder with a decoder, layers of three kinds, and a
repeat that numbers its copies.  The training of
one process, under each schedule and beside other axes, from and to checkpoints of other numbers of stages."""
import itertools
import re

import pytest
from conftest import QUICK, ROOT, Trainer, by_hand, read_log, some, start
from test_layouts import same_training

STEPS = 5
MODELS = ["encoder_decoder", "three_repeats", "numbered_layers"]


@pytest.fixture(scope="session")
def repeats(tmp_path_factory):
    """repeats(model, "pp=2", option, ...): its Trainer for that mesh, in micro-batches of one sequence."""
    made = {}

    def make(model, mesh="", *options):
        key = (model, mesh, options)
        if key not in made:
            folder = tmp_path_factory.mktemp(model)
            words = ["--comm=tcp", f"--mesh={mesh}", "--set", "train.microbatch=1"] if mesh else []
            start([ROOT / "build" / "mpc", "compile", ROOT / "tests" / "ranks" / f"{model}.mdl", "-o", folder / "out", *words,
                   *options, QUICK], folder)
            ranks = 1
            for size in re.findall(r"=(\d+)", mesh):
                ranks *= int(size)
            made[key] = Trainer(folder, ranks, by_hand)
        return made[key]
    return make


@pytest.fixture(scope="session")
def alone(repeats, text, tmp_path_factory):
    """alone(model): the log of one process, without micro-batches."""
    logs = {}

    def run(model):
        if model not in logs:
            folder = tmp_path_factory.mktemp("alone")
            start(repeats(model).command("--data", text, "--data-format", "bytes", "--steps", STEPS, "--log", "log"), folder)
            logs[model] = read_log(folder / "log")
        return logs[model]
    return run


def test_the_models_learn(alone):
    for model in MODELS:
        losses = [line["loss"] for line in alone(model)]
        assert losses[-1] < 0.97 * losses[0]


@pytest.mark.parametrize("model, mesh, options", some([(model, *how) for model in MODELS for how in [
    ("pp=2", ["--schedule=zb"]), ("pp=4", []), ("dp=2,pp=2", ["--zero=3", "--stages=3,4"])]], 1, 5, 6))
def test_verified(tmp_path, model, mesh, options):
    """Every pass, on virtual ranks, in reals and modulo a prime."""
    start([ROOT / "build" / "mpc", "compile", ROOT / "tests" / "ranks" / f"{model}.mdl", "-o", "out", f"--mesh={mesh}",
           "--set", "train.microbatch=1", "--verify-passes=exact", "--no-cc", *options], tmp_path)


# Without ALL each schedule with each number of stages for one of the models.
@pytest.mark.parametrize("model, pp, schedule", some(itertools.product(MODELS, [2, 4], ["naive", "gpipe", "1f1b", "zb"]),
                                                     *(number % 3 * 8 + number for number in range(8))))
def test_schedules(repeats, train, alone, model, pp, schedule):
    same_training(train(repeats(model, f"pp={pp}", f"--schedule={schedule}"), STEPS), alone(model))


@pytest.mark.parametrize("model, mesh, options", some([
    ("encoder_decoder", "pp=2", ["--stages=3,4"]),                  # the second begins where the first has ended
    ("encoder_decoder", "pp=3", ["--stages=2,1,4", "--recompute=full"]),
    ("encoder_decoder", "pp=3", ["--stages=1,5,1", "--schedule=zb"]),
    ("encoder_decoder", "dp=2,pp=2", ["--zero=1"]),
    ("encoder_decoder", "dp=2,pp=2", ["--zero=3", "--schedule=zb"]),
    ("encoder_decoder", "pp=2,tp=2", ["--recompute=selective"]),
    ("three_repeats", "pp=4", ["--stages=1,1,1,4"]),                # three of them on one stage
    ("three_repeats", "pp=3", ["--stages=2,3,2", "--schedule=zb"]),
    ("three_repeats", "pp=2,dp=2", ["--zero=2", "--schedule=gpipe"]),
    ("three_repeats", "dp=2,pp=2,tp=2", ["--zero=3", "--recompute=full"]),
    ("encoder_decoder", "pp=2", ["--schedule=interleaved"]),        # chunks: the second repeat is in both
    ("encoder_decoder", "pp=2", ["--schedule=zb", "--chunks=2", "--stages=2,1,2,2"]),  # the second chunk is a repeat
    ("encoder_decoder", "dp=2,pp=2", ["--zero=3", "--schedule=interleaved", "--chunks=3"]),
    ("three_repeats", "pp=2", ["--schedule=gpipe", "--chunks=3", "--recompute=full"]),
    ("three_repeats", "dp=2,pp=2", ["--zero=1", "--schedule=zb", "--chunks=2", "--stages=1,3,1,2"]),
    ("numbered_layers", "pp=2", ["--stages=3,4"]),                  # of turns: six of two copies, one of one
    ("numbered_layers", "dp=2,pp=2", ["--zero=3", "--schedule=zb"]),
    ("numbered_layers", "pp=2", ["--schedule=interleaved", "--chunks=3"]),
], 1, 4, 6, 9, 11, 14, 16))
def test_layouts(repeats, train, alone, model, mesh, options):
    same_training(train(repeats(model, mesh, *options), STEPS), alone(model))


@pytest.mark.parametrize("model", some(MODELS, 0))
def test_checkpoints(repeats, text, tmp_path, model):
    """Each mesh reads and writes those of the others, byte for byte."""
    trainers = [repeats(model), *(repeats(model, f"pp={pp}") for pp in (2, 4)), repeats(model, "dp=2,pp=2", "--zero=1"),
                repeats(model, "pp=2", "--schedule=interleaved")]
    for trainer in trainers[1:]:
        start(trainer.command("--data", text, "--data-format", "bytes", "--steps", 2, "--save", "half", "--overwrite"), tmp_path)
        half = (tmp_path / "half").read_bytes()
        for other in trainers:
            start(other.command("--steps", 0, "--load", "half", "--save", "again", "--overwrite"), tmp_path)
            assert (tmp_path / "again").read_bytes() == half


@pytest.mark.parametrize("model", MODELS)
def test_evaluation_and_sampling(repeats, text, tmp_path, model):
    """The stages one after the other: the loss and the letters of one process."""
    said = []
    for trainer in (repeats(model), repeats(model, "pp=4"), repeats(model, "pp=2", "--schedule=interleaved")):
        words = ["--data", text, "--data-format", "bytes", "--eval-data", text, "--eval-every", 1, "--eval-batches", 2, "--steps", 1]
        start(trainer.command(*words, "--log", "log", "--save", "c", "--overwrite"), tmp_path)
        line = read_log(tmp_path / "log")[-1]
        sample = start(trainer.command("--load", "c", "--steps", 0, "--sample", 12, "--temperature", 0), tmp_path).stdout
        said.append((line, sample))
    for line, sample in said[1:]:
        assert line["eval_loss"] == pytest.approx(said[0][0]["eval_loss"], rel=1e-5)
        assert sample == said[0][1]
