"""What NCCL takes of a GPU is taken before the arena, measured for each group, and said; nothing is taken later."""
import re

import pytest
from conftest import emulated, planned_bytes, some
from test_ranks import SETTINGS, error_of, run

pytestmark = emulated
EACH = 1_000_000  # bytes, for each rank that is connected to this one


def train(trainer, mesh, data, tmp_path, room, status=0):
    """Rank 0 has a GPU with so much memory, and the others have enough."""
    environment = {"EMULATED_NCCL_BYTES": str(EACH), "MPC_PEAK_FLOPS": "0"}
    return run(trainer, mesh, data, tmp_path, status=status, environment=environment.items(),
               of_rank=f"if [ $OMPI_COMM_WORLD_RANK = 0 ]; then export EMULATED_BYTES={room} EMULATED_USED=used; fi;")


# A communicator connects its ranks.  Experts' messages connect each with all, and itself.  A pipeline has five communicators
# for messages, which connect neighbours, one for sums of all stages, and one for the tied weight of two.
@pytest.mark.parametrize("model,mesh,options,taken", some([
    ("llama", "dp=2,tp=2", ("--zero", 3), {"dp": 2, "tp": 2, "dp, tp": 4}),
    ("mixtral", "ep=2", (), {"ep": 2 + 2}),
    ("gpt2", "dp=1,tp=1,pp=4", ("-D", "layers=4"), {"pp": 5 * 4 + 4 + 2 + 2}),
], 0, 2))
def test_taken_before_the_arena(model, mesh, options, taken, compiled, data, tmp_path):
    trainer = compiled(model, "cuda", SETTINGS + (("microbatch", 2),), (*options, "--mesh", mesh))
    need = planned_bytes(trainer) + EACH * sum(taken.values())
    done = train(trainer, mesh, data, tmp_path, need)
    said, groups = re.search(r", (\S+ MB) by NCCL \((.*?)\)", done.stderr).groups()
    assert said == f"{EACH * sum(taken.values()) / 1e6:.2f} MB"
    found = dict.fromkeys(taken, 0.0)
    for megabytes, axes in re.findall(r"(\S+) MB over (.+?)(?=, \d|$)", groups):
        found[axes] += float(megabytes)
    assert found == {axes: EACH * count / 1e6 for axes, count in taken.items()}
    assert int((tmp_path / "used").read_text()) <= need
    error = error_of(train(trainer, mesh, data, tmp_path, need - 1, status=1))
    assert "out of memory: " in error and f"{EACH * sum(taken.values()) / 1e6:.2f} MB by NCCL (" in error, error
