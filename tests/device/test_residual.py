"""Residuals that products add as they write their results: what is added, where it lies, and that it is rounded once."""
import pytest
from conftest import BUILD, Trainer, emulated, start
from test_one_rank import train

# In bf16 512 + (129 / 128 + 1) is 516, rounded once, and 512 if each sum is rounded: neighbours are 4 apart.  All other
# numbers are exact.  `last` is the residual's last use: then the sum is written over it.
MODEL = """
dim batch
dim seq   = 8
dim vocab = 256
dim embed = 8
dim ff    = 4

model m {
    input tokens : i32[batch, seq]
    param table  : [vocab, embed] = constant(512)
    param given  : [vocab, ff]    = constant(0.251953125)
    param w      : [ff, embed]    = ones
    param b      : [embed]        = ones
    param v      : [embed]        = ones
    x = table[vocab = tokens]
    y = x + (dot(given[vocab = tokens], w, ff) + b)
    loss mean(dot(y, v, embed)) / 8
}

train {
    optimizer  = sgd(lr = 0)
    schedule   = constant(warmup = 0)
    batch      = 2
    microbatch = 2
    precision  = PRECISION
}
"""
AGAIN = ("loss mean(dot(y, v, embed)) / 8", "loss mean(dot(y, v, embed)) / 8 + 0 * mean(dot(x, v, embed))")


@pytest.fixture(scope="module")
def made(tmp_path_factory, cache):
    """made(target, precision, last): its trainer, made once."""
    trainers = {}

    def make(target, precision, last):
        key = (target, precision, last)
        if key not in trainers:
            folder = tmp_path_factory.mktemp("residual")
            text = MODEL.replace("PRECISION", precision)
            (folder / "m.mdl").write_text(text if last else text.replace(*AGAIN))
            start([BUILD / "mpc", "compile", folder / "m.mdl", "--target", target, "--cflags=-O0 -rdynamic", "-o", folder], folder)
            trainers[key] = Trainer(folder, target, cache)
        return trainers[key]
    return make


def losses(trainer, data, folder, how):
    return [line["loss"] for line in train(trainer, data, folder, environment={"EMULATED_EPILOGUES": how}.items())]


@pytest.mark.parametrize("last", [True, False])
def test_rounded_once(last, made, data, tmp_path):
    trainer = made("cuda", "bf16", last)
    calls = (trainer.folder / "trainer.c").read_text()
    assert ("rt_product_added(" in calls) == (not last)
    assert set(losses(trainer, data, tmp_path, "")) == {516}
    assert set(losses(made("c", "bf16", last), data, tmp_path / "c", "")) == {512}


@emulated
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("how", ["none", "unknown", "late", "inplace"])
def test_products_that_cublaslt_does_not_have(how, last, made, data, tmp_path):
    """The bias is then added by a kernel of ours, to a sum that is already rounded; what cuBLASLt adds to may have to be
    copied first."""
    is_whole = how == "inplace" and last
    assert set(losses(made("cuda", "bf16", last), data, tmp_path / "bf16", how)) == {516 if is_whole else 512}
    assert set(losses(made("cuda", "fp32", last), data, tmp_path / "fp32", how)) == {514.007812}  # in f32, of which the log has nine digits


@emulated
def test_residuals_left_to_cublaslt(compiled, data, tmp_path):
    """Of GPT-2; with and without copies the bits are the same."""
    trainer = compiled("gpt2", "cuda")
    right, copied, wrong = (train(trainer, data, tmp_path / how, environment={"EMULATED_EPILOGUES": how}.items())
                            for how in ("", "inplace", "residuals"))
    assert [(line["loss"], line["grad_norm"]) for line in copied] == [(line["loss"], line["grad_norm"]) for line in right]
    assert abs(wrong[0]["loss"] - right[0]["loss"]) > 1e-4 * right[0]["loss"]
