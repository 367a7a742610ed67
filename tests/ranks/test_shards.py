"""Checkpoints in several files of several ranks: the tensors of one file, whatever the layout that wrote them or reads them."""
import json
import os
import re
import resource
import signal
import struct
import subprocess

import pytest
from conftest import QUICK, TCP, error_of, free_port, layout_of, read_log, start
from test_checkpoints import LAYOUTS, without_times

INDEX = "a.safetensors.index.json"
SEVERAL = {  # of four ranks each, but for the last one
    "dp4": (layout_of("gpt2", dict(dp=4)), 2),
    "dp2-zero3": LAYOUTS["dp2-zero3"],
    "tp4-seq": LAYOUTS["tp4-seq"],
    "dp2-pp2": (layout_of("gpt2", dict(dp=2, pp=2)), 4),
    "pp4": (layout_of("gpt2", dict(pp=4)), 4),
    "on-disk": LAYOUTS["on-disk"],
}


@pytest.fixture
def trainer_of(compiled):
    def make(name, *options):
        layout, micro = {**LAYOUTS, **SEVERAL}[name]
        return compiled("gpt2", layout, {"layers": 4}, {"microbatch": micro}, *(options or TCP))
    return make


@pytest.fixture
def run(text, tmp_path):
    """run(trainer, steps, option, ...): its log; files are relative to tmp_path."""
    def go(trainer, steps, *options, **more):
        data = ["--data", text, "--data-format", "bytes", "--log", "log"] if steps else []
        data += ["--overwrite"] if steps or "--save" in options else []
        start(trainer.command("--steps", steps, *data, *options), tmp_path, **more)
        return read_log(tmp_path / "log") if steps else []
    return go


def read_one(path):
    """(metadata, {tensor: (dtype, shape, bytes)}), by the description of the format alone."""
    raw = path.read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__")
    return metadata, {name: (entry["dtype"], entry["shape"], raw[8 + length:][slice(*entry["data_offsets"])])
                      for name, entry in header.items()}


def read_several(path):
    index = json.loads(path.read_text())
    files = {name: read_one(path.parent / name)[1] for name in sorted(set(index["weight_map"].values()))}
    assert {tensor: name for name, tensors in files.items() for tensor in tensors} == index["weight_map"]
    return index["metadata"], files


def all_of(files):
    return {tensor: value for tensors in files.values() for tensor, value in tensors.items()}


def bytes_of(tensors):
    return sum(len(data) for _, _, data in tensors.values())


# --- What is written, and read -------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", SEVERAL)
def test_the_tensors_of_one_file(trainer_of, run, tmp_path, name):
    """Also those of each save beside training, and again after another layout has read them."""
    trainer = trainer_of(name)
    run(trainer, 3, "--save", "one.safetensors", "--save-every", 1, "--keep", 3)
    run(trainer, 3, "--save", INDEX, "--save-every", 1, "--keep", 3)
    for step in (1, 2, 3):
        metadata, tensors = read_one(tmp_path / f"one.step{step}.safetensors")
        of_index, files = read_several(tmp_path / f"a.step{step}.safetensors.index.json")
        assert of_index == metadata | {"total_size": bytes_of(tensors)} and all_of(files) == tensors
        assert len(files) == trainer.ranks
        assert max(map(bytes_of, files.values())) < 1.5 * bytes_of(tensors) / len(files)
    for other in ("one", "tp4-seq", "dp2-pp2"):
        run(trainer_of(other), 0, "--load", INDEX, "--save", "back.safetensors")
        assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes(), other


@pytest.mark.parametrize("name", ["dp2-zero3", "dp2-pp2"])
def test_a_resumed_run_is_an_unbroken_one(trainer_of, run, tmp_path, name):
    unbroken = run(trainer_of(name), 6, "--save", "one.safetensors")
    run(trainer_of(name), 3, "--save", INDEX)
    log = run(trainer_of(name), 6, "--load", INDEX, "--save", INDEX, "--save-files", 2, "--replay", 2)
    assert without_times(log) == without_times(unbroken)
    assert all_of(read_several(tmp_path / INDEX)[1]) == read_one(tmp_path / "one.safetensors")[1]
    assert len(list(tmp_path.glob("a.*"))) == 3


def test_a_stage_has_files_of_its_own(trainer_of, run, tmp_path):
    run(trainer_of("dp2-pp2"), 0, "--save", INDEX)
    for tensors in read_several(tmp_path / INDEX)[1].values():
        layers = {int(n) // 2 for name in tensors for n in re.findall(r"\bh\.(\d)\.", name)}
        assert len(layers) == 1, tensors.keys()


def opened(trace):
    """The files that each process has opened for writing."""
    of = {}
    for line in trace.read_text().splitlines():
        match = re.match(r"(\d+) .*open.*\"(?:.*/)?(a\.step[^\"]*)\", O_WRONLY", line)
        if match and "O_CREAT" not in line:
            of.setdefault(match[1], set()).add(match[2])
    return of


@pytest.mark.skipif(os.system("strace -o /dev/null true 2>/dev/null") != 0, reason="strace is not there, or may not trace")
@pytest.mark.parametrize("name, each, ranks", [("dp4", 1, 4), ("pp4", 1, 4), ("tp4-seq", 4, 4)])
def test_which_rank_writes_what(trainer_of, run, tmp_path, name, each, ranks):
    """Of a model that is not split each its own file, of a pipeline that of its stage; of split tensors all in all files."""
    command = trainer_of(name).command("--steps", 0, "--save", INDEX)
    start(["strace", "-f", "-e", "trace=open,openat", "-o", "trace", *command], tmp_path)
    of = list(opened(tmp_path / "trace").values())
    assert [len(files) for files in of] == [each] * ranks
    assert len(set.union(*of)) == 4


# --- What cannot be written or read --------------------------------------------------------------------------------

@pytest.mark.parametrize("rank", [0, 3])
def test_no_room_for_one_rank(trainer_of, running, run, tmp_path, rank):
    """The old checkpoint is intact, and the files of the new one are gone."""
    under_mpi = trainer_of("tp4-seq", QUICK)
    one = running(under_mpi, "--save", INDEX, "--save-every", 2)
    one.await_file(INDEX)
    resource.prlimit(one.processes[rank], resource.RLIMIT_FSIZE, (1000, 1000))
    status, _, stderr = one.end()
    message = error_of(stderr)
    assert status == 1 and f"--save {INDEX}: cannot write it: File too large; the file there before is intact" in message
    assert ("rank 3: " in message) == (rank == 3)
    files = read_several(tmp_path / INDEX)[1]
    assert sorted(os.listdir(tmp_path)) == sorted([INDEX, *files])
    run(trainer_of("one"), 0, "--load", INDEX)


@pytest.mark.parametrize("rank", [0, 2])
def test_killed_while_it_saves(trainer_of, running, run, tmp_path, rank):
    """A rank that dies at any time leaves a whole checkpoint, and the next run nothing else."""
    one = running(trainer_of("tp4-seq"), "--save", INDEX, "--save-every", 1)
    one.await_file(INDEX)
    one.await_steps(3)
    one.signal(rank, signal.SIGKILL)
    assert one.end()[0] != 0
    read_several(tmp_path / INDEX)
    run(trainer_of("dp2-pp2"), 0, "--load", INDEX, "--save", INDEX)
    assert sorted(os.listdir(tmp_path)) == sorted([INDEX, *read_several(tmp_path / INDEX)[1]])


def test_machines_with_different_files(trainer_of, run, tmp_path):
    """Each rank in a folder of its own, as on machines that share none: one of them has a checkpoint of another step."""
    trainer = trainer_of("dp2-zero3")
    master = f"127.0.0.1:{free_port()}"
    ranks = []
    for rank in (0, 1):
        (tmp_path / f"{rank}").mkdir()
        run(trainer, 1 + rank, "--save", f"{rank}/{INDEX}")
    for rank in (0, 1):
        ranks.append(subprocess.Popen([trainer.program, "--steps", "0", "--load", INDEX, "--rank", f"{rank}", "--ranks", "2", "--master", master],
                                      cwd=tmp_path / f"{rank}", stderr=subprocess.PIPE, text=True))
    said = "".join(rank.communicate(timeout=60)[1] for rank in ranks)
    assert "the ranks differ in the content of --load" in error_of(said) and {rank.returncode for rank in ranks} == {1}
