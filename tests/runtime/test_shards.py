"""Checkpoints in several files: what is in them, what is read, and that at any moment there is a whole one."""
import itertools
import json
import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
from conftest import read_checkpoint, read_several

INDEX = "a.safetensors.index.json"


def train(steps, *options, save=INDEX):
    return ["--data", "data.txt", "--steps", steps, "--save", save, *options]


def files_of(step, count, generation=""):
    return [f"a.step{step}{generation}-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)]


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "data.txt")


def are_same(one, several):
    """Tensors, bit for bit, and what is said of the run."""
    metadata, tensors = several
    bytes_of_all = sum(tensor.nbytes for tensor in one[1].values())
    return metadata == one[0] | {"total_size": bytes_of_all} and tensors.keys() == one[1].keys() and \
        all(tensors[name].tobytes() == tensor.tobytes() and tensors[name].shape == tensor.shape for name, tensor in one[1].items())


def test_they_hold_what_one_file_holds(run, tmp_path, data):
    run(*train(5, save="one.safetensors"))
    run(*train(5, "--save-files", 3))
    assert are_same(read_checkpoint(tmp_path / "one.safetensors"), read_several(tmp_path / INDEX))
    assert names(tmp_path) == [INDEX, *files_of(5, 3), "one.safetensors"]
    metadata = [read_checkpoint(tmp_path / name)[0] for name in files_of(5, 3)]
    assert metadata == [{"format": "mpc", "model": "tiny", "step": "5", "part": f"{n} of 3"} for n in (1, 2, 3)]
    run(*train(5, "--load", INDEX, "--overwrite", save="back.safetensors")[4:], "--steps", 0)
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()


def test_one_file_for_each_rank_and_none_without_a_tensor(run, tmp_path, data):
    run(*train(1))
    assert names(tmp_path) == [INDEX, *files_of(1, 1)]
    run(*train(2, "--load", INDEX, "--save-files", 1000))
    count = len(set(json.loads((tmp_path / INDEX).read_text())["weight_map"].values()))
    assert names(tmp_path) == [INDEX, *files_of(2, count)] and 1 < count <= len(read_several(tmp_path / INDEX)[1])


def test_a_resumed_run_is_an_unbroken_one(run, tmp_path, data):
    run(*train(6, save="one.safetensors"))
    run(*train(3, "--save-files", 2))
    run(*train(6, "--load", INDEX, "--save-files", 3))
    assert are_same(read_checkpoint(tmp_path / "one.safetensors"), read_several(tmp_path / INDEX))


def test_files_of_the_same_step_have_other_names(run, tmp_path, data):
    """The old checkpoint stays whole until the new index has its name."""
    for generation in ("", ".1", ""):
        run(*train(2, "--save-files", 2, "--overwrite"))
        assert names(tmp_path) == [INDEX, *files_of(2, 2, generation)]


def test_keep(run, tmp_path, data):
    done = run(*train(11, "--save-every", 2, "--keep", 2, "--save-files", 2))
    kept = [f"a.step{step}.safetensors.index.json" for step in (8, 10)]
    assert names(tmp_path) == sorted([INDEX, *kept, *files_of(8, 2), *files_of(10, 2), *files_of(11, 2)])
    assert f"kept as {kept[1]}" in done.stderr
    assert [read_several(tmp_path / name)[0]["step"] for name in (*kept, INDEX)] == ["8", "10", "11"]


def test_what_another_index_names_stays(run, tmp_path, data):
    run(*train(1, "--save-files", 2))
    (tmp_path / "best.safetensors.index.json").write_bytes((tmp_path / INDEX).read_bytes())
    mine = ["a.step1-1-of-2.bin", "a.step1.safetensors", "a.stepx-00001-of-00002.safetensors", "b.step1-00001-of-00002.safetensors"]
    left = ["a.step7-00001-of-00002.safetensors", "a.step1.3-00002-of-00002.safetensors"]
    for name in (*mine, *left):
        (tmp_path / name).write_text("something")
    run(*train(2, "--save-files", 2, "--load", INDEX))
    assert names(tmp_path) == sorted([INDEX, "best.safetensors.index.json", *files_of(1, 2), *files_of(2, 2), *mine])
    run("--load", "best.safetensors.index.json", "--steps", 0)


def test_nothing_is_removed_beside_an_index_that_cannot_be_read(run, tmp_path, data):
    run(*train(1))
    (tmp_path / "b.safetensors.index.json").write_text("{")
    run(*train(2, "--load", INDEX))
    assert names(tmp_path) == sorted([INDEX, "b.safetensors.index.json", *files_of(1, 1), *files_of(2, 1)])


def test_an_index_in_another_folder_by_a_link(run, tmp_path, data):
    (tmp_path / "there").mkdir()
    (tmp_path / INDEX).symlink_to(f"there/{INDEX}")
    run(*train(2))
    assert (tmp_path / INDEX).is_symlink() and names(tmp_path / "there") == [INDEX, *files_of(2, 1)]
    run("--load", INDEX, "--steps", 0)


def test_several_files_need_an_index(refused, data):
    assert refused(*train(1, "--save-files", 2, save="a.safetensors"), status=2) == "error: --save-files 2: --save a.safetensors is one " \
        "file; give NAME.safetensors.index.json, the index of several"


# --- A checkpoint at any moment ------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", [(), ("--save-wait",)])
def test_killed_at_any_moment(trainer, killed, run, tmp_path, data, how):
    """The trainer is killed before each of its changes of files, in turn: there is a whole checkpoint, and the next run leaves no
    other file."""
    run(*train(4, "--save-every", 2, "--keep", 9, save="one.safetensors"))
    whole = {step: read_checkpoint(tmp_path / f"one.step{step}.safetensors") for step in (2, 4)}
    for path in tmp_path.glob("one*"):
        path.unlink()
    begin = tmp_path / "begin"
    begin.mkdir()
    run(*train(2, "--save-files", 2, save=f"begin/{INDEX}"))
    seen, moment = set(), 0
    while True:
        moment += 1
        folder = tmp_path / f"{moment}"
        shutil.copytree(begin, folder)
        again = train(4, "--load", f"{moment}/{INDEX}", "--save-files", 3, save=f"{moment}/{INDEX}")
        done = subprocess.run([trainer, *map(str, again), "--save-every", "2", *how], cwd=tmp_path, capture_output=True,
                              env={**os.environ, **killed, "KILL_AT": str(moment), "OMP_NUM_THREADS": "1"})
        found = read_several(folder / INDEX)
        step = int(found[0]["step"])
        assert are_same(whole[step], found), moment
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        seen.add(step)
        if step < 4:
            run(*again)
        else:  # a run that has nothing to do
            run(*again[:2], "--steps", 0, *again[4:])
        assert are_same(whole[4], read_several(folder / INDEX)), moment
        assert len(names(folder)) == 4, (moment, names(folder))
        shutil.rmtree(folder)
    assert seen == {2, 4} and moment > 20, moment


def test_a_disk_that_is_full_at_any_moment(killed, run, refused, tmp_path, data):
    """The old checkpoint is intact, and what was written of the new one is gone.  A large part takes up to three writes."""
    run(*train(1, "--save-files", 3))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = train(2, "--save-files", 3, "--load", INDEX)
    for moment in itertools.count(1):
        try:
            message = refused(*again, **killed, FULL_AT=moment)
        except AssertionError as error:
            assert str(error).startswith("status 0, not 1")
            break
        assert message.startswith(f"error: --save {INDEX}: cannot write it: No space left on device; the file there before is intact")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, moment
    assert moment > 7  # heads and tensors of three files, and the index


# --- What is not a checkpoint --------------------------------------------------------------------------------------

def edited(edit):
    def plant(folder):
        index = json.loads((folder / INDEX).read_text())
        edit(index)
        (folder / INDEX).write_text(json.dumps(index))
    return plant


def name_all(name):
    return edited(lambda index: index["weight_map"].update(dict.fromkeys(index["weight_map"], name)))


def swap(index):
    (a, b) = files_of(4, 2)
    index["weight_map"] = {tensor: b if file == a else a for tensor, file in index["weight_map"].items()}


def drop_one(index):
    index["weight_map"].popitem()


def change(folder):
    """One number of a tensor."""
    raw = bytearray((folder / files_of(4, 2)[1]).read_bytes())
    raw[-1] ^= 1
    (folder / files_of(4, 2)[1]).write_bytes(raw)


FIRST, SECOND = files_of(4, 2)
MISTAKES = {
    "wrong file": (edited(swap), "is not in a.step4-0000"),
    "missing file": (lambda folder: (folder / SECOND).unlink(), f"it names {SECOND}, which cannot be read: No such file or directory"),
    "another step": (lambda folder: os.replace(folder / "a.step2-00002-of-00002.safetensors", folder / SECOND),
                     f"it is of step 4, and {SECOND} of step 2"),
    "one left out": (edited(drop_one), "tensors, and it has "),
    "changed": (change, "has a wrong checksum"),
    "cut": (lambda folder: os.truncate(folder / SECOND, os.path.getsize(folder / SECOND) - 4), f"--load {INDEX}: {SECOND}: tensor "),
    "no step": (edited(lambda index: index["metadata"].pop("step")), "its __metadata__ say 'nothing' of step"),
    "elsewhere": (name_all("../" + FIRST), "its weight_map does not name a file beside it for each tensor"),
    "itself": (name_all("."), "its weight_map does not name a file beside it for each tensor"),
    "a number": (name_all(7), "its weight_map does not name a file beside it for each tensor"),
    "no map": (edited(lambda index: index.pop("weight_map")), "its weight_map does not name a file beside it for each tensor"),
    "no JSON": (lambda folder: (folder / INDEX).write_text('{"weight_map": '), "it is not a JSON object"),
    "empty": (lambda folder: (folder / INDEX).write_text(""), "the file is empty"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_planted_mistakes(run, refused, tmp_path, data, what):
    plant, said = MISTAKES[what]
    run(*train(4, "--save-files", 2, "--save-every", 2, "--keep", 2))
    run("--load", INDEX, "--steps", 0)
    plant(tmp_path)
    message = refused("--load", INDEX, "--steps", 0)
    assert said in message and "--load a." in message


def test_one_of_several_files(run, refused, data):
    run(*train(1, "--save-files", 2))
    assert refused("--load", files_of(1, 2)[0], "--steps", 0) == f"error: --load {files_of(1, 2)[0]}: it is file 1 of 2 of a checkpoint in " \
        "several; give the index of them, NAME.safetensors.index.json"


def test_weights_of_another_program(run, tmp_path, data):
    """An index without metadata, of weights alone."""
    run(*train(3, "--save-files", 2))
    before = read_several(tmp_path / INDEX)[1]
    index = json.loads((tmp_path / INDEX).read_text())
    (tmp_path / "w.safetensors.index.json").write_text(json.dumps({"weight_map": index["weight_map"]}))
    done = run("--load", "w.safetensors.index.json", "--weights-only", "--steps", 0, "--save", "back.safetensors")
    assert "weights only" in done.stderr
    after = read_checkpoint(tmp_path / "back.safetensors")[1]
    assert all(np.array_equal(before[name], after[name]) for name in before if not name.startswith("optimizer."))


@pytest.mark.parametrize("what", ["missing file", "cut", "no JSON", "empty"])
def test_resume_passes_over_a_damaged_index(run, tmp_path, data, what):
    """An older one is whole, and the result that of an unbroken run."""
    every = ["--save-files", 2, "--save-every", 2, "--keep", 2]
    run(*train(8, *every, save="whole.safetensors.index.json"))
    run(*train(4, *every))
    plant, said = MISTAKES[what]
    plant(tmp_path)
    done = run(*train(8, *every, "--resume"))
    assert f"--resume passes over {INDEX}: " in done.stderr and said.replace(f"--load {INDEX}: ", "") in done.stderr
    assert re.search(r"loaded a\.step[24]\.safetensors\.index\.json: step [24]", done.stderr)
    whole, resumed = (read_several(tmp_path / name)[1] for name in ("whole.safetensors.index.json", INDEX))
    assert {name: tensor.tobytes() for name, tensor in whole.items()} == {name: tensor.tobytes() for name, tensor in resumed.items()}
