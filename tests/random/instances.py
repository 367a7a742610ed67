"""Instances of blocks that have a name and several uses: `h = mlp`, `h(x)`, `frozen h(y)`.  The parser reads them as any
assignment and call, and finds here which are; the generator makes them of calls that are drawn."""
import collections
import dataclasses

from prune import bodies, expressions
from tree import Assign, Binary, Call, Mean, Name, Named, Number, Param, Repeat, Scan, value_of, walk


def resolve(program):
    """The program, with its Named instances and their uses."""
    for declaration in bodies(program):
        resolve_body(declaration.body, {}, program.blocks)
    return program


def resolve_body(body, blocks_of, blocks):
    """blocks_of: names of instances that are known here -> their blocks."""
    known = dict(blocks_of)
    for i, statement in enumerate(body):
        value = value_of(statement)
        if isinstance(statement, Assign) and not statement.type and isinstance(value, Name) and value.name in blocks:
            body[i] = Named(statement.name, value.name)
            known[statement.name] = value.name
        elif isinstance(statement, Mean):
            known[statement.name] = known[statement.of]
        elif isinstance(statement, (Repeat, Scan)):
            resolve_body(statement.body, known, blocks)
        for e in walk(value) if value is not None else ():
            if isinstance(e, Call) and e.function in known:
                e.function, e.instance, e.is_use = known[e.function], e.function, True


# --- Drawn -----------------------------------------------------------------------------------------------------------

def plain_calls(statement, blocks):
    """Calls of blocks in a statement, but for those that a condition chooses."""
    value = value_of(statement)
    found = list(walk(value)) if value is not None else []
    chosen = {id(e) for c in found if isinstance(c, Call) and c.function == "if" for e in walk(c)}
    return [e for e in found if isinstance(e, Call) and e.function in blocks and id(e) not in chosen and not e.is_use]


def plain_uses(statement, calls):
    """Those of the calls that the statement has."""
    value = value_of(statement)
    return [e for e in (walk(value) if value is not None else ()) if any(e is call for call in calls)]


def places_of(body, around=()):
    """(statement, bodies around it with the position in each, from the outermost)."""
    for i, statement in enumerate(body):
        yield statement, (*around, (body, i))
        if isinstance(statement, (Repeat, Scan)):
            yield from places_of(statement.body, (*around, (body, i)))


def in_one_place(program):
    """The expressions that are not in two places of the program."""
    times = collections.Counter(id(e) for expression in expressions(program) for e in walk(expression))
    return {e for e, count in times.items() if count == 1}


def with_another(node, old, new):
    """A copy of the expression with `new` in place of its part `old`."""
    if node is old:
        return new
    if isinstance(node, (list, tuple)):
        return type(node)(with_another(x, old, new) for x in node)
    if isinstance(node, dict):
        return {name: with_another(x, old, new) for name, x in node.items()}
    if not dataclasses.is_dataclass(node):
        return node
    return dataclasses.replace(node, **{field.name: with_another(getattr(node, field.name), old, new) for field in dataclasses.fields(node)})


def share_some(draw, program):
    """Some calls of a block become uses of one instance, that is named in a body around all of them."""
    count, alone = 0, in_one_place(program)
    trains = any(isinstance(s, Param) and not s.frozen and not s.state for s in program.model.body) and \
        not {"freeze", "trained"} & {*program.train}
    for declaration in bodies(program):
        if draw.random() < 0.6:
            continue
        calls = [(call, around) for statement, around in places_of(declaration.body)
                 for call in plain_calls(statement, program.blocks) if id(call) in alone]
        if not calls:
            continue
        first, around = draw.choice(calls)
        body, at = draw.choice(around)
        others = [call for call, where in calls if call is not first and call.function == first.function and
                  same_dims_and_numbers(call, first, program.blocks) and any(b is body and i >= at for b, i in where)]
        shared = [first, *draw.sample(others, min(len(others), draw.choice([1, 1, 2])))]
        count += 1
        name = f"one{count}"
        for call in shared:
            call.instance, call.is_use, call.frozen = name, True, False
        body.insert(at, Named(name, first.function))
        order = [(n, statement, call) for n, (statement, _) in enumerate(places_of(declaration.body)) for call in plain_uses(statement, shared)]
        if draw.random() < 0.4:
            mean = f"mean{count}"
            if order[-1][0] > order[0][0]:
                order[-1][2].instance = mean
            else:  # what the one computes and what its mean computes, side by side
                statement, use = order[0][1:]
                if statement.value is use and isinstance(statement, Assign) and statement.more:
                    continue
                beside = Binary("+", use, Binary("*", dataclasses.replace(use, instance=mean), Number("0.5")))
                statement.value = beside if statement.value is use else with_another(statement.value, use, beside)
            body.insert(at + 1, Mean(mean, name, Number("0.75")))
            continue
        if draw.random() < 0.3 and (trains or len(shared) > 1):
            draw.choice(shared).frozen = True


def same_dims_and_numbers(a, b, blocks):
    """Uses of an instance have the same parameters."""
    numbers = [[x for argument, x in zip(blocks[c.function].arguments, c.arguments) if argument.type is None] for c in (a, b)]
    return a.dims == b.dims and numbers[0] == numbers[1]
