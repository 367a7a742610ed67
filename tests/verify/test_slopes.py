"""`mpc compile --verify-passes` compares the gradient of each parameter with how the loss changes.

What mistakes in gradients it notices is measured by tests/mutate.  Here: what it says, and that it keeps still where
there is nothing but rounding.
"""
import re

import layouts

MODEL = """
dim batch
dim seq = 4
dim vocab = 5
dim embed = 4
model m {
    input tokens : i32[batch, seq]
    param w : [vocab, embed] = normal(1)
    param b : [embed] = zeros
    x = w[vocab = tokens] + b
    loss %s
}
train {
    batch = 2
    optimizer = sgd(lr = 1)
}
"""


def verify(tmp_path, loss):
    source = tmp_path / "slopes.mdl"
    source.write_text(MODEL % loss)
    return layouts.run([layouts.MPC, "compile", source, "-o", tmp_path / "out", "--no-cc", "--verify-passes"])


def test_gradient_that_is_no_number(tmp_path):
    """A root of what is masked out has no slope, and 0 times that is no number: the loss itself is smooth."""
    done = verify(tmp_path, "mean(where(x < 9, x, sqrt(x - 9)))")
    assert done.returncode == 1, done.stderr
    for name, line in (("w", 8), ("b", 9)):
        assert f"mpc: the gradient of '{name}' (slopes.mdl:{line}:11) is not a number for these weights" in done.stderr
    assert re.search(r"is infinite or NaN, as %\d+ is \(slopes.mdl:11:31\); keep it finite", done.stderr), done.stderr


def test_rounding(tmp_path):
    """Gradients that are 0 but for rounding: what a softmax does not see, a sum that is 1, a function that is flat."""
    for loss in ("sum(square(softmax(x - 100 * mean(x, embed), embed)))", "sum(softmax(x, embed))",
                 "sum(tanh(x + 50))", "sum(x - x)", "mean(exp(x * 1000 - x * 1000))", "sum(layernorm(x, embed, eps = 0))"):
        done = verify(tmp_path, loss)
        assert done.returncode == 0, loss + "\n" + done.stderr
