"""--keep-best and --patience: the lowest loss of an evaluation, by the losses in the log."""
import os

import numpy as np
import pytest
from conftest import read_checkpoint, read_log, read_several

EVERY = 10  # steps


@pytest.fixture
def other(tmp_path, data):
    """To evaluate on: a part of it is of the data to train on, so that the loss falls first and rises later."""
    noise = np.random.default_rng(2).integers(0, 256, 300).astype(np.uint8)
    np.concatenate([data[:50], noise]).tofile(tmp_path / "other.txt")


def train(steps, *options):
    return ["--data", "data.txt", "--eval-data", "other.txt", "--eval-every", EVERY, "--steps", steps, "--save", "a.safetensors",
            "--log", "log.jsonl", *options]


def losses(tmp_path):
    return {line["step"]: line["eval_loss"] for line in read_log(tmp_path / "log.jsonl") if "eval_loss" in line}


def lowest(losses):
    return min(losses, key=losses.get)


def test_the_best_is_kept(run, tmp_path, other):
    done = run(*train(160, "--keep-best"))
    best = lowest(losses(tmp_path))
    assert EVERY < best < 150  # it has fallen, and risen again
    metadata, _ = read_checkpoint(tmp_path / "a.best.safetensors")
    assert metadata["step"] == metadata["best_step"] == str(best)
    assert float(metadata["best_loss"]) == pytest.approx(losses(tmp_path)[best], rel=1e-8)
    last, _ = read_checkpoint(tmp_path / "a.safetensors")
    assert last["step"] == "160" and last["best_step"] == str(best)
    assert int(last["evaluations_since_best"]) == (160 - best) // EVERY
    assert f"kept as a.best.safetensors, the lowest loss of an evaluation: {losses(tmp_path)[best]:.6f}\n" in done.stderr
    assert not list(tmp_path.glob("*.tmp")) and not list(tmp_path.glob("*.link"))


def test_it_is_the_checkpoint_of_that_step(run, tmp_path, other):
    run(*train(160, "--keep-best"))
    best = lowest(losses(tmp_path))
    run("--data", "data.txt", "--steps", best, "--save", "b")
    kept, plain = read_checkpoint(tmp_path / "a.best.safetensors")[1], read_checkpoint(tmp_path / "b")[1]
    assert kept.keys() == plain.keys() and all(np.array_equal(kept[name], plain[name]) for name in kept)


def test_the_best_of_several_files(run, tmp_path, other):
    """Its files stay while others are saved, and go with it."""
    run(*[word.replace("a.safetensors", "a.safetensors.index.json") if isinstance(word, str) else word for word in train(160, "--keep-best")],
        "--save-files", 2)
    best = lowest(losses(tmp_path))
    metadata, _ = read_several(tmp_path / "a.best.safetensors.index.json")
    assert metadata["step"] == metadata["best_step"] == str(best)
    assert len(list(tmp_path.glob("a.step*"))) == 4
    run("--load", "a.best.safetensors.index.json", "--steps", 0)


def test_a_run_that_goes_on_keeps_it(run, tmp_path, other):
    run(*train(160, "--keep-best", "--save-every", 40, "--save-wait"))
    whole, best = (tmp_path / "a.safetensors").read_bytes(), (tmp_path / "a.best.safetensors").read_bytes()
    for path in tmp_path.glob("a.*"):
        path.unlink()
    (tmp_path / "log.jsonl").unlink()
    run(*train(120, "--keep-best"))  # a multiple of EVERY, an evaluation ends this part
    run(*train(160, "--keep-best", "--load", "a.safetensors"))
    assert (tmp_path / "a.safetensors").read_bytes() == whole
    assert (tmp_path / "a.best.safetensors").read_bytes() == best


def test_patience_ends_the_run(run, tmp_path, other):
    done = run(*train(1000, "--patience", 3))
    seen = losses(tmp_path)
    best, last = lowest(seen), max(seen)
    assert last == best + 3 * EVERY and read_log(tmp_path / "log.jsonl")[-1]["step"] == last
    assert read_checkpoint(tmp_path / "a.safetensors")[0]["step"] == str(last)
    assert f"the loss of evaluation has not come below {seen[best]:.6f}, that of step {best}, in 3 evaluations: the run " \
        f"ends at step {last}, as --patience says\n" in done.stderr
    again = run(*train(1000, "--patience", 3, "--load", "a.safetensors"))
    assert "--patience says" in again.stderr and max(losses(tmp_path)) == last
    run(*train(1000, "--patience", 5, "--load", "a.safetensors"))
    seen = losses(tmp_path)
    assert max(seen) == lowest(seen) + 5 * EVERY


def test_patience_over_a_resume_counts_on(run, tmp_path, other):
    run(*train(1000, "--patience", 3))
    whole = (tmp_path / "a.safetensors").read_bytes()
    best = lowest(losses(tmp_path))
    (tmp_path / "a.safetensors").unlink()
    run(*train(best + 2 * EVERY, "--patience", 3, "--overwrite"))
    run(*train(1000, "--patience", 3, "--load", "a.safetensors"))
    assert (tmp_path / "a.safetensors").read_bytes() == whole


def test_without_them_nothing_is_counted(run, tmp_path, other):
    run(*train(10, "--keep-best"))
    assert "best_step" in read_checkpoint(tmp_path / "a.safetensors")[0]
    run(*train(20, "--load", "a.safetensors"))
    assert "best_step" not in read_checkpoint(tmp_path / "a.safetensors")[0]


def test_a_name_that_is_taken(run, refused, tmp_path, other):
    (tmp_path / "a.best.safetensors").write_text("mine")
    assert "--keep-best" in refused(*train(10, "--keep-best")) and (tmp_path / "a.best.safetensors").read_text() == "mine"
    run(*train(10, "--keep-best", "--overwrite"))
    assert read_checkpoint(tmp_path / "a.best.safetensors")[0]["model"] == "tiny"
    said = refused(*train(10, "--keep-best", "--overwrite", "--trace", "a.best.safetensors"), status=2)
    assert "and --trace a.best.safetensors are the same file" in said


def test_the_newest_and_the_best_are_one_file(run, tmp_path, other):
    """So is the one that is loaded."""
    run(*train(10, "--keep-best"))
    assert os.path.samefile(tmp_path / "a.safetensors", tmp_path / "a.best.safetensors")
    run(*train(20, "--keep-best", "--load", "a.best.safetensors"))
    assert read_checkpoint(tmp_path / "a.safetensors")[0]["step"] == "20"


def test_beside_keep(run, tmp_path, other):
    run(*train(12, "--keep-best", "--save-every", 2, "--keep", 2))
    names = sorted(path.name for path in tmp_path.glob("a.*"))
    assert names == ["a.best.safetensors", "a.safetensors", "a.step10.safetensors", "a.step12.safetensors"]
    assert read_checkpoint(tmp_path / "a.best.safetensors")[0]["step"] == str(lowest(losses(tmp_path)))


def test_the_best_is_lost(run, tmp_path, other):
    run(*train(10, "--keep-best"))
    (tmp_path / "a.best.safetensors").unlink()
    done = run(*train(20, "--keep-best", "--load", "a.safetensors"))
    assert "note: the best checkpoint so far, of step 10, is not here as" in done.stderr


def test_needs(refused, other):
    data = ["--data", "data.txt", "--eval-data", "other.txt", "--steps", 20]
    assert "--keep-best has no effect without --save" in refused(*data, "--eval-every", 3, "--keep-best", status=2)
    assert "--patience has no effect without --eval-every" in refused(*data, "--patience", 3, status=2)
