"""No model of the project computes a product by plain loops, which are tens of times slower than the library's: the
checks of results do not see time."""
import pytest

from conftest import MPC, ROOT, run

MODELS = sorted([*ROOT.glob("examples/*.mdl"), *ROOT.glob("tests/models/*.mdl")])
LOOPS = "A product that no library takes"
FEW = """dim batch
dim seq = 8
dim head = 4
dim d = 16
dim out = 3
model few {
    input x : f32[batch, head, seq, d]
    param w : [head, d, out] = normal(0.1)
    loss mean(square(dot(x, w, head, d)))
}
train { batch = 2 }
"""


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_no_product_is_loops(path, tmp_path):
    run(MPC, "compile", path, "-o", tmp_path / "out", "--no-cc")
    assert LOOPS not in (tmp_path / "out/trainer.c").read_text()


def test_some_products_are(tmp_path):
    """Of so few columns that a copy of the other operand is not worth its time."""
    (tmp_path / "few.mdl").write_text(FEW)
    run(MPC, "compile", tmp_path / "few.mdl", "-o", tmp_path / "out", "--no-cc")
    assert LOOPS in (tmp_path / "out/trainer.c").read_text()
