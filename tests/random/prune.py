"""Takes away what does not lead to the loss: the language refuses values, parameters, inputs and arguments that are never
used.  A value that a repeat carries is used if the next turn uses it for something that is."""
from constants import names_in
from tree import (Assign, Block, Call, Const, Dim, Index, Input, Loss, Model, Name, Number, Output, Param, Range, Repeat, Return,
                  Scan, Update, Yield, statements_of, value_of, walk)


def mentioned(expression):
    """Names, dims and blocks in an expression."""
    found = set()
    for e in walk(expression):
        if isinstance(e, Name):
            found.add(e.name)
        elif isinstance(e, Index):
            found |= {e.dim, e.at.part} if isinstance(e.at, Range) else {e.dim}
        elif isinstance(e, Call):
            found |= {e.function, *e.dims, *(e.renaming or ())}
            found |= {d for one, several in e.parts for d in (one, *several)}
            found |= set().union(*[names_in(value) for value in e.keywords.values()])
    return found


# --- Values ----------------------------------------------------------------------------------------------------------

def assigned_in(body):
    """Also what scans in it yield; of the body of a scan itself, not what it yields."""
    assigned = {name for s in statements_of(body) if isinstance(s, Assign) for name in s.names}
    return assigned | {s.name for s in statements_of(body) if isinstance(s, Yield) and s not in body}


def backwards(body, live):
    """(the statements that are of use, what is read before them), where `live` is read after them; ("yield", name): after
    the scan."""
    kept, live = [], set(live)
    for statement in reversed(body):
        if isinstance(statement, Assign):
            if not live & set(statement.names):
                continue
            live -= set(statement.names)
            live |= mentioned(statement.value)
        elif isinstance(statement, Repeat):
            inner, live = through_repeat(statement, live)
            if not inner:
                continue
            statement.body = inner
        elif isinstance(statement, Scan):
            inner, live = through_scan(statement, live)
            if not inner:
                continue
            statement.body = inner
        elif isinstance(statement, Yield):
            if ("yield", statement.name) not in live:
                continue
            live |= mentioned(statement.value)
        elif isinstance(statement, (Update, Return, Loss, Output)):
            live |= mentioned(statement.value)
        kept.append(statement)
    return kept[::-1], live


def through_repeat(repeat, live):
    """What a turn reads at its start is read at its end, by the next.  What the body assigns is carried, with the type that it
    had before, even if no turn reads that value."""
    at_end = set(live)
    while repeat.count != Number("1"):
        _, at_start = backwards_of_copy(repeat.body, at_end)
        if at_start <= at_end:
            break
        at_end |= at_start
    inner, at_start = backwards(repeat.body, at_end)
    if repeat.number not in at_start:
        repeat.number = None
    at_start.discard(repeat.number)
    return inner, live | at_start | assigned_in(inner)


def through_scan(scan, live):
    """The same; what it yields is another value outside."""
    yielded = {s.name for s in scan.body if isinstance(s, Yield)} & live
    at_end = live - yielded | {("yield", name) for name in yielded}
    while True:
        _, at_start = backwards_of_copy(scan.body, at_end)
        if at_start <= at_end:
            break
        at_end |= at_start
    inner, at_start = backwards(scan.body, at_end)
    at_start = {name for name in at_start if name in live or not isinstance(name, tuple)}
    return inner, live - yielded | at_start | assigned_in(inner)


def copy_of(statement):
    """With a body of its own."""
    if isinstance(statement, Repeat):
        return Repeat(statement.count, [copy_of(s) for s in statement.body], statement.number)
    if isinstance(statement, Scan):
        return Scan(statement.dim, [copy_of(s) for s in statement.body], statement.reverse)
    return statement


def backwards_of_copy(body, live):
    """As backwards, and leaves the statements as they are."""
    return backwards([copy_of(s) for s in body], live)


# --- Declarations ----------------------------------------------------------------------------------------------------

def bodies(program):
    return [d for d in program.declarations if isinstance(d, (Block, Model))]


def expressions(program):
    """All that statements compute or count by."""
    for declaration in bodies(program):
        for statement in statements_of(declaration.body):
            if value_of(statement) is not None:
                yield value_of(statement)
            if isinstance(statement, Repeat):
                yield statement.count
            if isinstance(statement, Scan):
                yield Name(statement.dim)
            if isinstance(statement, Param):
                yield statement.init


def names_read(program):
    return set().union(*[mentioned(e) for e in expressions(program)])


def dims_stated(program):
    """Dims in types, in sizes of others, and in the layout; consts in settings."""
    found = set()
    for declaration in program.declarations:
        if isinstance(declaration, Block):
            found |= {d for argument in declaration.arguments if argument.type for d in argument.type.dims}
        for statement in statements_of(getattr(declaration, "body", [])):
            found |= set(statement.type.dims) if getattr(statement, "type", None) else set()
        if isinstance(declaration, (Dim, Const)):
            found |= names_in(declaration.size if isinstance(declaration, Dim) else declaration.value)
    for line in program.parallel:
        for dim in getattr(line, "dims", []):
            found |= {dim} if isinstance(dim, str) else set(dim)
        found |= {line.otherwise} if getattr(line, "otherwise", None) else set()
    return found.union(*[mentioned(value) for value in program.train.values()])


def keep_params(declaration):
    read = set().union(*[mentioned(value_of(s)) for s in statements_of(declaration.body) if value_of(s) is not None])
    for statement in declaration.body:
        if isinstance(statement, Param):
            statement.names[:] = [name for name in statement.names if name in read]
    declaration.body[:] = [s for s in declaration.body if not isinstance(s, Param) or s.names]
    return read


def renamed(body, old, new):
    for statement in statements_of(body):
        for e in walk(value_of(statement)) if value_of(statement) is not None else ():
            if isinstance(e, Name) and e.name == old:
                e.name = new


def keep_inputs(model):
    """Each input is used: where one is not, and one that follows it is, that one's readers take it instead."""
    read = keep_params(model)
    inputs = [s for s in model.body if isinstance(s, Input)]
    for i, one in enumerate(inputs):
        later = [other for other in inputs[i + 1:] if other.name in read and other.type == one.type]
        if one.name not in read and later:
            renamed(model.body, later[-1].name, one.name)
            read = read - {later[-1].name} | {one.name}
    model.body[:] = [s for s in model.body if not isinstance(s, Input) or s.name in read]


def keep_arguments(program, block):
    """An argument that the block does not read is not given to it either."""
    read = backwards_of_copy(block.body, set())[1]
    wanted = [a.name in read for a in block.arguments]
    if all(wanted):
        return
    block.arguments[:] = [a for a, keep in zip(block.arguments, wanted) if keep]
    done = set()
    for expression in expressions(program):
        for e in walk(expression):
            if isinstance(e, Call) and e.function == block.name and id(e) not in done:
                done.add(id(e))
                e.arguments[:] = [a for a, keep in zip(e.arguments, wanted) if keep]


def keep_dims(program, block):
    """The same for a dim in its brackets."""
    read = set().union(*[mentioned(value_of(s)) for s in statements_of(block.body) if value_of(s) is not None])
    for typed in [*block.arguments, *statements_of(block.body)]:
        read |= set(typed.type.dims) if getattr(typed, "type", None) else set()
    wanted = [d in read for d in block.dims]
    if all(wanted):
        return
    block.dims[:] = [d for d, keep in zip(block.dims, wanted) if keep]
    done = set()
    for expression in expressions(program):
        for e in walk(expression):
            if isinstance(e, Call) and e.function == block.name and id(e) not in done:
                done.add(id(e))
                e.dims[:] = [d for d, keep in zip(e.dims, wanted) if keep]


def pruned(program):
    """The program itself, with all of that gone."""
    before = None
    while before != size_of(program):
        before = size_of(program)
        for declaration in bodies(program):
            declaration.body[:] = backwards(declaration.body, set())[0]
            keep_params(declaration)
        keep_inputs(program.model)
        for block in program.blocks.values():
            keep_arguments(program, block)
            keep_dims(program, block)
        wanted = names_read(program) | dims_stated(program)
        program.declarations[:] = [d for d in program.declarations if isinstance(d, Model) or d.name in wanted or
                                   (isinstance(d, Dim) and d.name == program.batch_dim)]
    return program


def size_of(program):
    return (len(program.declarations), sum(len(list(statements_of(d.body))) for d in bodies(program)),
            sum(len(b.arguments) for b in program.blocks.values()), sum(len(names_in(e)) for e in expressions(program)))
