"""Checkpoints of several ranks: whole tensors, whatever the layout that wrote them or reads them."""
import json
import os
import resource
import signal
import struct

import pytest
from conftest import TCP, error_of, layout_of, read_log, start

SEQ = " else seq"
LAYOUTS = {  # of gpt2, whose vocabulary of 250 is padded to 256: the last of four ranks has less of it
    "one": ((), 8),
    "dp2-zero3": (layout_of("gpt2", dict(dp=2), zero=3), 4),
    "tp4-seq": (layout_of("gpt2", dict(tp=4), SEQ), 8),
    "dp2-cp2-zero2": (layout_of("gpt2", dict(dp=2, cp=2), zero=2), 4),
    "on-disk": (("mesh dp = 2", "shard batch over dp", "zero 1 over dp", "offload optimizer to disk"), 4),
    "embed": (("mesh dp = 2, b = 2", "shard batch over dp", "shard embed over b", "zero 1 over dp"), 4),
}
PAIR = (("mesh dp = 2, tp = 4", "shard batch over dp", "shard (kv_heads, group), ff, vocab over tp" + SEQ,
         "zero 3 over dp"), 4)


def trainers(compiled, *options):
    def make(name, model="gpt2", sizes=(), **settings):
        layout, micro = LAYOUTS.get(name, PAIR)
        return compiled(model, layout, sizes, {"microbatch": micro, **settings}, *options)
    return make


@pytest.fixture
def trainer_of(compiled):
    return trainers(compiled, *TCP)


@pytest.fixture
def under_mpi(compiled):
    """Where one rank ends, and mpirun the others."""
    return trainers(compiled)


@pytest.fixture
def run(text, tmp_path):
    """run(trainer, steps, option, ...): its log; files are relative to tmp_path."""
    def go(trainer, steps, *options):
        data = ["--data", text, "--data-format", "bytes", "--log", "log"] if steps else []
        data += ["--overwrite"] if steps or "--save" in options else []
        start(trainer.command("--steps", steps, *data, *options), tmp_path)
        return read_log(tmp_path / "log") if steps else []
    return go


def without_times(log):
    return [(line["step"], line["loss"], line["grad_norm"], line["lr"]) for line in log]


def tensors_of(path):
    """The sizes of its tensors, and metadata."""
    raw = path.read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__")
    return {name: entry["shape"] for name, entry in header.items()}, metadata


# --- From one layout to another ------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "one"])
def test_initial_weights(trainer_of, run, tmp_path, name):
    """The same file, byte for byte."""
    run(trainer_of("one"), 0, "--save", "a")
    run(trainer_of(name), 0, "--save", "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert tensors_of(tmp_path / "a")[0]["wte"] == [250, 32]


def test_initial_weights_of_more_ranks_than_heads(compiled, trainer_of, run, tmp_path):
    run(compiled("llama", (), {"kv_heads": 2}), 0, "--save", "a")
    run(trainer_of("pair", "llama", {"kv_heads": 2}), 0, "--save", "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("name", LAYOUTS)
def test_loaded_and_saved_by_another_layout(trainer_of, run, tmp_path, name):
    """Trained under one layout; every other one reads all of it and writes the same bytes."""
    run(trainer_of(name), 3, "--save", "a")
    for other in LAYOUTS:
        run(trainer_of(other), 0, "--load", "a", "--save", "b")
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes(), other


@pytest.mark.parametrize("name, other", [("one", "dp2-zero3"), ("dp2-zero3", "tp4-seq"), ("tp4-seq", "dp2-cp2-zero2"),
                                         ("dp2-cp2-zero2", "embed"), ("embed", "one")])
def test_going_on_under_another_layout(trainer_of, run, tmp_path, name, other):
    unbroken = run(trainer_of("one"), 10)
    run(trainer_of(name), 5, "--save", "a")
    log = run(trainer_of(other), 10, "--load", "a")
    assert [line["step"] for line in log] == list(range(1, 11))
    for line, expected in zip(log, unbroken):
        for key in ("loss", "grad_norm"):
            assert line[key] == pytest.approx(expected[key], rel=1e-5), (line["step"], key)


@pytest.mark.parametrize("name", ["dp2-zero3", "tp4-seq", "embed"])
def test_going_on_under_the_same_layout_is_exact(trainer_of, run, tmp_path, name):
    unbroken = run(trainer_of(name), 8, "--save", "a")
    run(trainer_of(name), 4, "--save", "b")
    assert without_times(run(trainer_of(name), 8, "--load", "b", "--save", "b")) == without_times(unbroken)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_short_floats_keep_their_state(trainer_of, run, tmp_path):
    """Master weights are what is saved, and the loss scale is a tensor of no dim."""
    run(trainer_of("dp2-zero3", precision="fp16"), 3, "--save", "a")
    shapes, metadata = tensors_of(tmp_path / "a")
    assert shapes["optimizer.loss_scale"] == [] and metadata["step"] == "3"
    run(trainer_of("tp4-seq", precision="fp16"), 0, "--load", "a", "--save", "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_keeps_the_last_ones(trainer_of, run, tmp_path):
    """One of the ranks links and removes; the others are not needed for it."""
    run(trainer_of("tp4-seq"), 7, "--save", "a", "--save-every", 1, "--keep", 2)
    names = sorted(path.name for path in tmp_path.glob("a*"))
    assert names == ["a", "a.step6", "a.step7"]
    assert [tensors_of(tmp_path / name)[1]["step"] for name in names] == ["7", "6", "7"]
    run(trainer_of("dp2-zero3"), 8, "--load", "a.step6", "--save", "b")


@pytest.mark.parametrize("name", ["dp2-zero3", "dp2-cp2-zero2", "embed", "on-disk"])
def test_beside_training_as_while_it_waits(trainer_of, run, tmp_path, name):
    """Ranks write their parts while the next step changes them all."""
    for folder, options in (("beside", ()), ("waiting", ("--save-wait",))):
        (tmp_path / folder).mkdir()
        run(trainer_of(name), 6, "--save", f"{folder}/a", "--save-every", 1, "--keep", 6, *options)
    for step in range(1, 7):
        assert (tmp_path / f"beside/a.step{step}").read_bytes() == (tmp_path / f"waiting/a.step{step}").read_bytes()


# --- What cannot be written or read --------------------------------------------------------------------------------

@pytest.mark.parametrize("path, said", [("none/a", "No such file or directory"), (".", "a directory"),
                                        ("/dev/full", "a device or a pipe")])
def test_unwritable(under_mpi, refused, text, path, said):
    message = refused(under_mpi("tp4-seq"), "--data", text, "--data-format", "bytes", "--steps", 3, "--save", path)
    assert f"--save {path}: " in message and said in message


@pytest.mark.parametrize("rank", [0, 3])
def test_no_room_for_one_rank(under_mpi, running, run, tmp_path, rank):
    """The file may grow no more, for one of the ranks: all end, and the file there before is intact."""
    one = running(under_mpi("tp4-seq"), "--save", "a", "--save-every", 2)
    one.await_file("a")
    resource.prlimit(one.processes[rank], resource.RLIMIT_FSIZE, (1000, 1000))
    status, _, stderr = one.end()
    message = error_of(stderr)
    assert status == 1 and "--save a: cannot write it: File too large; the file there before is intact" in message
    assert ("rank 3: " in message) == (rank == 3)
    assert sorted(os.listdir(tmp_path)) == ["a"] and int(tensors_of(tmp_path / "a")[1]["step"]) >= 2
    run(under_mpi("one"), 0, "--load", "a")


def test_killed_while_it_saves(under_mpi, running, run, tmp_path):
    """It saves after each step, so a rank that dies at any time leaves a whole file."""
    one = running(under_mpi("tp4-seq"), "--save", "a", "--save-every", 1)
    one.await_file("a")
    one.signal(2, signal.SIGKILL)
    assert one.end()[0] != 0
    run(under_mpi("dp2-zero3"), 0, "--load", "a")


def damaged(raw, how):
    length, = struct.unpack("<Q", raw[:8])
    if how == "cut":
        return raw[:-1]
    if how == "empty":
        return b""
    return raw[:8] + raw[8:8 + length].replace(b'"h.1.attn.wq"', b'"h.1.attn.wx"') + raw[8 + length:]


@pytest.mark.parametrize("how, said", [("cut", "it is not a complete safetensors file"), ("empty", "the file is empty"),
                                       ("name", "h.1.attn.w")])
def test_damaged(under_mpi, run, refused, tmp_path, how, said):
    run(under_mpi("one"), 0, "--save", "a")
    (tmp_path / "a").write_bytes(damaged((tmp_path / "a").read_bytes(), how))
    message = refused(under_mpi("dp2-cp2-zero2"), "--steps", 0, "--load", "a", "--save", "b")
    assert "--load a: " in message and said in message
    assert not (tmp_path / "b").exists()


def test_of_another_model(compiled, under_mpi, run, refused):
    run(compiled("chars"), 0, "--save", "a")
    message = refused(under_mpi("tp4-seq"), "--steps", 0, "--load", "a")
    assert "--load a: tensor '" in message and "gpt2" in message


def test_missing(under_mpi, refused):
    assert "--load a: cannot open it: No such file" in refused(under_mpi("dp2-zero3"), "--steps", 0, "--load", "a")


def test_the_best_one_and_patience(trainer_of, run, tmp_path, text):
    """A learning rate that is too high: the loss of evaluation soon stays above its lowest, at the same step on all ranks."""
    trainer = trainer_of("dp2-zero3", **{"optimizer.lr": 0.5})
    log = run(trainer, 60, "--eval-fraction", 0.1, "--eval-every", 3, "--eval-batches", 1, "--save", "a.safetensors", "--keep-best",
              "--patience", 3)
    losses = {line["step"]: line["eval_loss"] for line in log if "eval_loss" in line}
    best = min(losses, key=losses.get)
    assert max(losses) == best + 9 < 60
    assert tensors_of(tmp_path / "a.best.safetensors")[1]["step"] == str(best)
