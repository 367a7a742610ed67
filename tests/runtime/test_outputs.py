"""What a run writes over: nothing that is wanted, and nothing that another run writes."""
import os
import signal
import subprocess
import time

import pytest
from conftest import read_checkpoint, read_log

TRAIN = ["--data", "data.txt", "--steps", 3]


# --- Files that are there -----------------------------------------------------------------------

def test_checkpoint_of_a_fresh_run_replaces_no_other(run, refused, tmp_path, data):
    run(*TRAIN, "--save", "a")
    before = (tmp_path / "a").read_bytes()
    message = "error: --save a: the file already exists and would be lost; go on from it with --resume, give another " \
              "name, or give --overwrite"
    assert refused(*TRAIN, "--save", "a", "--seed", 7, TINY_DUMP="dump") == message
    assert (tmp_path / "a").read_bytes() == before and not (tmp_path / "dump").exists()
    run(*TRAIN, "--save", "a", "--seed", 7, "--overwrite")
    assert (tmp_path / "a").read_bytes() != before


def test_going_on_with_the_same_file_needs_no_word(run, refused, tmp_path, data):
    run(*TRAIN, "--save", "a", "--log", "log")
    more = ["--data", "data.txt", "--steps", 5]
    run(*more, "--load", "a", "--save", "./a", "--log", "log")
    assert read_checkpoint(tmp_path / "a")[0]["step"] == "5" and len(read_log(tmp_path / "log")) == 5
    run(*more, "--save", "b")
    assert "--save b: the file already exists" in refused("--load", "a", "--steps", 0, "--save", "b")


def test_what_is_no_checkpoint_is_kept_too(refused, tmp_path, data):
    (tmp_path / "thesis.tex").write_text("x")
    for option in ("--save", "--trace", "--log"):
        assert f"{option} thesis.tex: the file already exists" in refused(*TRAIN, option, "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "x"


def test_an_empty_file_is_no_loss(run, tmp_path, data):
    for name in "abc":
        (tmp_path / name).touch()
    run(*TRAIN, "--save", "a", "--log", "b", "--trace", "c")
    assert read_checkpoint(tmp_path / "a")[0]["step"] == "3" and len(read_log(tmp_path / "b")) == 3


@pytest.mark.parametrize("closed", [[1], [2], [1, 2], [0, 1, 2]])
def test_nothing_is_printed_into_files(run, tmp_path, data, closed):
    """The first files that are opened would have the numbers of stdout and stderr, were these closed."""
    run(*TRAIN, "--save", "a", "--log", "log", before=lambda: [os.closerange(number, number + 1) for number in closed])
    assert read_checkpoint(tmp_path / "a")[0]["step"] == "3"
    assert [line["step"] for line in read_log(tmp_path / "log")] == [1, 2, 3]


# --- One file for two uses ----------------------------------------------------------------------

@pytest.fixture
def links(run, tmp_path, data):
    run(*TRAIN, "--save", "loaded")
    (tmp_path / "soft").symlink_to("data.txt")
    os.link(tmp_path / "data.txt", tmp_path / "hard")
    (tmp_path / "folder").mkdir()


@pytest.mark.parametrize("options", [
    ["--save", "data.txt"], ["--log", "data.txt"], ["--trace", "data.txt"], ["--save", "soft"], ["--log", "hard"],
    ["--save", "folder/../data.txt"], ["--eval-data", "loaded", "--save", "loaded"], ["--save", "x", "--log", "x"],
    ["--load", "loaded", "--trace", "loaded"], ["--load", "loaded", "--log", "loaded"], ["--log", "x", "--trace", "./x"],
    ["--save", "folder/../x", "--log", "x"], ["--save", "x", "--log", "x.tmp"], ["--trace", "x", "--log", "x.tmp"],
])
@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_one_file_for_two_uses(refused, tmp_path, links, options, more):
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    message = refused("--data", "data.txt", "--steps", 5, *options, *more, status=2)
    assert " are the same file: " in message and "give another name" in message
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


@pytest.mark.parametrize("option", ["--save", "--log", "--trace"])
def test_the_trainer_is_an_input(refused, trainer, tmp_path, data, option):
    os.link(trainer, tmp_path / "program")
    assert "are the same file" in refused("--data", "data.txt", "--steps", 1, option, "program", "--overwrite", status=2)


@pytest.mark.parametrize("option", ["--save", "--trace"])
@pytest.mark.parametrize("link", [os.link, os.symlink, lambda _, name: os.mkfifo(name)])
def test_a_partial_that_is_there(run, refused, tmp_path, data, option, link):
    """It is another name of a file of the user's, or a pipe that nobody reads."""
    (tmp_path / "other").write_text("precious")
    link(tmp_path / "other", tmp_path / "x.tmp")
    if link is os.link:
        run("--data", "data.txt", "--steps", 1, option, "x")
    else:
        assert "is not a file; remove that" in refused("--data", "data.txt", "--steps", 1, option, "x", status=1)
    assert (tmp_path / "other").read_text() == "precious"


def test_index_of_megatron_is_an_input(refused, tmp_path, data):
    (tmp_path / "a.bin").write_bytes(bytes(2000))
    (tmp_path / "a.idx").write_bytes(b"x")
    assert "are the same file" in refused("--data", "a.bin", "--steps", 1, "--log", "a.idx", status=2)


def test_a_link_stays_one(run, tmp_path, data):
    (tmp_path / "far").mkdir()
    (tmp_path / "latest").symlink_to("far/a")
    (tmp_path / "chain").symlink_to("latest")
    run(*TRAIN, "--save", "chain")
    assert (tmp_path / "chain").is_symlink() and (tmp_path / "latest").is_symlink()
    assert read_checkpoint(tmp_path / "far" / "a")[0]["step"] == "3"
    run("--data", "data.txt", "--steps", 4, "--load", "latest", "--save", "latest")
    assert read_checkpoint(tmp_path / "far" / "a")[0]["step"] == "4"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["chain", "data.txt", "far", "latest"]
    assert [p.name for p in (tmp_path / "far").iterdir()] == ["a"]


@pytest.mark.parametrize("options", [["--save", "out"], ["--save", "out", "--save-wait", "--save-every", 1], ["--trace", "out"]])
def test_who_may_read_it_stays(run, tmp_path, data, options):
    """Of a file that only its owner may read, the next checkpoint is one, too."""
    (tmp_path / "out").touch()
    for mode in (0o600, 0o664):
        (tmp_path / "out").chmod(mode)
        run(*TRAIN, *options, "--overwrite")
        assert (tmp_path / "out").stat().st_size and (tmp_path / "out").stat().st_mode & 0o777 == mode


# --- Two runs -----------------------------------------------------------------------------------

@pytest.fixture
def writing(trainer, tmp_path, data):
    """A run in the middle of its steps, which writes some file."""
    started = []

    def start(*options, sleep="5", print_every="1"):
        started.append(subprocess.Popen([trainer, "--data", "data.txt", "--steps", "1000000", "--print-every", print_every, *options],
                                        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "TINY_SLEEP_MS": sleep}))
        for _ in range(5):
            assert started[-1].stdout.readline()
        return started[-1]
    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("every", [[], ["--save-every", "1"]])
def test_two_runs_save_to_one_file(refused, tmp_path, writing, every):
    """Before its first checkpoint and after it."""
    process = writing("--save", "a", *every, **(dict(sleep="0", print_every="20") if every else {}))
    message = "error: --save a: another process is writing it; wait until it ends, or give another path"
    assert refused(*TRAIN, "--save", "a", "--overwrite") == message
    if every:
        for _ in range(30): # at any time between two saves, or in one
            assert refused(*TRAIN, "--save", "a", "--overwrite") == message
        assert refused("--data", "data.txt", "--steps", 10**6, "--load", "a", "--save", "a") == message
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "data.txt"] and read_checkpoint(tmp_path / "a")


def test_two_runs_log_to_one_file(refused, writing):
    writing("--log", "log")
    assert "--log log: another process is writing it" in refused(*TRAIN, "--log", "log", "--overwrite")


def test_a_killed_run_leaves_no_lock(run, tmp_path, writing):
    for options in ([], ["--save-every", "1"]):
        process = writing("--save", "a", "--overwrite", *options)
        process.kill()
        process.wait()
    time.sleep(0.1)
    run(*TRAIN, "--save", "a", "--overwrite")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "data.txt"]


def test_nothing_is_left_of_a_run_that_saves_nothing(refused, tmp_path, data):
    assert "cannot open it" in refused("--data", "none", "--steps", 1, "--save", "a")
    assert [p.name for p in tmp_path.iterdir()] == ["data.txt"]


@pytest.mark.parametrize("environment", [
    dict(OMPI_COMM_WORLD_SIZE=2, OMPI_COMM_WORLD_RANK=1), dict(PMI_SIZE=2, PMI_RANK=0), dict(WORLD_SIZE=3, RANK=0),
    dict(SLURM_STEP_NUM_TASKS=2, SLURM_PROCID=1)])
def test_several_of_a_trainer_of_one_rank(run, refused, data, environment):
    message = refused(*TRAIN, **environment)
    name, count = next(iter(environment.items()))
    assert message.endswith(f" was compiled for one rank, but {count} were started ({name}): start one, or compile it for a "
                            f"mesh (mpc compile --mesh ...); for independent runs unset {name}")
    run(*TRAIN, **{name: 1})
    run("--help", **environment)
