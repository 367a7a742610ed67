"""Formats of data, the order in which sequences are read, and what is wrong with bad files."""
import os
import signal
import struct
import subprocess
import time

import numpy as np
import pytest
from conftest import BATCH, SEQ, philox, read_checkpoint, read_dump, read_log, write_checkpoint


def write_llmc(path, tokens, magic=20240520, version=1, count=None):
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, len(tokens) if count is None else count
    path.write_bytes(header.tobytes() + tokens.astype("<u2" if magic == 20240520 else "<u4").tobytes())


def write_megatron(path, tokens, code=8, cuts=(300, 301, 777), version=1, gap=0):
    dtype = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 8: "<u2"}[code]
    path.with_suffix(".bin").write_bytes(tokens.astype(dtype).tobytes())
    ends = np.array([*cuts, len(tokens)])
    lengths = np.diff(ends, prepend=0)
    offsets = (ends - lengths) * np.dtype(dtype).itemsize
    offsets[1:] += gap
    documents = np.array([0, 2, len(ends)], "<i8")
    path.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, code, len(ends), len(documents)) +
        lengths.astype("<i4").tobytes() + offsets.astype("<i8").tobytes() + documents.tobytes())


def tokens_read(run, tmp_path, path, *options):
    """What a run over two steps in the file's order gets."""
    (tmp_path / "dump").unlink(missing_ok=True)
    done = run("--data", path, "--steps", 2, "--no-shuffle", *options, TINY_DUMP="dump")
    return read_dump(tmp_path / "dump"), done


def check_in_order(steps, tokens):
    """Sequence n of step s is number s * batch + n; labels are one further."""
    for s, step in enumerate(steps):
        for n in range(BATCH):
            at = (s * BATCH + n) * SEQ
            np.testing.assert_array_equal(step["tokens"][n], tokens[at:at + SEQ])
            np.testing.assert_array_equal(step["labels"][n], tokens[at + 1:at + SEQ + 1])
    assert [step["step"] for step in steps] == [0, 1]


@pytest.mark.parametrize("name, write, said", [
    ("a.txt", lambda p, t: t.astype("u1").tofile(p), "bytes"),
    ("a.u16", lambda p, t: t.astype("<u2").tofile(p), "uint16"),
    ("a.u32", lambda p, t: t.astype("<u4").tofile(p), "uint32"),
    ("a.bin", lambda p, t: t.astype("<u2").tofile(p), "uint16"),
    ("a.bin", write_llmc, "llm.c, uint16"),
    ("a.bin", lambda p, t: write_llmc(p, t, 20240801, 7), "llm.c, uint32"),
    *[("a.bin", lambda p, t, c=c: write_megatron(p, t % 128, c), f"Megatron, {name}")
      for c, name in [(1, "uint8"), (2, "int8"), (3, "int16"), (4, "int32"), (5, "int64"), (8, "uint16")]],
])
def test_format_is_told_from_the_file(run, tmp_path, data, name, write, said):
    write(tmp_path / name, data.astype(np.int64))
    steps, done = tokens_read(run, tmp_path, name)
    check_in_order(steps, data % 128 if "Megatron" in said else data)
    assert f"1000 tokens ({said}), 124 sequences" in done.stderr


@pytest.mark.parametrize("word, write", [
    ("bytes", lambda p, t: t.astype("u1").tofile(p)), ("u16", lambda p, t: t.astype("<u2").tofile(p)),
    ("u32", lambda p, t: t.astype("<u4").tofile(p)), ("llmc", write_llmc)])
def test_format_is_given(run, tmp_path, data, word, write):
    write(tmp_path / "tokens.bin", data)
    check_in_order(tokens_read(run, tmp_path, "tokens.bin", "--data-format", word)[0], data)


def test_no_shuffle_wraps_around(run, tmp_path, data):
    data[:6 * SEQ + 1].tofile(tmp_path / "six")  # six sequences, four a step
    steps, _ = tokens_read(run, tmp_path, "six")
    np.testing.assert_array_equal(steps[1]["tokens"], data[np.r_[4, 5, 0, 1][:, None] * SEQ + np.arange(SEQ)])


def sequences_read(run, tmp_path, *options, steps=3):
    """Numbers of the sequences, where token i of the data is unlike all others of its position in a sequence."""
    tokens = np.arange(12)[:, None].repeat(SEQ, 1).ravel()
    np.append(tokens, 0).astype("u1").tofile(tmp_path / "twelve")
    (tmp_path / "dump").unlink(missing_ok=True)
    run("--data", "twelve", "--steps", steps, *options, TINY_DUMP="dump")
    return read_dump(tmp_path / "dump")["tokens"][:, :, 0].ravel()


def test_each_epoch_reads_every_sequence_once_in_another_order(run, tmp_path, numbers):
    read = sequences_read(run, tmp_path, steps=6)
    assert sorted(read[:12]) == sorted(read[12:]) == list(range(12))
    assert (read[:12] != read[12:]).any() and (read[:12] != range(12)).any()
    for epoch in range(2):
        order = subprocess.run([numbers, "permute", "12", "42", str(epoch)], capture_output=True).stdout.split()
        np.testing.assert_array_equal(read[12 * epoch:12 * epoch + 12], np.array(order, int))


def test_seed_gives_another_order(run, tmp_path):
    same, default = sequences_read(run, tmp_path, "--seed", 42), sequences_read(run, tmp_path)
    np.testing.assert_array_equal(same, default)
    assert (sequences_read(run, tmp_path, "--seed", 43) != default).any()


def test_threads_change_time_and_nothing_else(run, tmp_path, data):
    for threads in [1, 3]:
        (tmp_path / "dump").unlink(missing_ok=True)
        run("--data", "data.txt", "--steps", 3, "--threads", threads, "--save", f"{threads}.safetensors",
            TINY_DUMP="dump")
        assert (read_dump(tmp_path / "dump")["threads"] == threads).all()
    assert (tmp_path / "1.safetensors").read_bytes() == (tmp_path / "3.safetensors").read_bytes()


def test_scalars_of_a_step(run, tmp_path, data):
    run("--data", "data.txt", "--steps", 4, "--seed", 9, "--log", "log", TINY_DUMP="dump")
    steps = read_dump(tmp_path / "dump")
    keys = [philox((9, 0x64726F70), (step, 0, 0, 0))[0] for step in range(4)]
    np.testing.assert_array_equal(steps["key"].view(np.uint32), keys)
    t = np.arange(4)
    lr = np.where(t < 3, 0.5 * (t + 1) / 3, 0.5)  # the warmup of tiny.c, and the cosine's first step
    np.testing.assert_allclose(steps["lr"], lr.astype(np.float32), rtol=1e-7)
    np.testing.assert_array_equal(np.float32([line["lr"] for line in read_log(tmp_path / "log")]), steps["lr"])


# --- What is wrong ----------------------------------------------------------------------------

def test_too_short(run, refused, tmp_path, data):
    data[:32].tofile(tmp_path / "short")
    assert refused("--data", "short", "--steps", 1) == \
        ("error: --data short: one batch needs 33 tokens (4 sequences of 8, and 1), but it has 32 (bytes); "
         "give more data or a smaller batch")
    data[:33].tofile(tmp_path / "enough")
    run("--data", "enough", "--steps", 1)


def test_eval_data_too_short(refused, tmp_path, data):
    data[:8].tofile(tmp_path / "short")
    assert "--eval-data short: it needs 9 tokens (1 sequence of 8, and 1), but it has 8 (bytes); give more data" in \
        refused("--eval-data", "short", "--steps", 0)


def test_token_outside_the_vocabulary(refused, tmp_path, data):
    tokens = data.astype("<u2")
    tokens[21] = 256
    tokens.tofile(tmp_path / "a.u16")
    message = refused("--data", "a.u16", "--steps", 1, "--no-shuffle")
    assert "--data a.u16: token 256 at position 21 is not in the vocabulary of 256" in message
    assert "tokenizer" in message


def test_negative_token(refused, tmp_path, data):
    tokens = data.astype(np.int64) % 128
    tokens[32] = -1  # the last label of the first step
    write_megatron(tmp_path / "a.bin", tokens, 4)
    assert "token -1 at position 32" in refused("--data", "a.bin", "--steps", 1, "--no-shuffle")


@pytest.mark.parametrize("make, said", [
    (lambda p: None, "cannot open it: No such file or directory"),
    (lambda p: p.mkdir(), "the folder has no files"),
    (lambda p: p.write_bytes(b""), "the file is empty"),
    (lambda p: os.mkfifo(p), "it is a device or a pipe"),
    (lambda p: p.write_bytes(b"x" * 1001), "1001 bytes are not a whole number of uint16 tokens"),
    (lambda p: write_llmc(p, np.zeros(99), version=2), "magic number 20240520 and unknown version 2"),
    (lambda p: write_llmc(p, np.zeros(99), count=100), "100 tokens, which is a file of 1224 bytes, but it has 1222"),
    (lambda p: write_llmc(p, np.zeros(99), count=-1), "its header says -1 tokens"),
    (lambda p: write_megatron(p, np.zeros(999), 6), "tokens of type 6"),
    (lambda p: write_megatron(p, np.zeros(999), version=2), "index of version 2"),
    (lambda p: write_megatron(p, np.zeros(999), gap=2), "sequence 1 begins at byte 602 of the .bin, not at 600"),
    (lambda p: [write_megatron(p, np.zeros(999)), p.write_bytes(p.read_bytes()[:-2])],
     "its index end at byte 1998, but it has 1996"),
    (lambda p: [write_megatron(p, np.zeros(999)), os.truncate(p.with_suffix(".idx"), 60)],
     "4 sequences and 3 documents do not make 60 bytes"),
])
def test_bad_file(refused, tmp_path, make, said):
    make(tmp_path / "a.bin")
    assert said in refused("--data", "a.bin", "--steps", 1)


@pytest.mark.parametrize("dtype, said", [("u1", "uint8"), ("i1", "int8"), ("<u2", "uint16"), ("<i2", "int16"), ("<u4", "uint32"),
                                         ("<i4", "int32"), ("<i8", "int64"), ("<u8", "uint64")])
@pytest.mark.parametrize("name", ["a.npy", "a.bin", "a"])
def test_numpy_arrays(run, tmp_path, data, dtype, said, name):
    tokens = (data % 128).astype(dtype)
    with open(tmp_path / name, "wb") as file:
        np.save(file, tokens)
    steps, done = tokens_read(run, tmp_path, name)
    check_in_order(steps, tokens)
    assert f"1000 tokens (NumPy, {said}), 124 sequences" in done.stderr
    check_in_order(tokens_read(run, tmp_path, name, "--data-format", "npy")[0], tokens)


@pytest.mark.parametrize("array, said", [
    (np.zeros(100, "f4"), "(NumPy, float32) of 1 dims; save one row of integers"),
    (np.zeros(100, ">u2"), "of '>u2'; save little-endian integers or floating-point numbers"),
    (np.zeros((10, 10), "u2"), "(NumPy, uint16) of 2 dims; save one row of integers"),
    (np.zeros((), "u2"), "of shape (), where 1 to 9 dims are needed")])
def test_arrays_that_are_no_tokens(refused, tmp_path, array, said):
    np.save(tmp_path / "a.npy", array)
    message = refused("--data", "a.npy", "--steps", 1)
    assert f"--data a.npy: a NumPy array {said}" in message


def test_array_cut_short(refused, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(1000, "u2"))
    whole = (tmp_path / "a.npy").stat().st_size
    for size in (whole - 1, whole - 2, 100):
        os.truncate(tmp_path / "a.npy", size)
        assert "cut short" in refused("--data", "a.npy", "--steps", 1)


@pytest.mark.parametrize("begin, said, remedy", [
    (b"\x1f\x8b\x08", "gzip", "unpack it"), (b"PK\3\4", "zip", "unpack it"), (b"\x28\xb5\x2f\xfd", "zstd", "unpack it"),
    (b"\xfd7zXZ", "xz", "unpack it"), (b"BZh9", "bzip2", "unpack it"), (b"\x04\x22\x4d\x18", "lz4", "unpack it"),
    (b"\xff\x06\0\0sNaPpY", "snappy", "unpack it"), (b"7z\xbc\xaf\x27\x1c", "7z", "unpack it"),
    (b"Rar!\x1a\x07", "rar", "unpack it"), (bytes(257) + b"ustar", "tar", "unpack it"),
    (b"PAR1", "Parquet", "write its tokens"), (b"ARROW1\0\0", "Arrow", "write its tokens"),
    (struct.pack("<iii", -1, 200, 16), "a stream of Arrow", "write its tokens"), (b"Obj\1", "Avro", "write its tokens"),
    (b"ORC\x0a", "ORC", "write its tokens"), (b"\x89HDF\r\n", "HDF5", "write its tokens"),
    (b"SQLite format 3\0", "SQLite", "write its tokens"), (b"\x80\x04\x95", "pickle", "write its tokens"),
    (b"\x80\x02\x8a\x0a", "pickle (of torch.save", "write its tokens"), (b"GGUF\3\0\0\0", "GGUF", "it holds weights"),
    (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS", "git lfs pull"),
])
@pytest.mark.parametrize("name", ["a", "a.u16"])
def test_files_that_are_no_tokens(run, refused, tmp_path, begin, said, remedy, name):
    (tmp_path / name).write_bytes(begin + bytes(1000 - len(begin)))
    message = refused("--data", name, "--steps", 1)
    assert f"--data {name}: it begins as {said}" in message and remedy in message and "--data-format" in message
    run("--data", name, "--steps", 1, "--data-format", "bytes")


@pytest.mark.parametrize("text, said", [(text.encode(coding), said) for text in ["\ufeffOh"] for coding, said in [
    ("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16"), ("utf-32-le", "UTF-16"), ("utf-32-be", "UTF-32")]] + [(b"%PDF-1.7", "PDF")])
def test_texts_that_are_not_utf8(run, refused, tmp_path, text, said):
    """They are only where bytes are tokens: of .u16, they may be the first tokens."""
    (tmp_path / "a.txt").write_bytes(text + b"ab" * 500)
    assert f"--data a.txt: it begins as {said} does" in refused("--data", "a.txt", "--steps", 1)
    run("--data", "a.txt", "--steps", 1, "--data-format", "bytes")
    (tmp_path / "a.u16").write_bytes(text + b"ab" * 500)
    run("--data", "a.u16", "--steps", 1, "--no-shuffle", "--data-format", "bytes")
    assert "begins as" not in refused("--data", "a.u16", "--steps", 1, "--no-shuffle")


def test_a_text_that_begins_like_a_container(run, tmp_path):
    for begin in (b"GGUF is a format", b"ORCHARD", b"Objects", b"ARROW1 and", b"Rar!", b"7z", b"SQLite format 3 is"):
        (tmp_path / "a").write_bytes(begin + b" of text" * 100)
        run("--data", "a", "--steps", 1)


WIDE = np.random.default_rng(3)  # token 0 and the last one are among those below
WIDER = [  # name, vocabulary, tokens, written as, remedy
    ("a.bin", 256, "<u4", "--data-format u32"), ("a.bin", 256, "<i8", "numpy.save"),
    ("a.u16", 50257, "<i4", "--data-format u32"), ("a.bin", 70000, "<u4", "--data-format u32"),
    ("a.bin", 200019, "<u4", "--data-format u32"), ("a.bin", 200019, "<i8", "numpy.save"),
    ("a.u32", 200019, "<i8", "numpy.save"), ("a.txt", 256, "<u2", "--data-format u16"),
    ("a", 256, "<i4", "--data-format u32"), ("a", 128, "<i8", "numpy.save"),
]


@pytest.mark.parametrize("name, vocab, dtype, remedy", WIDER)
@pytest.mark.parametrize("count", [40, 1000, 300_000])
def test_integers_of_more_bytes_than_the_name_says(refused, tmp_path, name, vocab, dtype, remedy, count):
    tokens = WIDE.integers(0, vocab, count)
    tokens.astype(dtype).tofile(tmp_path / name)
    message = refused("--data", name, "--steps", 1, TINY_VOCAB=vocab)
    assert "its content is that of" in message and remedy in message
    if "u4" in dtype and count == 1000:
        tokens[::200] = -1  # what labels are ignored by
        tokens.astype("<i8").astype(dtype).tofile(tmp_path / name)
        assert remedy in refused("--data", name, "--steps", 1, TINY_VOCAB=vocab)


def test_utf16_without_its_mark(refused, tmp_path):
    (tmp_path / "a.txt").write_bytes("It was a dark and stormy night.\n".encode("utf-16-le") * 40)
    assert "uint16 tokens or UTF-16: " in refused("--data", "a.txt", "--steps", 1)


@pytest.mark.parametrize("make", [
    lambda r: r.integers(0, 256, 4000),                             # any
    lambda r: r.integers(0, 2, 4000),                               # bits
    lambda r: np.tile([1, 0], 2000),                                # one after the other
    lambda r: np.r_[r.integers(1, 9, 20), np.zeros(3980, int)],     # padding
    lambda r: np.where(r.random(4000) < 0.9, 0, r.integers(0, 256, 4000)),
    lambda r: np.ravel([[a, r.integers(0, 2)] for a in r.integers(0, 256, 2000)]),  # pairs of which one is a bit
])
@pytest.mark.parametrize("name, dtype", [("a.bin", "<u2"), ("a.u16", "<u2"), ("a.u32", "<u4"), ("a", "u1")])
@pytest.mark.parametrize("vocab", [256, 70000])
def test_tokens_that_are_as_their_name_says(run, tmp_path, make, name, dtype, vocab):
    """However many zeros they have.  Of pairs with a bit and a vocabulary that 16 bits do not hold, both may be."""
    tokens = make(np.random.default_rng(1))
    if dtype == "u1" and vocab > 256 or vocab > 65536 and dtype == "<u2" and set(tokens[1::2]) == {0, 1} and len(set(tokens)) > 2:
        return
    tokens.astype(dtype).tofile(tmp_path / name)
    run("--data", name, "--steps", 1, TINY_VOCAB=min(vocab, 256) if dtype == "u1" else vocab)


def test_tensors_are_no_text(run, refused, tmp_path):
    """A file of records, for the trainer of another model: else it trains on the bytes of the header."""
    write_checkpoint(tmp_path / "a.safetensors", {"tokens": np.zeros((40, SEQ + 1), np.int32)})
    said = refused("--data", "a.safetensors", "--steps", 1)
    assert "--data a.safetensors: it begins as safetensors does: give --data INPUT=FILE if its tensors are records" in said
    run("--data", "tokens=a.safetensors", "--steps", 1)
    run("--data", "a.safetensors", "--steps", 1, "--data-format", "bytes")


@pytest.mark.parametrize("change, said", [
    (lambda raw: raw[:6] + b"\x09" + raw[7:], "a NumPy array of version 9: save it again"),
    (lambda raw: raw.replace(b"(1000,)", b"(-100,)"), "a NumPy array of shape (-100,), where 1 to 9 dims are needed"),
])
def test_header_of_an_array(refused, tmp_path, change, said):
    np.save(tmp_path / "a.npy", np.zeros(1000, "u2"))
    (tmp_path / "a.npy").write_bytes(change((tmp_path / "a.npy").read_bytes()))
    assert refused("--data", "a.npy", "--steps", 1) == f"error: --data a.npy: {said}"


def test_bytes_for_a_larger_vocabulary(run, refused, data):
    message = refused("--data", "data.txt", "--steps", 1, TINY_VOCAB=50257)
    assert "--data data.txt: by its name each byte is a token, but the model has 50257 tokens: tokenize it first" in message
    assert "--data-format bytes" in message
    run("--data", "data.txt", "--steps", 1, "--data-format", "bytes", TINY_VOCAB=50257)


@pytest.mark.parametrize("damage", [lambda raw: raw[:20], lambda raw: b"X" + raw[1:], lambda raw: b""])
def test_damaged_index(refused, tmp_path, damage):
    write_megatron(tmp_path / "a.bin", np.zeros(999))
    path = tmp_path / "a.idx"
    path.write_bytes(damage(path.read_bytes()))
    message = refused("--data", "a.bin", "--steps", 1)
    assert "a.idx" in message and ("it does not begin with MMIDIDX" in message or "is empty" in message)


def test_a_bad_token_far_in_the_data_loses_no_step(refused, tmp_path, data):
    """The steps before it are saved, and the message is the same."""
    tokens = data.astype("<u2")
    tokens[10 * BATCH * SEQ + 5] = 999
    tokens.tofile(tmp_path / "a.u16")
    message = refused("--data", "a.u16", "--steps", 100, "--no-shuffle", "--save", "a", "--log", "log")
    assert "--data a.u16: token 999 at position 325 is not in the vocabulary of 256" in message
    assert read_checkpoint(tmp_path / "a")[0]["step"] == "10" and len(read_log(tmp_path / "log")) == 10


def test_a_bad_token_of_the_evaluation_is_found_before_training(refused, tmp_path, data):
    tokens = data.astype("<u2")
    tokens[500] = 999
    tokens.tofile(tmp_path / "a.u16")
    message = refused("--data", "data.txt", "--steps", 9, "--eval-data", "a.u16", TINY_DUMP="dump")
    assert "--eval-data a.u16: token 999 at position 500" in message and not (tmp_path / "dump").exists()


@pytest.mark.parametrize("word, said", [("llmc", "not an llm.c file"), ("megatron", "cannot open it")])
def test_another_format_than_given(refused, data, word, said):
    assert said in refused("--data", "data.txt", "--steps", 1, "--data-format", word)


def start_long(trainer, tmp_path, *options, sleep=2):
    """A run that does not end by itself, and prints each step."""
    words = [trainer, "--steps", "100000", "--print-every", "1", *options]
    return subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "TINY_SLEEP_MS": str(sleep)})


def test_data_that_vanish_are_kept(trainer, tmp_path):
    np.zeros(1 << 20, "u1").tofile(tmp_path / "data")
    with start_long(trainer, tmp_path, "--data", "data") as process:
        try:
            process.stdout.readline()
            os.unlink(tmp_path / "data")
            process.stdout.readline()
            time.sleep(0.05)
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)


CUT_SHORT = "a page of it cannot be read: the file was cut short while in use, or its disk fails"


@pytest.mark.parametrize("saves", [True, False])
def test_data_cut_short_end_the_run_after_a_whole_step(trainer, run, tmp_path, saves):
    """It is saved, and goes on with whole data as if nothing had happened."""
    tokens = np.random.default_rng(1).integers(0, 256, 1 << 20).astype("u1")
    tokens.tofile(tmp_path / "data")
    with start_long(trainer, tmp_path, "--data", "data", *["--save", "a"] * saves) as process:
        process.stdout.readline()
        os.truncate(tmp_path / "data", 0)
        output, errors = (text.decode() for text in process.communicate(timeout=30))
    assert process.returncode == 1 and f"error: --data data: {CUT_SHORT}; ended at step " in errors
    if not saves:
        assert errors.endswith(": nothing is saved (no --save)\n")
        return
    step = int(read_checkpoint(tmp_path / "a")[0]["step"])
    assert errors.endswith(f"; ended at step {step}: resume with --load a, or add --resume\n") and f"saved step {step} to a" in errors
    tokens.tofile(tmp_path / "data")
    run("--data", "data", "--load", "a", "--save", "b", "--steps", step + 2)
    run("--data", "data", "--save", "c", "--steps", step + 2)
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


def test_data_cut_short_before_any_step(refused, tmp_path, elsewhere):
    """Nothing is saved, and no message says so."""
    np.zeros(1 << 20, "u1").tofile(tmp_path / "data")
    message = refused("--data", "data", "--steps", 9, "--no-shuffle", "--save", "a", **elsewhere, CUT_SHORT="data",
                      TINY_SLEEP_MS=0)
    assert CUT_SHORT in message and "nothing" in message and not (tmp_path / "a").exists()


def test_a_checkpoint_cut_short_is_not_loaded(run, refused, tmp_path, data, elsewhere):
    run("--data", "data.txt", "--steps", 1, "--save", "a")
    message = refused("--load", "a", "--steps", 0, "--save", "b", **elsewhere, CUT_SHORT="a")
    assert not (tmp_path / "b").exists() and ("wrong checksum" in message or CUT_SHORT in message)
    metadata, tensors = read_checkpoint(run("--data", "data.txt", "--steps", 1, "--save", "c") and tmp_path / "c")
    write_checkpoint(tmp_path / "weights", {name: t for name, t in tensors.items() if not name.startswith("optimizer.")})
    message = refused("--load", "weights", "--steps", 0, "--save", "b", **elsewhere, CUT_SHORT="weights")
    assert f"--load weights: {CUT_SHORT}; nothing has been trained yet" in message and not (tmp_path / "b").exists()


def test_an_evaluation_of_data_cut_short_has_no_loss(trainer, run, tmp_path, data):
    np.zeros(1 << 16, "u1").tofile(tmp_path / "eval")
    options = ["--data", "data.txt", "--eval-data", "eval", "--eval-every", "1", "--eval-batches", "2000", "--log", "log", "--save", "a"]
    with start_long(trainer, tmp_path, *options, sleep=0) as process:
        process.stdout.readline()
        os.truncate(tmp_path / "eval", 0)
        errors = process.communicate(timeout=30)[1].decode()
    lines = read_log(tmp_path / "log")
    losses = [line.get("eval_loss") for line in lines]
    assert losses[0] is not None and losses[-1] is None, losses
    assert all(line["eval_loss"] for line in lines[:-2]) and len(lines) == int(read_checkpoint(tmp_path / "a")[0]["step"])
    assert f"error: --eval-data eval: {CUT_SHORT}; ended at step {len(lines)}: resume with --load a" in errors


# --- Records: tiny.c has `tokens`, and `labels = next(tokens)` ---------------------------------------------------------

def saved(tmp_path, array, name="a.npy"):
    np.save(tmp_path / name, array)
    return f"tokens={name}"


@pytest.mark.parametrize("dtype", ["u1", "<i2", "<i8"])
def test_records(run, tmp_path, data, dtype):
    rows = (data[:12 * (SEQ + 1)].reshape(12, SEQ + 1) % 128).astype(dtype)
    done = run("--data", saved(tmp_path, rows), "--steps", 2, "--no-shuffle", TINY_DUMP="dump")
    assert "12 records of tokens (NumPy, " in done.stderr
    for step, read in enumerate(read_dump(tmp_path / "dump")):
        np.testing.assert_array_equal(read["tokens"], rows[4 * step:4 * step + 4, :SEQ])
        np.testing.assert_array_equal(read["labels"], rows[4 * step:4 * step + 4, 1:])


def test_folder_of_records(run, refused, tmp_path, data):
    """As one array of them all, also where a file has no records; what is wrong is told of the file."""
    rows = (data[:12 * (SEQ + 1)].reshape(12, SEQ + 1) % 128).astype(np.int32)
    (tmp_path / "rows").mkdir()
    for name, first, end in (("a", 0, 5), ("b", 5, 5), ("c", 5, 6), ("d", 6, 12)):
        saved(tmp_path / "rows", rows[first:end].astype(np.int32 if name != "c" else "u1"), f"{name}.npy")
    saved(tmp_path, rows, "whole.npy")
    for how in ((), ("--no-shuffle",), ("--eval-fraction", 0.3)):
        reads = []
        for given in ("rows", "whole.npy"):
            done = run("--data", f"tokens={given}", "--steps", 2, *how, TINY_DUMP=given + ".dump")
            reads.append(read_dump(tmp_path / (given + ".dump")))
            assert "records of tokens (" + ("4 files, NumPy, int32, NumPy, uint8)" if given == "rows" else "NumPy, int32)") in done.stderr
        for mine, expected in zip(*reads, strict=True):
            np.testing.assert_array_equal(mine["tokens"], expected["tokens"])
            np.testing.assert_array_equal(mine["labels"], expected["labels"])
    assert "tokens=rows: records have no weights" in refused("--data", "tokens=rows:0.5", "--steps", 1, status=2)
    saved(tmp_path / "rows", rows[:2, :SEQ], "e.npy")
    assert "tokens=rows/e.npy: the array is [2, 8]" in refused("--data", "tokens=rows", "--steps", 1)


@pytest.mark.parametrize("array, said", [
    (np.zeros((12, SEQ), np.int32), "the array is [12, 8], but the input needs [records, 9], with what next() of it reads"),
    (np.zeros((12, SEQ + 1, 1), np.int32), "the array is [12, 9, 1], but the input needs [records, 9]"),
    (np.zeros((12, SEQ + 1), np.float32), "the input is of i32, and the array of NumPy, float32"),
    (np.zeros((12, SEQ + 1), bool), "the input is of i32, and the array of NumPy, bool"),
    (np.zeros((3, SEQ + 1), np.int32), "one batch needs 4 records, but it has 3"),
    (np.zeros((12, SEQ + 1), np.int32).T.copy().T, "in Fortran's order"),
    (np.full((12, SEQ + 1), 300, np.int32), "300 at [0, 0] is not from 0 to 255"),
    (np.full((12, SEQ + 1), -1, np.int32), "-1 at [0, 0] is not from 0 to 255"),
    (np.full((12, SEQ + 1), 2**64 - 100, np.uint64), "18446744073709551516 at [0, 0] is not from 0 to 255"),
    (np.zeros((12, SEQ + 1), np.complex64), "of '<c8'"),
])
def test_records_that_do_not_fit(refused, tmp_path, array, said):
    assert said in refused("--data", saved(tmp_path, array), "--steps", 1, "--no-shuffle")


@pytest.mark.parametrize("words, said", [
    (("--data", "tokens=a.npy", "--data", "tokens=a.npy"), "--data tokens=FILE is given twice"),
    (("--data", "tokens="), "--data tokens=: no file is named after the '='"),
    (("--data", "labels=a.npy"), "'labels' is next(tokens), and gets the data of that"),
    (("--data", "tokens=a.npy", "--data", "more=a.npy"), "--data more=a.npy: this model trains on records: give --data tokens=FILE"),
    (("--data", "tokens=a.npy", "--data-format", "npy"), "--data-format is that of tokens, and has no effect on records"),
    (("--data", ""), "--data needs the name of a file, not an empty text"),
])
def test_wrong_words_for_records(refused, tmp_path, words, said):
    saved(tmp_path, np.zeros((12, SEQ + 1), np.int32))
    assert said in refused(*words, "--steps", 1, status=2)


def test_other_files_for_records(refused, tmp_path):
    (tmp_path / "text").write_bytes(b"x" * 1000)
    assert "not an array: write it with numpy.save" in refused("--data", "tokens=text", "--steps", 1)
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    assert "--data cut.safetensors: " in refused("--data", "cut.safetensors", "--steps", 1)
