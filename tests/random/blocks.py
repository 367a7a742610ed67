"""Blocks over dims, with numbers as arguments: drawn from blocks without, and written out again for the evaluator, which
knows none.  A block for each of the calls' dims and numbers is what the manual says a call means."""
import copy
import dataclasses

from tree import (Argument, Binary, Block, Call, Flag, Index, Model, Name, Number, Range, Scan, TypeOf, statements_of, value_of,
                  walk)

# Functions for which the size of a dim matters beyond what is even.
BY_SIZE = {"top_k", "dispatch", "combine", "balance", "iota", "cross_entropy", "concat", "split", "merge", "conv", "shift", "one_hot",
           "rename"}


def replaced(node, dims, numbers):
    """A copy with other dims, and expressions in place of names."""
    if isinstance(node, (list, tuple)):
        return type(node)(replaced(x, dims, numbers) for x in node)
    if isinstance(node, dict):
        return {name: replaced(x, dims, numbers) for name, x in node.items()}
    if isinstance(node, Name):
        return copy.deepcopy(numbers[node.name]) if node.name in numbers else Name(dims.get(node.name, node.name))
    if not dataclasses.is_dataclass(node):
        return node
    made = copy.copy(node)
    for field in dataclasses.fields(node):
        setattr(made, field.name, replaced(getattr(node, field.name), dims, numbers))
    if isinstance(made, (TypeOf, Call)):
        made.dims = [dims.get(d, d) for d in made.dims]
    if isinstance(made, (Index, Scan)):
        made.dim = dims.get(made.dim, made.dim)
    if isinstance(made, Range):
        made.part = dims.get(made.part, made.part)
    if isinstance(made, Call):
        made.parts = [(dims.get(one, one), [dims.get(d, d) for d in several]) for one, several in made.parts]
    if isinstance(made, Call) and made.shared:
        made.shared = frozenset(dims.get(d, d) for d in made.shared)
    if isinstance(made, Call) and made.renaming:
        made.renaming = tuple(getattr(numbers[d], "text", None) or numbers[d].name if d in numbers else dims.get(d, d) for d in made.renaming)
    return made


# --- Written out -----------------------------------------------------------------------------------------------------

class Expansion:
    def __init__(self, program):
        self.blocks, self.made = program.blocks, {}
        kept = [d for d in program.declarations if not (isinstance(d, Block) and is_general(d))]
        self.declarations = []
        for declaration in copy.deepcopy(kept):
            if isinstance(declaration, (Block, Model)):
                self.expand(declaration)
            self.declarations.append(declaration)

    def expand(self, declaration):
        for statement in statements_of(declaration.body):
            for e in walk(value_of(statement)) if value_of(statement) is not None else ():
                if isinstance(e, Call) and e.function in self.blocks:
                    self.expand_call(e, self.blocks[e.function])

    def expand_call(self, call, block):
        call.instance = call.instance or call.function
        if not is_general(block):
            return
        numbers = {a.name: x for a, x in zip(block.arguments, call.arguments) if a.type is None}
        key = repr((block.name, call.dims, sorted(numbers.items())))
        if key not in self.made:
            self.made[key] = f"{block.name}__{len(self.made)}"
            own = replaced(block, dict(zip(block.dims, call.dims)), numbers)
            own.name, own.dims = self.made[key], []
            own.arguments = [a for a in own.arguments if a.type is not None]
            self.expand(own)
            self.declarations.append(own)
        call.arguments = [x for a, x in zip(block.arguments, call.arguments) if a.type is not None]
        call.function, call.dims = self.made[key], []


def is_general(block):
    return bool(block.dims) or any(a.type is None for a in block.arguments)


def expanded(program):
    """The program, if it has no blocks over dims or numbers; else another one that means the same."""
    if not any(is_general(block) for block in program.blocks.values()):
        return program
    made = copy.copy(program)
    made.declarations = Expansion(program).declarations
    return made


# --- Drawn -----------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class General:
    """What calls of a drawn block give: dims in its brackets, as the block was drawn, and its numbers."""
    dims: list
    numbers: list
    fixed: set        # the dims that the block names besides
    by_size: bool     # are only dims of the same size possible?
    averages: bool    # has it a mean, which of a cross_entropy counts labels?


def inside(block, blocks):
    """The expressions of a block, and of those that it calls."""
    for statement in statements_of(block.body):
        for e in walk(value_of(statement)) if value_of(statement) is not None else ():
            yield e
            if isinstance(e, Call) and e.function in blocks:
                yield from inside(blocks[e.function], blocks)


def dims_of(block, blocks, known):
    """The dims of the file that a block names, also by the blocks that it calls."""
    found = {d for a in block.arguments if a.type for d in a.type.dims}
    for statement in statements_of(block.body):
        found |= set(statement.type.dims) if getattr(statement, "type", None) else set()
        found |= {statement.dim} if isinstance(statement, Scan) else set()
    for e in inside(block, blocks):
        found |= {e.name} if isinstance(e, Name) else {e.dim} if isinstance(e, Index) else set()
        found |= {e.part} if isinstance(e, Range) else set()
        if isinstance(e, Call):
            found |= {*e.dims, *(e.renaming or ()), *[d for one, several in e.parts for d in (one, *several)]}
            found |= dims_of(blocks[e.function], blocks, known) if e.function in blocks else set()
    return found & set(known)


def literals(block):
    """(holder, its field or keyword) of each number and flag that may as well be given."""
    for statement in statements_of(block.body):
        for e in walk(value_of(statement)) if value_of(statement) is not None else ():
            if isinstance(e, Binary):
                yield from ((e.__dict__, side) for side in ("left", "right")
                            if isinstance(getattr(e, side), Number) and "." in getattr(e, side).text)
            if isinstance(e, Call) and e.function not in ("conv", "dispatch"):  # whose sizes depend on flags
                yield from ((e.keywords, name) for name, x in e.keywords.items() if isinstance(x, Flag))


def generalise(draw, state, block):
    """Makes the block one over some of its dims and numbers; gives what its calls give."""
    blocks = {d.name: d for d in state.declarations if isinstance(d, Block)}
    calls = [e for e in inside(block, blocks) if isinstance(e, Call)]
    scanned = {s.dim for s in statements_of(block.body) if isinstance(s, Scan)}  # which may not be the batch, nor padded
    of_called = {d for e in calls if e.function in blocks for d in dims_of(blocks[e.function], blocks, state.sizes)}
    said = dims_of(block, blocks, state.sizes) if draw.random() < 0.3 else {d for a in block.arguments for d in a.type.dims}
    free = sorted(said - {"batch"} - scanned - of_called)
    wanted = draw.sample(free, min(len(free), draw.choice([0, 1, 1, 2]))) if draw.random() < 0.4 else []
    if any(e.function == "concat" for e in calls):  # which looks at how its dims are declared
        wanted = []
    numbers = []
    found = list(literals(block))
    for holder, field in draw.sample(found, min(len(found), draw.choice([0, 1, 2]))) if draw.random() < 0.4 else ():
        if not isinstance(holder[field], (Number, Flag)):  # one expression in two places
            continue
        name = state.fresh("k")
        numbers.append(holder[field])
        is_compared = isinstance(holder[field], Flag) and draw.random() < 0.3
        holder[field] = Binary("==", Name(name), Number("1")) if is_compared else Name(name)
        block.arguments.append(Argument(name, None))
    own = {d: state.fresh("w") for d in wanted}
    general = replaced(block, own, {})
    block.arguments, block.body, block.dims = general.arguments, general.body, list(own.values())
    by_size = any(e.function in BY_SIZE for e in calls) or any(isinstance(e, Index) for e in inside(block, blocks)) or \
        any(e.function == "rope" for e in calls)
    return General(wanted, numbers, dims_of(block, blocks, state.sizes) | set(wanted), by_size,
                   any(e.function == "mean" for e in calls))


def other_dims(draw, state, general, forbidden):
    """Dims for another call, as {drawn: given}: some are others than when it was drawn, of the same size or smaller."""
    given = {d: d for d in general.dims}
    for d in general.dims if draw.random() < 0.6 else ():
        fitting = [e for e in state.sizes if e not in general.fixed and e != "batch" and e not in given.values()
                   and e not in forbidden and (state.sizes[e] == state.sizes[d] or
                                               (state.sizes[e] < state.sizes[d] and not general.by_size))]
        if fitting:
            given[d] = draw.choice(fitting)
    return given


def other_numbers(draw, general):
    """A flag may be either, a number half of what it was."""
    return [Flag(draw.random() < 0.5) if isinstance(x, Flag) else
            x if draw.random() < 0.5 else Binary("*", x, Number("0.5")) for x in general.numbers]
