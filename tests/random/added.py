"""Parts that programs get besides what is drawn, which has them rarely."""
from parser import parse
from scope import binary
from tree import Input, Loss, Param

WIDEST = 2048  # of layers: messages are short beside their products
LAYERS = """
dim batch
dim seq = 1
dim vocab = 1
dim wide8 = WIDE
dim inner8 = INNER
block layer8(x: [..., wide8]) {
    param up : [wide8, inner8] = uniform(-0.1, 0.1)
    param down : [inner8, wide8] = normal(0.05)
    return dot(tanh(dot(x, up, wide8)), down, inner8)
}
model m {
    input tokens : i32[batch, seq]
    param table8 : [vocab, wide8] = uniform(-1.2, 1.2)
    e8 = table8[vocab = tokens]
    repeat 2 {
        e8 = e8 + (layer8(e8) as w8)
    }
    loss 0.25 * mean(square(e8))
}
train {
    optimizer = sgd(lr = 0.1)
}
"""


# As many dims as a tensor may have; its operands have one more together.
MANY_DIMS = """
dim batch
dim seq = 1
dim vocab = 1
dim aa9 = 2
dim bb9 = 2
dim cc9 = 1
dim dd9 = 2
dim ee9 = 2
dim ff9 = 4
dim gg9 = 8
dim hh9 = 4
dim ii9 = 2
model m {
    input tokens : i32[batch, seq]
    param table9 : [vocab, aa9, bb9, cc9, dd9, ee9, ff9] = uniform(-1.2, 1.2)
    x9 = merge(tanh(table9[vocab = tokens]), (ee9, ff9) -> gg9)
    y9 = split(x9, gg9 -> (hh9, ii9))
    loss 0.25 * mean(square(y9))
}
train {
    optimizer = sgd(lr = 0.1)
}
"""


def add(program, text):
    """The statements and blocks of a model of tokens."""
    tokens = next((s for s in program.model.body if isinstance(s, Input) and s.name == "tokens"), None)
    if not tokens or tokens.type.dims != ["batch", "seq"] or "vocab" not in program.dims:
        return
    added = parse(text)
    body, (_, param, *statements, loss) = program.model.body, added.model.body
    first = next(i for i, statement in enumerate(body) if not isinstance(statement, (Input, Param)))
    body[first:first] = [param]
    body[-1:] = [*statements, Loss(binary("+", body[-1].value, loss.value))]
    at = program.declarations.index(program.model)
    program.declarations[at:at] = [d for d in added.declarations if getattr(d, "name", "")[-1:] in ("8", "9")]


def add_layers(draw, program):
    """Layers whose products have several blocks of 8 bits: drawn statements rarely have them."""
    wide, inner = draw.choice([256, 256, 384]), draw.choice([128, 200, 256])
    add(program, LAYERS.replace("WIDE", str(wide)).replace("INNER", str(inner)))


def add_wide_layers(program):
    """Layers that compute much of little: beside that, messages cross their borders."""
    add(program, LAYERS.replace("WIDE", "8").replace("INNER", str(WIDEST)).replace("repeat 2", "repeat 3"))


def add_many_dims(program):
    add(program, MANY_DIMS)
