"""No model of the project computes a product by plain loops, which are tens of times slower than the library's, and
products of what lies side by side are one: the checks of results do not see time."""
import re

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


def products_of(source, function):
    """The shapes of the products that the function runs."""
    shapes = re.findall(r"\{ \.m = .*?\},?\n(?= *\{ \.m|\};)", source, re.S)
    body = source.split(f"static void run_{function}(")[1].split("\n}\n")[0]
    return [shapes[int(number)] for number in re.findall(r"rt_product\w*\(rt, (\d+)", body)]


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("model, options, forward, inputs, weights", [
    # One each of q, k and v; attention's output; up; down.
    ("gpt2", [], 4, 4, 4),
    # v is stored for the backward, q and k are before they are rotated; the gradients of wq, and of wk and wv, which are
    # narrower; gate and up are one.
    ("llama", [], 5, 4, 5),
    # A gathered weight is where messages need it: each product adds to the sum of those before.
    ("gpt2", ["--mesh", "dp=2"], 6, 6, 4),
])
def test_products_of_a_layer(model, options, forward, inputs, weights, target, tmp_path):
    run(MPC, "compile", ROOT / f"examples/{model}.mdl", "-o", tmp_path / "out", "--no-cc", f"--target={target}", *options)
    source = (tmp_path / "out/trainer.c").read_text()
    backward = products_of(source, "h_bwd")
    sums = [shape for shape in backward if ".c = { RT_F32" in shape]
    assert (len(products_of(source, "h_fwd")), len(backward) - len(sums), len(sums)) == (forward, inputs, weights)
