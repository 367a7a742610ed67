"""Losses of many forms in chunks of tokens: no pass changes what a step computes, with reals and modulo a prime, under
layouts, and the backward computes the loss, so that no product is done once more."""
import subprocess

import pytest

from layouts import MPC, product

MODEL = """dim batch
dim seq   = 24
dim vocab = 32
dim embed = 8

model m {{
    input tokens : i32[batch, seq]
    input labels : i32[batch, seq] = next(tokens)
    param table  : [vocab, embed] = normal(0.3)
    x = tanh(table[vocab = tokens])
{head}
    {loss}
}}

train {{
    batch       = 4
    microbatch  = 2
    loss_chunks = 4
}}

parallel {{
    mesh  dp = 1, cp = 1, tp = 1
    shard batch over dp
    shard seq over cp
    shard vocab over tp else seq
}}
"""
OWN = """    param head : [embed, vocab] = normal(0.3)
    logits = dot(x, head, embed)"""
CE = "cross_entropy(logits, labels, vocab)"
FORMS = {  # head, loss
    "plain": (OWN, f"loss mean({CE})"),
    "tied": ("    logits = dot(x, table, embed)", f"loss mean({CE})"),
    "softcap": (OWN.replace("dot(x, head, embed)", "30 * tanh(dot(x, head, embed) / 30)"), f"loss mean({CE})"),
    "ignored": (OWN, "loss mean(cross_entropy(logits, where(labels == 3, -100, labels), vocab))"),
    "masked": (OWN, f"loss sum(where(labels == 3, 0, {CE})) / 100"),
    "size-of-logits": (OWN, f"loss mean({CE}) + 0.01 * mean(square(logits)) + 0.01 * mean(square(logsumexp(logits, vocab)))"),
    "smooth-labels": (OWN, f"loss 0.9 * mean({CE}) - 0.1 * mean(log_softmax(logits, vocab))"),
    "teacher": (OWN + "\n    param other : [embed, vocab] = normal(0.3) frozen\n    soft = stop_gradient(softmax(dot(x, other, embed), vocab))",
                f"loss 0.5 * mean({CE}) - 0.5 * mean(sum(soft * log_softmax(logits, vocab), vocab))"),
    "two-heads": (OWN + "\n    param second : [embed, vocab] = normal(0.3)\n    more = dot(x, second, embed)",
                  f"loss mean({CE}) + 0.3 * mean(cross_entropy(more, tokens, vocab))"),
}


def verified(tmp_path, head, loss, *options):
    (tmp_path / "m.mdl").write_text(MODEL.format(head=head, loss=loss))
    run = subprocess.run([MPC, "compile", tmp_path / "m.mdl", "--no-cc", "-o", tmp_path, "--remarks=all", *options],
                         capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    assert "chunk: " in run.stdout + run.stderr and " in 4 chunks of 6 of 'seq'" in run.stdout + run.stderr
    return run.stdout + run.stderr


@pytest.mark.parametrize("form, mesh", product(form=list(FORMS), mesh=["dp=1", "dp=2,tp=2", "cp=2"]))
def test_forms(form, mesh, tmp_path):
    said = verified(tmp_path, *FORMS[form], "--verify-passes=exact", "--mesh", mesh)
    assert "the same in" in said and "computed twice" not in said


def test_a_loss_that_its_gradient_needs(tmp_path):
    """d exp(mean) is exp(mean): the backward cannot begin before all of it is known."""
    assert "computed twice" in verified(tmp_path, OWN, f"loss exp(mean({CE}))", "--verify-passes", "--set=train.microbatch=4")
