"""States in blocks, as of a batch norm: drawn blocks get a running mean of an argument, which moves what they compute."""
from instances import plain_calls
from prune import bodies
from scope import binary, call
from tree import Assign, Call, Name, Param, Scan, TypeOf, Update, statements_of, value_of, walk


def calls_in(body, blocks):
    return [e for s in statements_of(body) if value_of(s) is not None for e in walk(value_of(s))
            if isinstance(e, Call) and e.function in blocks]


def called_in_scans(program):
    """The names of blocks that run once for each place of a scan, by themselves or by others."""
    blocks = program.blocks
    found = {e.function for d in bodies(program) for s in statements_of(d.body) if isinstance(s, Scan) for e in calls_in(s.body, blocks)}
    while True:
        more = {e.function for name in found for e in calls_in(blocks[name].body, blocks)} - found
        if not more:
            return found
        found |= more


def fitting(program):
    """(block, argument) of blocks whose every call makes an instance, that runs once in a step."""
    shared, blocks = set(), program.blocks
    for declaration in bodies(program):
        for statement in statements_of(declaration.body):
            plain = plain_calls(statement, blocks)
            shared |= {e.function for e in calls_in([statement], blocks) if not any(e is p for p in plain) or e.frozen}
    within = set(shared)
    while within:  # blocks that these call are shared, too
        within = {e.function for name in within for e in calls_in(blocks[name].body, blocks)} - shared
        shared |= within
    left_out = shared | called_in_scans(program)
    return [(block, a) for block in blocks.values() if block.name not in left_out for a in block.arguments
            if a.type and not a.type.is_open and a.type.dtype is None and program.batch_dim in a.type.dims and len(a.type.dims) > 1]


def average_some(draw, program):
    """In some programs: a state, its update, and the argument from then on without it."""
    found = fitting(program) if draw.random() < 0.4 else []
    for block, argument in draw.sample(found, min(len(found), draw.choice([1, 1, 2]))):
        name = f"average_{argument.name}"
        dims = draw.sample([d for d in argument.type.dims if d != program.batch_dim], draw.randint(1, len(argument.type.dims) - 1))
        rest = [d for d in argument.type.dims if d not in dims]
        seen = call(draw.choice(["mean", "mean", "sum", "max"]), argument.name, *rest)
        seen = call("tanh", seen) if draw.random() < 0.5 else binary("*", seen, 0.25)
        kept = binary("*", Name(name), 0.5)
        moved = binary(draw.choice("+-"), argument.name, name)
        if program.whole and draw.random() < 0.4:  # as of a batch norm
            moved = binary("-", argument.name, call("training", call("mean", argument.name, *rest), name))
        first = next(i for i, s in enumerate(block.body) if not isinstance(s, Param))
        block.body[first:first] = [Param([name], TypeOf(dims), Name(draw.choice(["zeros", "ones"])), state=True),
                                   Update(name, binary("+", kept, seen)), Assign(argument.name, moved)]
