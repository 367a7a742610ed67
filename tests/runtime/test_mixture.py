"""Several files and folders, weights, and what is held out: which sequences a run reads, against a second writing of it."""
import os

import numpy as np
import pytest
from conftest import BATCH, SEQ, philox, read_checkpoint, read_dump, read_log

MASK = 0xFFFFFFFF


def write(path, file, sequences):
    """Tokens that tell their file and sequence: the first two of each sequence."""
    tokens = np.zeros((sequences, SEQ), np.uint8)
    tokens[:, 0], tokens[:, 1] = file, np.arange(sequences)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(tokens.tobytes() + b"\0")  # and one for the last label


def permuted(count, seed, epoch, at):
    """docs/trainer.md, section Data."""
    half = 1
    while 4**half < count:
        half += 1
    while True:
        left, right = at >> half, at & (1 << half) - 1
        for turn in range(8):
            word = philox((seed & MASK, 0x6F726472), (right, turn, epoch & MASK, epoch >> 32))[0]
            left, right = right, left ^ word & (1 << half) - 1
        at = left << half | right
        if at < count:
            return at


def mixed(counts, quotas, seed, in_order, position):
    """The first (source, sequence)s with weights, of less than a round."""
    seen, found = [0] * len(counts), []
    for g in range(position):
        card = permuted(10000, seed ^ 0x6D697874, 0, g)
        source = next(i for i in range(len(quotas)) if card < sum(quotas[:i + 1]))
        at, count = seen[source], counts[source]
        found.append((source, at % count if in_order else permuted(count, seed + 0x9E3779B9 * source, at // count, at % count)))
        seen[source] += 1
    return found


@pytest.fixture
def read(run, tmp_path):
    """read(steps, option, ...): (file, sequence) of each sequence in turn."""
    def start(steps, *options):
        (tmp_path / "dump").unlink(missing_ok=True)
        run("--steps", steps, *options, TINY_DUMP="dump")
        return [(int(row[0]), int(row[1])) for step in read_dump(tmp_path / "dump")["tokens"] for row in step]
    return start


def test_several_files_are_one_stream(run, read, tmp_path):
    for file, count in enumerate([20, 7, 1, 12]):
        write(tmp_path / f"{file}.txt", file, count)
    files = [word for file in range(4) for word in ("--data", f"{file}.txt")]
    every = [(file, i) for file, count in enumerate([20, 7, 1, 12]) for i in range(count)]
    assert read(11, *files, "--no-shuffle") == every + every[:4]
    order = read(20, *files, "--seed", 9)
    assert order == [every[permuted(40, 9, at // 40, at % 40)] for at in range(80)]
    said = run("--steps", 1, *files).stderr
    assert "--data 0.txt: 161 tokens (bytes), 20 sequences: 50 % of all\n" in said
    assert "--data 2.txt: 9 tokens (bytes), 1 sequence: 2.5 % of all\n" in said


def test_a_folder_is_its_files_by_name(run, read, tmp_path):
    for name, file, count in [("b", 1, 9), ("a", 0, 5), ("c10", 2, 3), ("c9", 3, 3)]:
        write(tmp_path / "shards" / f"{name}.txt", file, count)
    (tmp_path / "shards/.hidden").write_bytes(b"no data")
    assert read(5, "--data", "shards", "--no-shuffle") == [(f, i) for f, n in enumerate([5, 9, 3, 3]) for i in range(n)]
    assert "--data shards/: 4 files, 164 tokens (bytes), 20 sequences\n" in run("--steps", 1, "--data", "shards/").stderr


def test_a_shard_that_is_too_short_has_no_sequence(read, tmp_path):
    write(tmp_path / "s/a.txt", 0, 3)
    for name in "bcd":
        (tmp_path / f"s/{name}.txt").write_bytes(b"x" * SEQ)  # lacks the last label
    write(tmp_path / "s/e.txt", 4, 2)
    assert read(2, "--data", "s", "--no-shuffle") == ([(0, 0), (0, 1), (0, 2), (4, 0), (4, 1)] * 2)[:8]


@pytest.mark.parametrize("make, said", [
    (lambda p: None, "--data s: the folder has no files"),
    (lambda p: (write(p / "s/a.txt", 0, 9), write(p / "s/b.u16", 0, 9)), "must be of one kind, but it has s/a.txt and s/b.u16"),
    (lambda p: (write(p / "s/a.txt", 0, 9), (p / "s/z.txt").mkdir()), "it has a folder inside, s/z.txt: give each folder"),
    (lambda p: (p / "s/b.gz").write_bytes(b"\x1f\x8b\x08 more"), "--data s/b.gz: it begins as gzip does"),
])
def test_bad_folders(refused, tmp_path, make, said):
    (tmp_path / "s").mkdir()
    make(tmp_path)
    assert said in refused("--data", "s", "--steps", 1)


@pytest.mark.parametrize("in_order", [False, True])
def test_weights(run, read, tmp_path, in_order):
    counts, weights = [50, 11, 200], [0.6, 0.3, 0.1]
    for file, count in enumerate(counts):
        write(tmp_path / f"{file}.txt", file, count)
    files = [word for file in range(3) for word in ("--data", f"{file}.txt:{weights[file]}")]
    order = read(250, *files, "--seed", 3, *(["--no-shuffle"] if in_order else []))
    assert order == mixed(counts, [6000, 3000, 1000], 3, in_order, 1000)
    share = np.bincount([file for file, _ in order]) / 1000
    assert abs(share - weights).max() < 0.05
    for file in range(3):  # each epoch of a source has each of its sequences once
        times = np.bincount([i for f, i in order if f == file], minlength=counts[file])
        assert times.max() - times.min() <= 1
    said = run("--steps", 1, *files).stderr
    assert "--data 1.txt: 89 tokens (bytes), 11 sequences: 30 % of what is read\n" in said


def test_the_second_round_goes_on(read, tmp_path):
    """In order, each source goes on where the first round ended; and its share there is exact."""
    counts, quotas = [97, 211], [7500, 2500]
    for file, count in enumerate(counts):
        write(tmp_path / f"{file}.txt", file, count)
    order = read(2600, "--data", "0.txt:3", "--data", "1.txt:1", "--no-shuffle")
    for file in range(2):
        own = [i for f, i in order if f == file]
        assert own == [i % counts[file] for i in range(len(own))]
        assert sum(f == file for f, _ in order[:10000]) == quotas[file]


def test_quotas_of_weights_that_do_not_divide(run, tmp_path):
    for file in range(3):
        write(tmp_path / f"{file}.txt", file, 20)
    said = run("--steps", 1, *(w for file in range(3) for w in ("--data", f"{file}.txt:1"))).stderr
    assert [line.split(": ")[-1] for line in said.splitlines() if "--data" in line] == \
        ["33.34 % of what is read", "33.33 % of what is read", "33.33 % of what is read"]


def test_resumes_bit_for_bit(run, tmp_path):
    write(tmp_path / "a.txt", 0, 30)
    write(tmp_path / "s/b.txt", 1, 9)
    write(tmp_path / "s/c.txt", 2, 40)
    data = ["--data", "a.txt:3", "--data", "s:1", "--eval-fraction", 0.2, "--eval-every", 2]
    run(*data, "--steps", 9, "--save", "whole", "--log", "whole.log")
    for steps in (2, 6, 9):
        run(*data, "--steps", steps, "--save", "part", "--log", "part.log", *(["--load", "part"] if steps > 2 else []))
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "part").read_bytes()
    assert [line["loss"] for line in read_log(tmp_path / "whole.log")] == [line["loss"] for line in read_log(tmp_path / "part.log")]
    metadata = read_checkpoint(tmp_path / "whole")[0]
    assert metadata["weights"] == "3 1" and metadata["sequences"] == str(79 - 16)
    said = run("--data", "a.txt:3", "--data", "s:2", "--eval-fraction", 0.2, "--steps", 10, "--load", "whole").stderr
    assert "note: --data has the weights 3 2, but the checkpoint's had 3 1: it continues in another order" in said
    assert "note:" not in run(*data, "--steps", 10, "--load", "whole").stderr


@pytest.mark.parametrize("words, said", [
    (["a.txt:0.5"], "--data a.txt: a weight has no effect on a single one: leave it out"),
    (["a.txt:0.5", "b.txt"], "--data b.txt: the others have a weight: give this one, too, as in b.txt:0.3"),
    (["a.txt:0", "b.txt:1"], "--data a.txt:0: its weight must be a number above 0"),
    (["a.txt:-1", "b.txt:1"], "its weight must be a number above 0"),
    (["a.txt:1-", "b.txt:1"], "its weight must be a number above 0"),
])
def test_mistakes_in_weights(refused, tmp_path, words, said):
    for file, name in enumerate("ab"):
        write(tmp_path / f"{name}.txt", file, 20)
    assert said in refused(*(w for word in words for w in ("--data", word)), "--steps", 1, status=2)


def test_weights_that_are_too_small_or_of_nothing(refused, tmp_path):
    write(tmp_path / "a.txt", 0, 20)
    (tmp_path / "b.txt").write_bytes(b"x")
    assert "--data b.txt: it has no whole sequence, but a weight" in \
        refused("--data", "a.txt:1", "--data", "b.txt:1", "--steps", 1)
    write(tmp_path / "b.txt", 0, 20)
    assert "--data b.txt: its weight is below a ten-thousandth" in \
        refused("--data", "a.txt:1", "--data", "b.txt:1e-6", "--steps", 1)
    assert "--eval-data: it is read in order, so that weights have no effect" in \
        refused("--data", "a.txt", "--eval-data", "a.txt:1", "--eval-data", "b.txt:1", "--steps", 1, status=2)


def test_a_file_whose_name_ends_like_a_weight(read, tmp_path):
    write(tmp_path / "a:2", 5, 20)
    assert read(1, "--data", "a:2", "--no-shuffle") == [(5, 0), (5, 1), (5, 2), (5, 3)]


# --- Held out ------------------------------------------------------------------------------------

def test_the_end_of_each_file_is_held_out(run, read, tmp_path):
    counts = [40, 13, 7, 1, 1, 1, 1, 1]
    for file, count in enumerate(counts):
        write(tmp_path / f"s/{file}.txt", file, count)
    held = [round(0.2 * sum(counts[:f + 1]) + 1e-9) - round(0.2 * sum(counts[:f]) + 1e-9) for f in range(8)]
    assert sum(held) == 13
    trained = [(f, i) for f, count in enumerate(counts) for i in range(count - held[f])]
    options = ["--data", "s", "--eval-fraction", 0.2]
    assert read(13, *options, "--no-shuffle") == trained + trained[:52 - len(trained)]
    assert set(read(13, *options)) == set(trained)
    said = run("--steps", 1, *options).stderr
    assert "52 sequences without those held out\n" in said and "--eval-fraction 0.2: 13 sequences held out\n" in said


def test_what_is_held_out_is_evaluated(run, tmp_path):
    """As --eval-data of exactly these sequences."""
    whole = np.random.default_rng(3).integers(0, 256, 40 * SEQ + 1).astype(np.uint8)
    whole.tofile(tmp_path / "whole.txt")
    whole[:32 * SEQ + 1].tofile(tmp_path / "train.txt")
    whole[32 * SEQ:].tofile(tmp_path / "eval.txt")
    a = run("--data", "whole.txt", "--eval-fraction", 0.2, "--eval-every", 2, "--steps", 6, "--log", "a", "--save", "x")
    b = run("--data", "train.txt", "--eval-data", "eval.txt", "--eval-every", 2, "--steps", 6, "--log", "b", "--save", "y")
    pick = lambda name: [(line["loss"], line.get("eval_loss")) for line in read_log(tmp_path / name)]
    assert pick("a") == pick("b") and pick("a")[1][1] is not None
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


@pytest.mark.parametrize("count, fraction", [(50, 0.1), (50, 0.5), (47, 0.34), (1000, 0.013)])
def test_records_are_held_out_evenly(read, tmp_path, count, fraction):
    held = int(fraction * count + 0.5)
    array = np.zeros((count, SEQ + 1), np.int32)
    array[:, 0], array[:, 1] = np.arange(count) // 250, np.arange(count) % 250
    np.save(tmp_path / "a.npy", array)
    is_held = [(r + 1) * held // count > r * held // count for r in range(count)]
    assert sum(is_held) == held
    trained = [(r // 250, r % 250) for r in range(count) if not is_held[r]]
    steps = -(-len(trained) // BATCH)
    order = read(steps, "--data", "tokens=a.npy", "--eval-fraction", fraction, "--no-shuffle")
    assert order[:len(trained)] == trained


def test_held_out_records_are_evaluated(run, tmp_path):
    array = np.random.default_rng(3).integers(0, 256, (40, SEQ + 1)).astype(np.int32)
    is_held = [(r + 1) * 10 // 40 > r * 10 // 40 for r in range(40)]
    np.save(tmp_path / "all.npy", array)
    np.save(tmp_path / "train.npy", array[[not held for held in is_held]])
    np.save(tmp_path / "eval.npy", array[is_held])
    run("--data", "tokens=all.npy", "--eval-fraction", 0.25, "--steps", 4, "--log", "a")
    run("--data", "tokens=train.npy", "--eval-data", "tokens=eval.npy", "--steps", 4, "--log", "b")
    pick = lambda name: [(line["loss"], line.get("eval_loss")) for line in read_log(tmp_path / name)]
    assert pick("a") == pick("b")


def test_too_little_is_held_out_or_left(refused, tmp_path):
    write(tmp_path / "a.txt", 0, 20)
    assert "--eval-fraction 0.01: it holds out 0 sequences of --data, but it needs 1;" in \
        refused("--data", "a.txt", "--eval-fraction", 0.01, "--steps", 1)
    assert "one batch needs 4 sequences of 8 tokens, but there are 2 beside what is held out" in \
        refused("--data", "a.txt", "--eval-fraction", 0.9, "--steps", 1)
    assert "--eval-data and --eval-fraction: each says what to evaluate on; leave one out" in \
        refused("--data", "a.txt", "--eval-fraction", 0.5, "--eval-data", "a.txt", "--steps", 1, status=2)


def test_an_output_is_no_file_of_the_folder(refused, tmp_path):
    write(tmp_path / "s/a.txt", 0, 20)
    assert "are the same file: what is written would destroy what is read" in \
        refused("--data", "s", "--steps", 1, "--save", "s/a.txt", "--overwrite", status=2)
    os.symlink("s/a.txt", tmp_path / "link")
    assert "are the same file" in refused("--data", "s:1", "--data", "s:2", "--steps", 1, "--log", "link", "--overwrite", status=2)


def test_a_bad_token_names_its_file(refused, tmp_path):
    (tmp_path / "s").mkdir()
    np.zeros(20 * SEQ + 1, np.uint16).tofile(tmp_path / "s/a.u16")
    np.full(10 * SEQ + 1, 999, np.uint16).tofile(tmp_path / "s/b.u16")
    assert "--data s/b.u16: token 999 at position 0 is not in the vocabulary" in \
        refused("--data", "s", "--steps", 30, "--no-shuffle")
