"""mpc new: a model that compiles, is formatted, and learns its own text at once."""
import re

import numpy as np
import pytest


def test_it_trains_on_itself(mpc):
    said = mpc("new", "tale").stdout
    assert said.endswith("next: mpc run tale.mdl --data tale.mdl --steps 100 --sample 200\n")
    text = (mpc.directory / "tale.mdl").read_text()
    assert "model tale {" in text and "NAME" not in text
    mpc("fmt", "--check", "tale.mdl")
    command = re.search(r"next: mpc (.*) --steps", said).group(1).split()
    steps = mpc(*command, "--steps", 40, "--print-every", 40, "--sample", 20, MPC_PEAK_FLOPS="1e12").stdout
    losses = [float(loss) for loss in re.findall(r"loss (\d\.\d+)", steps)]
    counts = np.bincount(np.frombuffer(text.encode(), np.uint8))
    shares = counts[counts > 0] / counts.sum()
    assert losses[0] == pytest.approx(np.log(256), abs=0.3)  # nothing is known at the start
    assert losses[-1] < -(shares * np.log(shares)).sum()  # and later more than how often each byte occurs


def test_its_commands_are_those_of_mpc(mpc):
    """Each line of the comment at its head, in a shell."""
    mpc("new", "tale")
    lines = re.findall(r"^#   mpc (check|report|compile) (.*?)  ", (mpc.directory / "tale.mdl").read_text(), re.M)
    assert [command for command, _ in lines] == ["check", "report", "compile"]
    for command, words in lines:
        mpc(command, *words.split())


def test_a_file_of_that_name_stays(mpc, refused):
    (mpc.directory / "tale.mdl").write_text("mine")
    for name in ("tale", "tale.mdl", "./tale"):
        assert "tale.mdl is there already: give another name" in refused("new", name, status=1)
    assert (mpc.directory / "tale.mdl").read_text() == "mine"


def test_a_folder_in_the_name(mpc):
    (mpc.directory / "some where").mkdir()
    said = mpc("new", "some where/tale.mdl").stdout
    assert "mpc run 'some where/tale.mdl' --data" in said and "model tale {" in (mpc.directory / "some where/tale.mdl").read_text()


@pytest.mark.parametrize("name", ["model", "3d", "a-b", "a b", "", "x/", ".mdl", "é"])
def test_what_is_no_name(mpc, refused, name):
    before = set(mpc.directory.iterdir())
    assert "cannot be the name of a model" in refused("new", name)
    assert set(mpc.directory.iterdir()) == before
