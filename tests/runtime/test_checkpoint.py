"""Initial weights, saving, loading, resuming."""
import math
import os
import re
import resource

import numpy as np
import pytest
from conftest import philox, read_checkpoint, read_log, write_checkpoint

NAMES = {"h.0.w": (256, 256), "h.1.w": (256, 256), "bias": (256,), "h.0.mixed": (5, 3), "h.1.mixed": (5, 3),
         "half": (7,), "brain": (7,), "optimizer.momentum.h.0.w": (256, 256), "optimizer.momentum.h.1.w": (256, 256),
         "optimizer.momentum.bias": (256,), "optimizer.good_steps": ()}


def fnv1a(text):
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def units(name, i, seed):
    return [(x + 0.5) / 2**32 for x in philox((seed, fnv1a(name)), (i, 0, 0, 0))]


def normal(name, i, seed):
    u = units(name, i, seed)
    return math.sqrt(-2 * math.log(u[0])) * math.cos(2 * math.pi * u[1])


@pytest.fixture
def initial(run, tmp_path):
    """A checkpoint of step 0: (path, tensors)."""
    run("--steps", 0, "--save", "initial.safetensors", "--seed", 5)
    return tmp_path / "initial.safetensors", read_checkpoint(tmp_path / "initial.safetensors")[1]


# --- Initial weights ----------------------------------------------------------------------------

def test_initial_weights_are_functions_of_seed_name_and_index(initial):
    tensors = initial[1]
    for name, row, column in [("h.0.w", 0, 0), ("h.0.w", 255, 255), ("h.1.w", 3, 77)]:
        assert tensors[name][row, column] == np.float32(0.5 * normal(name, 256 * row + column, 5))
    for copy in range(2):
        wanted = [-1 + 4 * units(f"h.{copy}.mixed", i, 5)[0] for i in range(15)]
        np.testing.assert_array_equal(tensors[f"h.{copy}.mixed"].ravel(), np.float32(wanted))
    np.testing.assert_array_equal(tensors["half"], np.float32([normal("half", i, 5) for i in range(7)]).astype("f2"))
    np.testing.assert_array_equal(tensors["brain"], np.float32([0.69921875] * 7))  # 0.7 rounded to bf16
    assert not tensors["bias"].any() and not tensors["optimizer.momentum.h.1.w"].any()
    assert tensors["optimizer.good_steps"] == 3
    assert abs(tensors["h.0.w"].std() / 0.5 - 1) < 0.01 and abs(tensors["h.0.w"].mean()) < 0.01


def test_seed_of_the_model_is_the_default(run, tmp_path):
    run("--steps", 0, "--save", "a")
    run("--steps", 0, "--save", "b", "--seed", 42)
    run("--steps", 0, "--save", "c", "--seed", 43)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


def test_seed_of_the_model_out_of_range(refused):
    assert "train.seed = -1 of model 'tiny'" in refused("--steps", 0, TINY_SEED=-1)


# --- The file -----------------------------------------------------------------------------------

def test_file_is_safetensors_without_padding(run, tmp_path, data):
    run("--data", "data.txt", "--steps", 3, "--save", "a.safetensors")
    raw = (tmp_path / "a.safetensors").read_bytes()
    assert int.from_bytes(raw[:8], "little") % 8 == 0 and raw[8:9] == b"{"
    metadata, tensors = read_checkpoint(tmp_path / "a.safetensors")
    metadata = {key: value for key, value in metadata.items() if not key.startswith("checksum")}
    assert metadata == {"format": "mpc", "model": "tiny", "step": "3", "seed": "42", "position": "12",
                        "order": "shuffled", "sequences": "124"}
    assert {name: t.shape for name, t in tensors.items()} == NAMES
    assert tensors["optimizer.good_steps"] == 6 and tensors["optimizer.good_steps"].dtype == np.int32
    assert not any((t == 12345).any() for t in tensors.values())
    assert len(raw) == 8 + int.from_bytes(raw[:8], "little") + 4 * sum(t.size for t in tensors.values())


def test_safetensors_of_pytorch_reads_it(initial):
    library = pytest.importorskip("safetensors.numpy")
    loaded = library.load_file(initial[0])
    assert all((loaded[name] == tensor).all() for name, tensor in initial[1].items())


def test_load_then_save_is_the_same_file(run, tmp_path, data):
    run("--data", "data.txt", "--steps", 3, "--save", "a")
    run("--load", "a", "--steps", 0, "--save", "b")
    meta_a, a = read_checkpoint(tmp_path / "a")
    meta_b, b = read_checkpoint(tmp_path / "b")
    assert meta_a == meta_b and all(a[n].tobytes() == b[n].tobytes() for n in a)


@pytest.mark.parametrize("options", [[], ["--no-shuffle"], ["--seed", "7"]])
def test_resumed_run_equals_unbroken_one_bit_by_bit(run, tmp_path, data, options):
    go_on = [option for option in options if option == "--no-shuffle"]  # the seed comes with the checkpoint
    common = ["--data", "data.txt", "--log"]
    run(*common, "whole.log", "--steps", 9, "--save", "whole", *options)
    run(*common, "parts.log", "--steps", 4, "--save", "part", *options)
    run(*common, "parts.log", "--steps", 9, "--save", "part", "--load", "part", *go_on)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "part").read_bytes()
    whole, parts = read_log(tmp_path / "whole.log"), read_log(tmp_path / "parts.log")
    assert [(l["step"], l["loss"], l["grad_norm"], l["lr"]) for l in whole] == \
           [(l["step"], l["loss"], l["grad_norm"], l["lr"]) for l in parts]


def test_save_every(run, tmp_path, data):
    done = run("--data", "data.txt", "--steps", 7, "--save", "a", "--save-every", 3)
    assert [line for line in done.stderr.splitlines() if "saved" in line] == \
        [f"saved step {n} to a" for n in (3, 6, 7)]
    done = run("--data", "data.txt", "--steps", 6, "--save", "b", "--save-every", 3)
    assert done.stderr.count("saved step 6") == 1


def test_notes_other_data(run, tmp_path, data):
    run("--data", "data.txt", "--steps", 2, "--save", "a")
    data[:500].tofile(tmp_path / "half.txt")
    done = run("--data", "half.txt", "--steps", 3, "--load", "a", "--no-shuffle")
    assert "note: --data has 62 sequences, but the checkpoint's had 124" in done.stderr  # of all files
    assert "continues" not in run("--data", "half.txt", "--steps", 0, "--load", "a").stderr
    assert "the checkpoint's data were shuffled, these are in order" in done.stderr
    assert "note:" not in run("--data", "data.txt", "--steps", 3, "--load", "a").stderr
    run("--data", "data.txt", "--steps", 2, "--save", "b", "--no-shuffle")
    assert "data were in order, these are shuffled" in run("--data", "data.txt", "--steps", 3, "--load", "b").stderr
    assert "note:" not in run("--data", "data.txt", "--steps", 3, "--load", "b", "--no-shuffle").stderr


# --- Weights alone ------------------------------------------------------------------------------

def test_notes_another_optimizer(run, data):
    for optimizer in ("sgd", "lion"):
        run("--data", "data.txt", "--steps", 1, "--save", optimizer, TINY_OPTIMIZER=optimizer)
    run("--data", "data.txt", "--steps", 1, "--save", "unnamed")
    for saved, now, options, is_noted in [("sgd", "lion", [], True), ("lion", "sgd", [], True), ("sgd", "sgd", [], False),
                                          ("sgd", "lion", ["--weights-only"], False), ("unnamed", "lion", [], False)]:
        said = run("--data", "data.txt", "--steps", 2, "--load", saved, *options, TINY_OPTIMIZER=now).stderr
        assert (f"note: --load {saved}: the optimizer was {saved}, now it is {now}" in said) == is_noted, (saved, now, said)


def test_weights_only(run, tmp_path, initial, data):
    weights = {name: t for name, t in initial[1].items() if not name.startswith("optimizer.")}
    write_checkpoint(tmp_path / "weights", weights)
    done = run("--load", "weights", "--steps", 0, "--save", "out", "--seed", 5)
    assert "loaded weights: weights only, no optimizer state and no step: the optimizer starts at zero, at step 0" \
        in done.stderr
    assert (tmp_path / "out").read_bytes() == initial[0].read_bytes()


def test_only_the_weights_of_a_checkpoint(run, refused, tmp_path, initial, data):
    run("--data", "data.txt", "--steps", 3, "--save", "trained", "--seed", 5)
    run("--load", "trained", "--weights-only", "--steps", 0, "--save", "out", "--seed", 6)
    metadata, tensors = read_checkpoint(tmp_path / "out")
    trained = read_checkpoint(tmp_path / "trained")[1]
    assert metadata["step"] == "0" and metadata["seed"] == "6" and metadata["position"] == "0"
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, (initial[1] if name.startswith("optimizer.") else trained)[name])
    assert "out: the file already exists" in refused("--load", "out", "--weights-only", "--steps", 0, "--save", "out")
    trained["optimizer.of_another_kind"] = trained["bias"]
    write_checkpoint(tmp_path / "other", trained)
    run("--load", "other", "--weights-only", "--steps", 0)
    assert "'optimizer.of_another_kind'" in refused("--load", "other", "--steps", 0)


def test_missing_tensors_are_initialised(run, refused, tmp_path, initial):
    weights = {name: 2 * t for name, t in initial[1].items() if not name.startswith("optimizer.")}
    for name in ("h.1.w", "half"):
        del weights[name]
    write_checkpoint(tmp_path / "weights", weights)
    assert "'h.1.w' is missing" in refused("--load", "weights", "--steps", 0)
    done = run("--load", "weights", "--load-missing", "init", "--steps", 0, "--save", "out", "--seed", 5)
    assert "note: 2 of 7 parameters are not in weights and start as in a new run: 'h.1.w', ..." in done.stderr
    for name, tensor in read_checkpoint(tmp_path / "out")[1].items():
        np.testing.assert_array_equal(tensor, weights.get(name, initial[1][name]))
    write_checkpoint(tmp_path / "none", {})
    assert "it has no parameter of model 'tiny'" in refused("--load", "none", "--load-missing=init", "--steps", 0)


def test_weights_in_half_precision(run, tmp_path, initial):
    weights = {name: t for name, t in initial[1].items() if not name.startswith("optimizer.")}
    weights["h.0.w"] = weights["h.0.w"].astype(np.float16)
    weights["h.1.mixed"] = (weights["h.1.mixed"].view(np.uint32) >> 16).astype(np.uint16)
    write_checkpoint(tmp_path / "weights", weights, dtypes={"h.1.mixed": "BF16"})
    run("--load", "weights", "--steps", 0, "--save", "out", "--seed", 5)
    loaded = read_checkpoint(tmp_path / "out")[1]
    np.testing.assert_array_equal(loaded["h.0.w"], weights["h.0.w"].astype(np.float32))
    np.testing.assert_array_equal(loaded["h.1.mixed"].view(np.uint32), weights["h.1.mixed"].astype(np.uint32) << 16)
    np.testing.assert_array_equal(loaded["h.1.w"], initial[1]["h.1.w"])


# --- What is wrong ------------------------------------------------------------------------------

def renamed(tensors, old, new):
    return {new if name == old else name: t for name, t in tensors.items()}


def changed(tensors, name, array):
    return {**tensors, name: array}


@pytest.mark.parametrize("change, said", [
    (lambda t: renamed(t, "bias", "bais"), "tensor 'bais' is not one of model 'tiny'"),
    (lambda t: {n: a for n, a in t.items() if n != "h.1.mixed"}, "tensor 'h.1.mixed' is missing"),
    (lambda t: {n: a for n, a in t.items() if n != "optimizer.good_steps"}, "'optimizer.good_steps' is missing"),
    (lambda t: changed(t, "h.0.mixed", t["h.0.mixed"].T.copy()),
     "tensor 'h.0.mixed' is [3, 5] there and [5, 3] in model 'tiny'"),
    (lambda t: changed(t, "bias", t["bias"][None]), "tensor 'bias' is [1, 256] there and [256]"),
    (lambda t: changed(t, "bias", t["bias"].astype(np.float64)), "tensor 'bias' has dtype F64 and must have F32, BF16"),
    (lambda t: changed(t, "optimizer.momentum.bias", t["bias"].astype(np.float16)), "has dtype F16 and must have F32"),
    (lambda t: changed(t, "optimizer.good_steps", np.float32(1)), "has dtype F32 and must have I32"),
])
def test_checkpoint_of_another_model(refused, tmp_path, initial, change, said):
    write_checkpoint(tmp_path / "other", change(initial[1]), {"step": "1", "seed": "1", "position": "4",
                                                              "sequences": "9"})
    message = refused("--load", "other", "--steps", 0, "--save", "initial.safetensors", "--overwrite")
    assert message.startswith("error: --load other: ") and said in message
    assert (read_checkpoint(initial[0])[1]["bias"] == initial[1]["bias"]).all()


def edit_header(raw, old, new):
    length = int.from_bytes(raw[:8], "little")
    header = raw[8:8 + length].replace(old, new)
    return len(header).to_bytes(8, "little") + header + raw[8 + length:]


@pytest.mark.parametrize("damage, said", [
    (lambda raw: raw[:-4], "is not within the"),
    (lambda raw: raw[:100], "bytes of header follow, but it has 100 in all"),
    (lambda raw: raw[:5], "but it has 5 in all"),
    (lambda raw: raw + b"0000", "bytes follow the header"),
    (lambda raw: b"PK\3\4" + raw, "bytes of header follow"),
    (lambda raw: raw[:8] + b"[" + raw[9:], "its header is not a JSON object"),
    (lambda raw: edit_header(raw, b'"h.1.mixed"', b'"h.0.mixed"'), "tensor 'h.0.mixed' occurs twice"),
    (lambda raw: edit_header(raw, b'[256,256]', b'[256,255]'), "do not make its 262144 bytes"),
    (lambda raw: edit_header(raw, b'[256,256]', b'[-1,256]'), "do not make its 262144 bytes"),
    (lambda raw: edit_header(raw, b'"data_offsets":[0,', b'"data_offsets":[-4,'), "is not within the"),
    (lambda raw: edit_header(raw, b'"data_offsets":[0,', b'"offsets":[0,'), "lacks dtype, shape or data_offsets"),
    (lambda raw: edit_header(raw, b'"step":"0"', b'"step":"x"'), "say 'x' of step"),
    (lambda raw: edit_header(raw, b'"step":', b'"stop":'), "say 'nothing' of step"),
    (lambda raw: edit_header(raw, b'"seed":"5"', b'"seed":"4294967296"'), "number up to 4294967295"),
])
def test_damaged_file(refused, tmp_path, initial, damage, said):
    (tmp_path / "bad").write_bytes(damage(initial[0].read_bytes()))
    message = refused("--load", "bad", "--steps", 0)
    assert message.startswith("error: --load bad: ") and said in message


def test_overlapping_tensors(refused, tmp_path, initial):
    raw = initial[0].read_bytes()
    bias = re.search(rb'"bias":\{[^}]*\[(\d+),(\d+)\]', raw)
    begin, end = map(int, bias.groups())
    assert begin > 524288  # behind the two of h.*.w, which are of whole pages
    (tmp_path / "bad").write_bytes(edit_header(raw, b"[%d,%d]" % (begin, end), b"[%d,%d]" % (begin - 4, end - 4)))
    assert f"begins at byte {begin - 4} of the tensors, not at {begin}" in refused("--load", "bad", "--steps", 0)


def test_every_prefix_of_a_file_is_refused(refused, tmp_path, initial):
    raw = initial[0].read_bytes()
    for length in [*range(1, 40), 900, 1500, 10000, len(raw) - 1]:
        (tmp_path / "bad").write_bytes(raw[:length])
        refused("--load", "bad", "--steps", 0)


def test_position_that_no_run_reaches(refused, tmp_path, initial):
    for key in ("position", "sequences"):
        raw = edit_header(initial[0].read_bytes(), f'"{key}":"0"'.encode(), f'"{key}":"{2**63 - 1}"'.encode())
        (tmp_path / "bad").write_bytes(raw)
        assert f"say '{2**63 - 1}' of {key}" in refused("--load", "bad", "--steps", 0)


# --- Checksums ----------------------------------------------------------------------------------

def checksum(array):
    """By docs/trainer.md, in NumPy."""
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}").astype(np.uint64)
    x = np.arange(bits.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + bits
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    return f"{int(x.sum(dtype=np.uint64)):016x}"


def test_checksums_are_as_documented(run, tmp_path, data):
    run("--data", "data.txt", "--steps", 3, "--save", "a")
    metadata, tensors = read_checkpoint(tmp_path / "a")
    assert {name: checksum(t) for name, t in tensors.items()} == {name: metadata[f"checksum.{name}"] for name in tensors}


def test_every_changed_bit_is_noticed(refused, tmp_path, initial):
    raw, random = initial[0].read_bytes(), np.random.default_rng(1)
    begin = 8 + int.from_bytes(raw[:8], "little")
    for bit in random.integers(8 * begin, 8 * len(raw), 30):
        bad = bytearray(raw)
        bad[bit // 8] ^= 1 << bit % 8
        (tmp_path / "bad").write_bytes(bad)
        message = refused("--load", "bad", "--steps", 0)
        assert re.match(r"error: --load bad: tensor '\S+' has a wrong checksum; the file is damaged", message)


@pytest.mark.parametrize("old, new", [(b'"step":"3"', b'"step":"7"'), (b'"seed":"42"', b'"seed":"43"'),
                                      (b'"position":"12"', b'"position":"13"'), (b'"shuffled"', b'"shuffleb"')])
def test_another_place_of_the_run_is_noticed(run, refused, tmp_path, data, old, new):
    run("--data", "data.txt", "--steps", 3, "--save", "a")
    raw = (tmp_path / "a").read_bytes()
    assert raw.count(old) == 1
    (tmp_path / "bad").write_bytes(edit_header(raw, old, new))
    assert "the progress of the run (step, seed" in refused("--load", "bad", "--steps", 0)


def test_a_file_without_checksums_is_loaded(run, tmp_path, initial):
    metadata, tensors = read_checkpoint(initial[0])
    tensors = changed(tensors, "bias", tensors["bias"] + 1)
    write_checkpoint(tmp_path / "other", tensors, {k: v for k, v in metadata.items() if not k.startswith("checksum")})
    run("--load", "other", "--steps", 0, "--save", "out")
    assert (read_checkpoint(tmp_path / "out")[1]["bias"] == 1).all()


def test_load_of_nothing(refused):
    assert "--load none: cannot open it: No such file" in refused("--load", "none", "--steps", 0)


def test_resume_refuses_what_has_no_effect(run, refused, data):
    run("--data", "data.txt", "--steps", 4, "--save", "a")
    resume = ["--data", "data.txt", "--load", "a", "--steps"]
    assert "--steps 4: --load a has done 4 steps already" in refused(*resume, 4)
    assert "--seed 43: --load a was trained with seed 42" in refused(*resume, 5, "--seed", 43)
    run(*resume, 5, "--seed", 42)


# --- Places where nothing can be written --------------------------------------------------------

def test_save_into_no_directory(refused, data):
    message = refused("--data", "data.txt", "--steps", 1, "--save", "none/a")
    assert "--save none/a: cannot write none/a.tmp: No such file or directory" in message
    message = refused("--data", "data.txt", "--steps", 1, "--save", "/sys/a")  # where nobody may make a file
    assert "cannot write /sys/a.tmp: " in message and "No such file" not in message


def test_save_over_what_is_no_file(refused, tmp_path, data):
    (tmp_path / "dir").mkdir()
    assert "it is a directory" in refused("--data", "data.txt", "--steps", 1, "--save", "dir")
    assert "it is a device or a pipe" in refused("--data", "data.txt", "--steps", 1, "--save", "/dev/full")
    assert not os.path.exists("/dev/full.tmp")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_save_into_a_directory_of_others(refused, tmp_path, data):
    (tmp_path / "dir").mkdir(mode=0o555)
    assert "Permission denied" in refused("--data", "data.txt", "--steps", 1, "--save", "dir/a")


def test_write_that_fails_leaves_the_old_file(run, refused, tmp_path, data):
    run("--data", "data.txt", "--steps", 1, "--save", "a")
    old = (tmp_path / "a").read_bytes()
    tensors = len(old) - 8 - int.from_bytes(old[:8], "little")  # room for these, but not for the header before them
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (tensors, tensors))
    message = refused("--data", "data.txt", "--steps", 2, "--save", "a", "--overwrite", before=limit)
    assert "--save a: cannot write it: File too large; the file there before is intact" in message
    assert (tmp_path / "a").read_bytes() == old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "data.txt"]
    assert "no file was left" in refused("--data", "data.txt", "--steps", 2, "--save", "b", before=limit)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "data.txt"]


def test_limit_of_files_is_found_before_training(refused, tmp_path, data):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
    message = refused("--data", "data.txt", "--steps", 1, "--save", "a", before=limit, TINY_DUMP="dump")
    assert "--save a: it will need 1.05 MB, but a file may have 100.00 kB at most here; raise the limit" in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.txt"]


def test_full_disk_is_found_before_training(refused, small_disk, tmp_path, data):
    message = refused("--data", "data.txt", "--steps", 1, "--save", "disk/a", TINY_DUMP="dump")
    assert "--save disk/a: it will need 1.05 MB, but only 262.14 kB are free there" in message
    assert not list(small_disk.iterdir()) and not (tmp_path / "dump").exists()
