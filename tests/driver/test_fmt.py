"""mpc fmt: layout alone changes, and only once."""
import re

import pytest

UGLY = """\


# a comment   
const   layers=2 # two
dim batch
dim embed  = 4*layers+ -1\t
block  b( x:[ batch,embed ] ) {
param w:[embed]=normal( 1e-2 )   # kept

  param gain_long : [embed] = ones
      y = x[ batch=3 ]* -w+maximum( x ,0.5 )
    z = dot(x,
   y,
        embed)
    state t = mean of  b (0.9)
    scan batch(reverse = true) { yield y = (w+1)/2 }
        return  (x+y)/-2
}

optimizer o(){ update(param-grad)/2 }
train { batch=8
lr = -1e+5 # µ stays
group "w"(lr=1)
group "w" sgd (lr=1)
}
parallel { shard (batch,embed) over dp else embed
shard seq over cp(blocks=2)
shard ff over tp else seq(overlap = 2)
zero 1 over dp,cp (bucket=2)
}


"""
NEAT = """\
# a comment
const   layers = 2 # two
dim batch
dim embed  = 4 * layers + -1
block  b(x: [batch, embed]) {
    param w: [embed] = normal(1e-2)   # kept

    param gain_long : [embed] = ones
    y = x[batch = 3] * -w + maximum(x, 0.5)
    z = dot(x,
            y,
            embed)
    state t = mean of  b (0.9)
    scan batch (reverse = true) { yield y = (w + 1) / 2 }
    return (x + y) / -2
}

optimizer o() { update (param - grad) / 2 }
train { batch = 8
    lr = -1e+5 # µ stays
    group "w" (lr = 1)
    group "w" sgd(lr = 1)
}
parallel { shard (batch, embed) over dp else embed
    shard seq over cp (blocks = 2)
    shard ff over tp else seq (overlap = 2)
    zero 1 over dp, cp (bucket = 2)
}
"""


def tokens(text):
    return re.sub(r"[ \t]+", "", re.sub(r"\n\s*\n", "\n", text.strip()))


@pytest.fixture
def ugly(mpc):
    path = mpc.directory / "ugly.mdl"
    path.write_text(UGLY)
    return path


def test_layout(mpc, ugly):
    assert mpc("fmt", "ugly.mdl").stdout == NEAT
    assert ugly.read_text() == UGLY


def test_layout_keeps_every_token(mpc, ugly):
    assert tokens(mpc("fmt", "ugly.mdl").stdout).replace("#acomment\n", "") == tokens(UGLY).replace("#acomment\n", "")


def test_write_then_check(mpc, ugly):
    said = mpc("fmt", "--check", "ugly.mdl", status=1)
    assert "mpc fmt --write ugly.mdl" in said.stderr and said.stdout == ""
    assert mpc("fmt", "--write", "ugly.mdl").stdout == ""
    assert ugly.read_text() == NEAT
    assert mpc("fmt", "--check", "ugly.mdl").stdout == ""
    before = ugly.stat().st_mtime_ns
    mpc("fmt", "--write", "ugly.mdl")
    assert ugly.stat().st_mtime_ns == before, "a file that is laid out well is not touched"


@pytest.mark.parametrize("model", ["tiny.mdl", "mixed.mdl"])
def test_models_are_laid_out(mpc, model):
    mpc("fmt", "--check", model)


def test_syntax_errors_are_reported_and_nothing_is_written(mpc, ugly):
    ugly.write_text("dim = 3\n")
    assert "ugly.mdl:1:5: error: " in mpc("fmt", "--write", "ugly.mdl", status=1).stderr
    assert ugly.read_text() == "dim = 3\n"
