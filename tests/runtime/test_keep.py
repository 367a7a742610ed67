"""--keep: the last checkpoints, whatever ends the run, and nobody else's files."""
import os
import re
import subprocess
import time

import pytest
from conftest import read_checkpoint


def train(steps, *options):
    return ["--data", "data.txt", "--steps", steps, "--save", "a.safetensors", "--save-every", 2, *options]


def kept(path):
    return sorted((p.name for p in path.iterdir() if ".step" in p.name), key=lambda n: int(re.findall(r"\d+", n)[0]))


def step_of(path):
    return int(read_checkpoint(path)[0]["step"])


def test_the_last_ones_stay(run, tmp_path, data):
    done = run(*train(11, "--keep", 3))
    assert kept(tmp_path) == [f"a.step{n}.safetensors" for n in (6, 8, 10)]
    assert [step_of(tmp_path / name) for name in kept(tmp_path)] == [6, 8, 10]
    assert step_of(tmp_path / "a.safetensors") == 11
    assert "saved step 10 to a.safetensors\nkept as a.step10.safetensors\n" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if ".step" not in p.name) == ["a.safetensors", "data.txt"]


def test_the_newest_costs_no_room(run, tmp_path, data):
    run(*train(4, "--keep", 2))
    assert os.path.samefile(tmp_path / "a.safetensors", tmp_path / "a.step4.safetensors")


def test_resumes_from_the_newest_and_from_a_kept_one(run, tmp_path, data):
    run(*train(10))
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").unlink()
    run(*train(6, "--keep", 9))
    run(*train(10, "--keep", 9, "--load", "a.safetensors"))
    assert (tmp_path / "a.safetensors").read_bytes() == whole
    run("--data", "data.txt", "--steps", 10, "--save", "b", "--load", "a.step2.safetensors")
    assert (tmp_path / "b").read_bytes() == whole


def test_a_name_that_is_taken(run, refused, tmp_path, data):
    (tmp_path / "a.step4.safetensors").write_text("mine")
    for name in ("a.step5.safetensors", "a.step40.safetensors", "a.stepx.safetensors", "b.step2.safetensors", "a.step2"):
        (tmp_path / name).write_text("mine, but of no step that is saved")
    assert refused(*train(6, "--keep", 2)) == "error: --keep 2: a.step4.safetensors exists beside a.safetensors, and " \
        "this run will need that name; move it, give another --save, or give --overwrite"
    run(*train(6, "--keep", 1, "--overwrite"))
    assert not (tmp_path / "a.step4.safetensors").exists() and step_of(tmp_path / "a.step6.safetensors") == 6
    assert (tmp_path / "a.step5.safetensors").exists() and (tmp_path / "a.step40.safetensors").exists()


@pytest.mark.parametrize("option", ["--log", "--trace", "--eval-data"])
@pytest.mark.parametrize("name", ["a.step4.safetensors", "folder/../a.step4.safetensors", "link"])
def test_a_name_with_another_use(run, refused, tmp_path, data, option, name):
    """What is kept would replace it, or be replaced."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("a.step4.safetensors")
    if option == "--eval-data":
        (tmp_path / "a.step4.safetensors").write_bytes(data.tobytes())
    said = refused(*train(6, "--keep", 1, "--overwrite", option, name), status=2)
    assert said == f"error: {option} {name} and a checkpoint that --keep 1 will keep beside --save a.safetensors have one name; " \
        "give another"
    run(*train(3, "--keep", 1, "--overwrite", option, name))  # too short for that step


def test_only_files_that_the_run_wrote_are_removed(trainer, tmp_path, data):
    """Others that get such a name in the middle of the run stay."""
    process = subprocess.Popen([trainer, *map(str, train(10**6, "--keep", 2))], cwd=tmp_path, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "TINY_SLEEP_MS": "40"})
    lines = []
    for line in process.stderr:
        lines.append(line.strip())
        if line.startswith("kept as a.step4."):
            (tmp_path / "a.step8.safetensors").write_text("mine")
            (tmp_path / "a.step4.safetensors").unlink()
            (tmp_path / "a.step4.safetensors").write_text("mine, too")
        if line.startswith("kept as a.step16."):
            break
    process.terminate()
    process.communicate()
    assert "note: step 8 is not kept: a file that is not this run's has the name of it" in lines
    assert (tmp_path / "a.step8.safetensors").read_text() == "mine"
    assert (tmp_path / "a.step4.safetensors").read_text() == "mine, too"
    assert kept(tmp_path)[:2] == ["a.step4.safetensors", "a.step8.safetensors"] and len(kept(tmp_path)) == 4


def test_a_kill_leaves_as_many_whole_ones(trainer, tmp_path, data):
    command = [trainer, *map(str, train(10**6, "--keep", 3, "--overwrite"))]
    command[command.index("--save-every") + 1] = "1"
    for pause in (0.01, 0.023, 0.037, 0.041, 0.05):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(kept(tmp_path)) < 3:
            time.sleep(0.001)
        time.sleep(pause)
        process.kill()
        process.wait()
        names = kept(tmp_path)
        assert 3 <= len(names) <= 5, names  # and one of which the removal, or the link, is not done
        for name in names:
            assert f".step{step_of(tmp_path / name)}." in name
        for path in tmp_path.iterdir():
            if path.name != "data.txt":
                path.unlink()


def test_needs_save_every(refused, data):
    message = refused("--data", "data.txt", "--steps", 2, "--save", "a", "--keep", 2, status=2)
    assert message == "error: --keep has no effect without --save-every: leave it out, or give both"


def test_room_for_all(run, refused, tmp_path, data):
    """A checkpoint has 1.05 MB."""
    (tmp_path / "disk").mkdir()
    if os.system(f"mount -t tmpfs -o size=2500k none {tmp_path}/disk 2>/dev/null"):
        pytest.skip("no right to mount a small file system")
    try:
        options = ["--data", "data.txt", "--steps", 4, "--save", "disk/a", "--save-every", 1, "--keep"]
        assert "--save disk/a: it will need 3.1" in refused(*options, 2)
        run(*options, 1)
    finally:
        os.system(f"umount {tmp_path}/disk")
