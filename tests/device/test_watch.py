"""A rank that stops is noticed wherever the others wait for it, and they end; messages of a pipeline do not hold each other up."""
import re

import pytest
from conftest import emulated, some
from test_ranks import SETTINGS, compile_layout, error_of, run

SERIAL = {"EMULATED_SERIAL": "1"}.items()


@pytest.fixture(scope="module")
def pipeline(compiled):
    return compiled("gpt2", "cuda", SETTINGS + (("microbatch", 1),), ("-D", "layers=4", "--mesh", "dp=1,tp=1,pp=4", "--schedule", "1f1b"))


def stops(rank, number, more=""):
    """Its GPU stops, which it would notice, too; it waits longer than the others."""
    return (f"{more} if [ $OMPI_COMM_WORLD_RANK = {rank} ]; then export EMULATED_STOP={number}; set -- \"$@\" --timeout 300; "
            f"else set -- \"$@\" --timeout 3; fi;")


# In the first step, which is queued directly, and in those that are graphs.
@emulated
@pytest.mark.parametrize("number", some([3, 100], 1))
def test_full_queue(number, compiled, data, tmp_path):
    """Behind the collective that hangs the queue of launches fills up, until a launch does not return."""
    trainer = compile_layout(compiled, "chars", "tp=2", 0, 8)
    done = run(trainer, "tp=2", data, tmp_path, status=1, steps=50,
               of_rank=stops(1, number, "export EMULATED_QUEUE=20 EMULATED_ABORTED=aborted$OMPI_COMM_WORLD_RANK;"))
    assert re.search(r"rank 0 \(tp 0\) has waited \d+ s in \w+ over tp at '\S+' \(", error_of(done)), done.stderr
    assert (tmp_path / "aborted0").read_text() == "0 of 2\n", "its kernels would keep CUDA from ending"


@emulated
@pytest.mark.parametrize("rank,number", [(3, 4), (1, 60)])  # the first two of rank 3 connect it with its neighbour
def test_stage_that_stops(rank, number, pipeline, data, tmp_path):
    """One names the message that it waits for."""
    done = run(pipeline, "pp=4", data, tmp_path, status=1, steps=50, of_rank=stops(rank, number))
    error = error_of(done)
    assert re.search(r"rank (\d) \(pp \1\) has waited \d+ s( before [FB] of micro-batch \d)? in send over pp at '\S+' \(\S*gpt2.mdl:", error), error


@emulated
def test_stage_that_does_not_connect(pipeline, data, tmp_path):
    """Before the first step: the time-out holds there, too."""
    done = run(pipeline, "pp=4", data, tmp_path, status=1, of_rank=stops(3, 1))
    assert re.search(r"rank (\d) \(pp \1\) has waited \d+ s for other ranks to connect with NCCL: ", error_of(done)), done.stderr


@emulated
def test_sends_are_not_held_up(pipeline, data, tmp_path):
    """A receive that waits has no send behind it that could have started."""
    run(pipeline, "pp=4", data, tmp_path, environment={"EMULATED_HELD_UP": "held"}.items(),
        of_rank="export EMULATED_HELD_UP=held$OMPI_COMM_WORLD_RANK;")
    assert [(tmp_path / f"held{rank}").read_text() for rank in range(4)] == 4 * ["0\n"]


@emulated
@pytest.mark.parametrize("model,mesh,zero,microbatch,options", some([
    ("llama", "dp=2,tp=2", 3, 2, ()),
    ("mixtral", "dp=2,ep=2", 3, 2, ()),
    ("gpt2", "dp=2,tp=1,pp=2", 1, 1, ("-D", "layers=4", "--schedule", "zb")),
    ("llama", "dp=1,cp=2,tp=1,pp=2", 0, 2, ("--schedule", "1f1b")),
], 1, 2))
def test_one_order(model, mesh, zero, microbatch, options, compiled, data, tmp_path):
    """A GPU may have no room for the kernels of all communicators at one time: one after the other, in the order in which they
    were started, none waits for ever."""
    zero = ("--zero", zero) if zero else ()
    trainer = compiled(model, "cuda", SETTINGS + (("microbatch", microbatch),), (*options, "--mesh", mesh, *zero))
    run(trainer, mesh, data, tmp_path, environment=SERIAL)


@emulated
def test_another_order(compiled, data, tmp_path):
    """On one rank, an operation is started after others: they wait for each other."""
    trainer = compiled("llama", "cuda", SETTINGS + (("microbatch", 2),), ("--mesh", "dp=2,tp=2", "--zero", 3))
    done = run(trainer, "dp=2,tp=2", data, tmp_path, "--timeout", 3, status=1, environment=SERIAL,
               of_rank="[ $OMPI_COMM_WORLD_RANK != 2 ] || export EMULATED_SWAP=4;")
    assert " has waited " in error_of(done)
