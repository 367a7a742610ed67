"""Links a tiny trainer with the runtime's objects that `make` has built, and runs it."""
import json
import os
import pathlib
import shlex
import struct
import subprocess

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNTIME = ROOT / "runtime"
OBJECTS = ROOT / os.environ.get("BUILD", "build") / "runtime"
BATCH, SEQ = 4, 8  # sequences a step, tokens a sequence: as in tiny.c
DTYPES = {"F32": np.float32, "I32": np.int32, "F16": np.float16, "BF16": np.uint16}

# Under sanitizers, which start in ten times the time: tests of whose cases those with these parameters in common go the same
# way through the runtime, with another option, name or number, and one of them is run.
IS_SANITIZED = "-fsanitize" in os.environ.get("EXTRA_CFLAGS", "") and os.environ.get("ALL") != "1"
ALIKE = {"test_numbers_have_a_range": ["lowest"], "test_counts_are_whole": [], "test_an_option_without_effect_is_refused": ["kind"],
         "test_files_that_are_no_tokens": ["begin"], "test_numpy_arrays": ["dtype"], "test_one_file_for_two_uses": ["options"],
         "test_integers_of_more_bytes_than_the_name_says": ["name", "dtype"], "test_tokens_that_are_as_their_name_says": ["make", "dtype"]}


def pytest_collection_modifyitems(items):
    seen = set()

    def is_first(item):
        name = getattr(item, "originalname", item.name)
        case = (name, *(repr(item.callspec.params[word]) for word in ALIKE[name])) if name in ALIKE else item.nodeid
        return case not in seen and not seen.add(case)

    if IS_SANITIZED:
        items[:] = [item for item in items if is_first(item)]


def compile_program(directory, name, parts):
    """Of the source of that name and these sources of the runtime; with CC, and EXTRA_CFLAGS of the environment."""
    objects = [OBJECTS / part.relative_to(RUNTIME).with_suffix(".o") for part in parts]
    flags = ["-std=gnu17", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
             "-Wno-unused-parameter", f"-I{RUNTIME}", *shlex.split(os.environ.get("EXTRA_CFLAGS", ""))]
    command = [*shlex.split(os.environ.get("CC", "cc")), *flags, "-fopenmp", str(HERE / f"{name}.c"), *map(str, objects),
               "-o", str(directory / name), "-lcjson", "-lcrypto", "-lm"]
    subprocess.run(command, check=True)
    return directory / name


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    parts = [p for p in sorted(RUNTIME.rglob("*.c")) if p.parent.name not in ("cuda", "kernels") and
             p.name not in ("product.c", "onednn.c", "counted.c", "peak.c", "comm_mpi.c")]
    return compile_program(tmp_path_factory.mktemp("tiny"), "tiny", parts)


@pytest.fixture(scope="session")
def numbers(tmp_path_factory):
    return compile_program(tmp_path_factory.mktemp("numbers"), "numbers", [RUNTIME / "data/order.c", RUNTIME / "trainer/schedule.c"])


def preloaded(tmp_path_factory, name):
    """The environment for the source of that name."""
    path = tmp_path_factory.mktemp(name) / f"{name}.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", HERE / f"{name}.c", "-o", path, "-ldl"], check=True)
    return {"LD_PRELOAD": path, "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory):
    return preloaded(tmp_path_factory, "elsewhere")


@pytest.fixture(scope="session")
def killed(tmp_path_factory):
    return preloaded(tmp_path_factory, "killed")


@pytest.fixture
def run(trainer, tmp_path):
    """run(option, ..., status=0, TINY_...=value): the trainer, in a directory of its own, to its end."""
    def start(*options, status=0, before=None, **environment):
        env = {**os.environ, "OMP_NUM_THREADS": "2", **{k: str(v) for k, v in environment.items()}}
        if status:  # an error ends the process where it is, and frees nothing
            env["ASAN_OPTIONS"] = "detect_leaks=0:" + str(environment.get("ASAN_OPTIONS", ""))
        done = subprocess.run([trainer, *map(str, options)], cwd=tmp_path, env=env, capture_output=True,
                              timeout=120, preexec_fn=before)
        done.stdout, done.stderr = (t.decode("utf-8", "replace") for t in (done.stdout, done.stderr))
        assert done.returncode == status, f"status {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
        return done
    start.trainer = trainer
    return start


@pytest.fixture
def refused(run):
    """Like run, for what must fail: returns the one line that says why."""
    def start(*options, status=1, **more):
        lines = run(*options, status=status, **more).stderr.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1, lines
        assert lines[-1] == errors[0], lines
        return errors[0]
    return start


@pytest.fixture
def data(tmp_path):
    """A byte file of 1000 tokens."""
    tokens = np.random.default_rng(1).integers(0, 256, 1000).astype(np.uint8)
    tokens.tofile(tmp_path / "data.txt")
    return tokens


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 kB, where that may be mounted."""
    (tmp_path / "disk").mkdir()
    if os.system(f"mount -t tmpfs -o size=256k none {tmp_path}/disk 2>/dev/null"):
        pytest.skip("no right to mount a small file system")
    yield tmp_path / "disk"
    os.system(f"umount {tmp_path}/disk")


def read_log(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_checkpoint(path):
    """(metadata, {name: array}), read by the format's description alone."""
    raw = path.read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(raw[8 + length:][begin:end], DTYPES[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
    return metadata, tensors


def read_several(path):
    """The same of an index and the files that it names, by the description of Hugging Face's alone."""
    index = json.loads(path.read_text())
    tensors = {}
    for name in sorted(set(index["weight_map"].values())):
        of_file = read_checkpoint(path.parent / name)[1]
        assert sorted(of_file) == sorted(tensor for tensor, file in index["weight_map"].items() if file == name)
        tensors |= of_file
    return index["metadata"], tensors


def write_checkpoint(path, tensors, metadata=None, dtypes=None):
    """The inverse of read_checkpoint; `dtypes` names a dtype where numpy's does not say it (BF16)."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, array in tensors.items():
        dtype = (dtypes or {}).get(name) or {"f": f"F{8 * array.itemsize}", "i": f"I{8 * array.itemsize}"}[array.dtype.kind]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values()))


def read_dump(path):
    """What TINY_DUMP recorded: a list of (tokens, labels, step, key, lr, threads)."""
    record = np.dtype([("tokens", "<i4", (BATCH, SEQ)), ("labels", "<i4", (BATCH, SEQ)),
                       ("step", "<i4"), ("key", "<i4"), ("lr", "<f4"), ("threads", "<i4")])
    return np.fromfile(path, record)


def philox(key, counter):
    """Philox4x32-10 in Python integers."""
    key, counter = list(key), list(counter)
    for _ in range(10):
        low, high = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(high >> 32) ^ counter[1] ^ key[0], high & 0xFFFFFFFF,
                   (low >> 32) ^ counter[3] ^ key[1], low & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter
