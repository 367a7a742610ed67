"""The figures of the table in docs/models.md, which BLESS=1 writes."""
import pytest
from common import MPC, run
from test_maps import MODEL


@pytest.fixture(scope="session")
def figures():
    found = {}
    yield found
    from table import write_table
    write_table(found)


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    """Of the model of test_maps, with a warmup of 50 steps."""
    folder = tmp_path_factory.mktemp("trainer")
    (folder / "small.mdl").write_text(MODEL.replace("train {", "train { schedule = constant(warmup = 50)\n"))
    run(MPC, "compile", folder / "small.mdl", "-o", folder / "out", "--cflags", "-O0")
    return folder / "out" / "trainer"
