"""Several ranks read the same mixture of files and folders as one does, and hold out the same part."""
import numpy as np
import pytest
from conftest import error_of, layout_of, mpirun, read_log, start


@pytest.fixture
def four(compiled):
    return compiled("chars", layout_of("chars", dict(dp=2, tp=2)), (), {"microbatch": 4})


@pytest.fixture
def data(text, tmp_path):
    """A file, and a folder of three."""
    letters = text.read_bytes()
    (tmp_path / "shards").mkdir()
    (tmp_path / "a.txt").write_bytes(letters[:6000])
    for i in range(3):
        (tmp_path / f"shards/{i}.txt").write_bytes(letters[6000 + 3000 * i:9001 + 3000 * i])
    return ["--data", "a.txt:3", "--data", "shards:1"]


def test_like_one_rank(compiled, four, data, tmp_path):
    logs = []
    for trainer in (compiled("chars"), four):
        start(trainer.command(*data, "--eval-fraction", 0.05, "--eval-every", 2, "--steps", 6, "--log", "log", "--overwrite"),
              tmp_path)
        logs.append(read_log(tmp_path / "log"))
    for field in ("loss", "grad_norm", "eval_loss"):
        one, many = ([line[field] for line in log if field in line] for log in logs)
        assert len(one) == (3 if field == "eval_loss" else 6)
        np.testing.assert_allclose(many, one, rtol=2e-5)


def test_ranks_are_given_the_same(four, data, tmp_path):
    """Else they would read other sequences, each its own."""
    for other, said in ((["--data", "a.txt:2", "--data", "shards:1"], "rank 0: 4 files, weights: 3 1, rank 2: 4 files, weights: 2 1"),
                        (["--data", "a.txt"], "rank 2: 1 files, weights: none")):
        one, two = ([four.program, *words, "--steps", 3] for words in (data, other))
        command = mpirun(2, *one) + [":", "-n", 1, *two, ":", "-n", 1, *one]
        message = error_of(start(command, tmp_path, 1).stderr)
        assert "the ranks differ in the files and weights of --data: " in message and said in message
