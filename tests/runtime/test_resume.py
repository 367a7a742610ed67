"""--resume: the newest checkpoint that is whole, and nothing that a user made is lost."""
import os
import shutil

import pytest
from conftest import read_checkpoint

SAVE = ["--data", "data.txt", "--save", "a.safetensors", "--save-every", 2, "--keep", 3]


def step_of(path):
    return int(read_checkpoint(path)[0]["step"])


@pytest.fixture
def whole(run, tmp_path, data):
    """The checkpoint of ten unbroken steps."""
    run("--data", "data.txt", "--steps", 10, "--save", "whole", "--save-every", 2)
    return (tmp_path / "whole").read_bytes()


def flip(path, place):
    """One bit, in place: all names of the file see it."""
    with open(path, "r+b") as file:
        file.seek(place, os.SEEK_END if place < 0 else os.SEEK_SET)
        byte = file.read(1)[0]
        file.seek(place, os.SEEK_END if place < 0 else os.SEEK_SET)
        file.write(bytes([byte ^ 4]))


def test_nothing_there(run, tmp_path, whole):
    """It is a new run, or one from --load; a second start has nothing left to do."""
    done = run(*SAVE, "--steps", 10, "--resume")
    assert "--resume: there is no checkpoint a.safetensors yet: a new run\n" in done.stderr
    assert (tmp_path / "a.safetensors").read_bytes() == whole
    done = run(*SAVE, "--steps", 10, "--resume")
    assert "loaded a.safetensors: step 10" in done.stderr and "\nstep" not in done.stdout
    assert (tmp_path / "a.safetensors").read_bytes() == whole


def test_goes_on(run, tmp_path, whole):
    run(*SAVE, "--steps", 6, "--log", "log")
    run(*SAVE, "--steps", 10, "--log", "log", "--resume")
    assert (tmp_path / "a.safetensors").read_bytes() == whole
    assert len((tmp_path / "log").read_text().splitlines()) == 10


@pytest.mark.parametrize("damage, said", [
    (lambda path: flip(path, -5), "has a wrong checksum"),
    (lambda path: flip(path, 5), "bytes of header follow"),
    (lambda path: os.truncate(path, os.path.getsize(path) - 1), "not within the"),
    (lambda path: os.truncate(path, 3), "its first 8 bytes say"),
    (lambda path: os.truncate(path, 0), "the file is empty"),
], ids=["a bit", "the header", "cut by a byte", "cut", "empty"])
def test_damaged_ones_are_passed_over(run, tmp_path, whole, damage, said):
    """The newest kept one is the same file, and is looked at once.  The result is that of an unbroken run."""
    run(*SAVE, "--steps", 8)
    damage(tmp_path / "a.safetensors")
    damage(tmp_path / "a.step6.safetensors")
    done = run(*SAVE, "--steps", 10, "--resume")
    notes = [line for line in done.stderr.splitlines() if "passes over" in line]
    assert [note.split(": ")[1] for note in notes] == ["--resume passes over a.safetensors", "--resume passes over a.step6.safetensors"]
    assert all(said in note for note in notes), notes
    assert "loaded a.step4.safetensors: step 4" in done.stderr and (tmp_path / "a.safetensors").read_bytes() == whole


def test_a_wrong_tensor_is_noticed(run, tmp_path, whole):
    """What the comparisons of this file with an unbroken run are worth: one bit that no checksum covers."""
    run(*SAVE, "--steps", 6)
    path = tmp_path / "a.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"checksum.', b'"unchecked'))
    flip(path, -1)
    run(*SAVE, "--steps", 10, "--resume")
    assert path.read_bytes() != whole


def test_all_are_damaged(run, refused, tmp_path, data):
    """Then nothing is written over."""
    run(*SAVE, "--steps", 4)
    names = ["a.safetensors", "a.step2.safetensors"]
    for name in names:
        flip(tmp_path / name, -5)
    before = [(tmp_path / name).read_bytes() for name in names]
    said = run(*SAVE, "--steps", 10, "--resume", "--overwrite", status=1).stderr
    assert "error: --resume: no checkpoint of --save a.safetensors is whole (2 passed over); move them away to begin anew" in said
    assert [(tmp_path / name).read_bytes() for name in names] == before


def test_another_model_is_not_damage(run, refused, tmp_path, data):
    """A checkpoint that does not fit is an error, not passed over."""
    run(*SAVE, "--steps", 4)
    path = tmp_path / "a.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"bias"', b'"bios"').replace(b"checksum.bias", b"checksum.bios"))
    assert "--load a.safetensors: tensor 'bios' is not one of model" in refused(*SAVE, "--steps", 10, "--resume")


def test_begins_from_load(run, tmp_path, data):
    """--weights-only and --load-missing say how a run begins, not how it goes on."""
    run("--data", "data.txt", "--steps", 4, "--save", "base")
    begin = ["--load", "base", "--weights-only", "--load-missing=init"]
    run("--data", "data.txt", "--steps", 6, "--save", "unbroken", *begin)
    done = run(*SAVE, "--steps", 2, "--resume", *begin)
    assert "there is no checkpoint a.safetensors yet: the run begins from --load" in done.stderr
    run(*SAVE, "--steps", 6, "--resume", *begin)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "unbroken").read_bytes()


def test_without_save(refused, data):
    assert "--resume" in refused("--data", "data.txt", "--steps", 4, "--resume", status=2)


def test_a_kept_one_alone(run, tmp_path, whole):
    run(*SAVE, "--steps", 6)
    shutil.move(tmp_path / "a.safetensors", tmp_path / "mine")
    (tmp_path / "a.step6.safetensors").unlink()
    run(*SAVE, "--steps", 10, "--resume")
    assert (tmp_path / "a.safetensors").read_bytes() == whole and step_of(tmp_path / "mine") == 6


def test_kept_ones_do_not_pile_up(run, tmp_path, data):
    """Those of the starts before are this run's; of other steps, and more than it keeps, they stay."""
    run(*SAVE[:-1], 9, "--steps", 8)
    (tmp_path / "a.step3.safetensors").write_text("mine")
    for steps in (10, 12):
        run(*SAVE, "--steps", steps, "--resume")
    assert sorted(p.name for p in tmp_path.glob("a.step*")) == \
        ["a.step10.safetensors", "a.step12.safetensors", "a.step2.safetensors", "a.step3.safetensors", "a.step8.safetensors"]


def test_progress_for_the_launcher(run, tmp_path, data):
    (tmp_path / "progress").touch()
    run(*SAVE, "--steps", 5, MPC_PROGRESS="progress")
    assert (tmp_path / "progress").read_text().split()[:-1] == ["from", "0", "step", "5", "saved", "5", "peak"]
    assert "MPC_PROGRESS none/at/all: cannot open it" in run(*SAVE, "--steps", 6, "--resume", MPC_PROGRESS="none/at/all").stderr
