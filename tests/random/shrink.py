#!/usr/bin/python3
"""Makes a failing program smaller as long as it fails in the same way: what can be left out is, expressions become one of
their operands, dims become shorter, and what stands in a block or a repeat comes out of it.  An edit that makes no right
program is found out by PyTorch or by mpc check, and dropped.

    shrink.py FILE.mdl [--variant NAME] [--seconds S] [--mpc PATH]      writes the smallest program to standard output"""
import argparse
import copy
import os
import sys
import tempfile
import time
from pathlib import Path

import tables
from blocks import expanded, is_general
from judge import Judge, ranks_of, read_case
from printer import layout_text, table_lines, tables_of
from prune import bodies, pruned
from tree import (Assign, Binary, Call, Loss, Mesh, Name, Number, Output, Param, Pipeline, Repeat, Return, Scan, Several, Shard, Yield, Zero,
                  children, statements_of, walk)

SIMPLE_OPTIMIZER = Call("sgd", [], {"lr": Number("0.1")})


# --- Places of expressions -------------------------------------------------------------------------------------------

def slots(program):
    """(get, set) of every place in the program that holds an expression."""
    for declaration in bodies(program):
        for statement in statements_of(declaration.body):
            if isinstance(statement, (Assign, Yield, Return, Loss)):
                yield from slots_at(statement, "value")


def slots_at(owner, field):
    expression = getattr(owner, field)
    yield (lambda: getattr(owner, field)), (lambda value: setattr(owner, field, value))
    for name in ("operand", "left", "right", "at"):
        if not isinstance(expression, Call) and hasattr(expression, name):
            yield from slots_at(expression, name)
    if isinstance(expression, Call):
        for i in range(len(expression.arguments)):
            yield from slots_in(expression.arguments, i)
    if isinstance(expression, Several):
        for i in range(len(expression.values)):
            yield from slots_in(expression.values, i)


def slots_in(items, i):
    yield (lambda: items[i]), (lambda value: items.__setitem__(i, value))
    for name in ("operand", "left", "right", "at"):
        if not isinstance(items[i], Call) and hasattr(items[i], name):
            yield from slots_at(items[i], name)
    if isinstance(items[i], Call):
        for j in range(len(items[i].arguments)):
            yield from slots_in(items[i].arguments, j)


# --- Edits: each yields functions that change a copy of the program --------------------------------------------------

def operands_instead(program):
    """An expression becomes one of its operands."""
    for i, (get, _) in enumerate(slots(program)):
        for j in range(len(children(get()))):
            def edit(p, i=i, j=j):
                get, put = list(slots(p))[i]
                put(children(get())[j])
            yield edit


def fewer_words(program):
    """Calls without one of their arguments or options."""
    for i, (get, _) in enumerate(slots(program)):
        e = get()
        if isinstance(e, Call):
            for name in e.keywords:
                yield lambda p, i=i, name=name: list(slots(p))[i][0]().keywords.pop(name)
            for j in range(1, len(e.arguments)):
                yield lambda p, i=i, j=j: list(slots(p))[i][0]().arguments.pop(j)


def bodies_with(program, kind):
    """(path to the body, index) of statements of a kind; a path leads through declarations and repeats."""
    def inside(body, path):
        for i, statement in enumerate(body):
            if isinstance(statement, kind):
                yield path, i
            if isinstance(statement, (Repeat, Scan)):
                yield from inside(statement.body, path + (i,))
    for number, declaration in enumerate(program.declarations):
        yield from inside(getattr(declaration, "body", []), (number,))


def body_at(program, path):
    body = program.declarations[path[0]].body
    for i in path[1:]:
        body = body[i].body
    return body


def without_statements(program):
    for path, i in reversed(list(bodies_with(program, (Assign, Repeat, Scan, Yield, Output)))):
        yield lambda p, path=path, i=i: body_at(p, path).pop(i)


def simpler_statements(program):
    """Types that are not stated, parameters like others, repeats of fewer turns or of none."""
    for path, i in bodies_with(program, Assign):
        if body_at(program, path)[i].type:
            yield lambda p, path=path, i=i: setattr(body_at(p, path)[i], "type", None)
    for path, i in bodies_with(program, Param):
        if body_at(program, path)[i].no_decay:
            yield lambda p, path=path, i=i: setattr(body_at(p, path)[i], "no_decay", False)
        if body_at(program, path)[i].frozen:
            yield lambda p, path=path, i=i: setattr(body_at(p, path)[i], "frozen", False)
        if body_at(program, path)[i].init != Call("normal", [Number("1.0")]):
            yield lambda p, path=path, i=i: setattr(body_at(p, path)[i], "init", Call("normal", [Number("1.0")]))
    for path, i in bodies_with(program, Repeat):
        def unrolled(p, path=path, i=i):
            body = body_at(p, path)
            number = body[i].number
            body[i:i + 1] = body[i].body
            if number:
                replace_reads(body[i:], number, Number("0"))
        yield unrolled
        if body_at(program, path)[i].count not in (Number("1"), Number("2")):
            yield lambda p, path=path, i=i: setattr(body_at(p, path)[i], "count", Number("2"))


def values_in_place(program):
    """A value that is read once stands where it is read."""
    for path, i in bodies_with(program, Assign):
        def edit(p, path=path, i=i):
            body = body_at(p, path)
            statement = body.pop(i)
            replace_reads(body[i:], statement.name, statement.value)
        yield edit


def replace_reads(body, name, value):
    """Until the name is assigned again."""
    holder = type("Holder", (), {})()
    for statement in body:
        if isinstance(statement, (Repeat, Scan)):
            replace_reads(statement.body, name, value)
        elif hasattr(statement, "value"):
            holder.value = statement.value
            for get, put in list(slots_at(holder, "value")):
                if get() == Name(name):
                    put(copy.deepcopy(value))
            statement.value = holder.value
        if isinstance(statement, Assign) and name in statement.names:
            break


def calls_in_place(program):
    """The statements of a block stand where it is called, with names of their own."""
    for path, i in bodies_with(program, Assign):
        value = body_at(program, path)[i].value
        if isinstance(value, Call) and value.function in program.blocks and not body_at(program, path)[i].more and \
                not is_general(program.blocks[value.function]):
            yield lambda p, path=path, i=i: inline(p, path, i)


def plain_blocks(program):
    """A block for each of the dims and numbers of its calls."""
    if any(is_general(block) for block in program.blocks.values()):
        yield lambda p: setattr(p, "declarations", expanded(p).declarations)


def inline(program, path, i):
    body = body_at(program, path)
    target, call = body[i], body[i].value
    block = copy.deepcopy(program.blocks[call.function])
    prefix = f"{call.instance or block.name}_"
    own = {name for s in statements_of(block.body) if isinstance(s, Assign) for name in s.names} | {a.name for a in block.arguments}
    own |= {name for s in block.body if isinstance(s, Param) for name in s.names}
    rename_all(block.body, {name: prefix + name for name in own})
    params = [s for s in block.body if isinstance(s, Param)]
    rest = [s for s in block.body if not isinstance(s, (Param, Return))]
    result = next(s.value for s in block.body if isinstance(s, Return))
    given = [Assign(prefix + a.name, value) for a, value in zip(block.arguments, call.arguments)]
    body[i:i + 1] = given + rest + [Assign(target.name, result, target.type)]
    outside = program.declarations[path[0]].body
    at = next(n for n, s in enumerate(outside) if isinstance(s, (Assign, Repeat, Scan, Return, Loss)))
    outside[at:at] = params


def rename_all(body, names):
    for statement in statements_of(body):
        if isinstance(statement, Param):
            statement.names = [names[name] for name in statement.names]
        if isinstance(statement, (Assign, Yield)):
            statement.name = names.get(statement.name, statement.name)
            statement.more = [names.get(name, name) for name in statement.more]
        for e in walk(statement.value) if hasattr(statement, "value") else ():
            if isinstance(e, Name):
                e.name = names.get(e.name, e.name)


def smaller_dims(program):
    for name, dim in program.dims.items():
        if dim.padded is not None:
            yield lambda p, name=name: setattr(p.dims[name], "padded", None)
        if isinstance(dim.size, Number):
            for size in sorted({1, 2, dim.size.value // 2, dim.size.value - 1}):
                if 0 < size < dim.size.value:
                    yield lambda p, name=name, size=size: setattr(p.dims[name], "size", Number(str(size)))
        elif dim.size is not None and not isinstance(dim.size, (Name, Binary)):
            yield lambda p, name=name: setattr(p.dims[name], "size", Number("2"))


def fewer_dims(program):
    """A dim is nowhere any more."""
    for name in program.dims:
        yield lambda p, name=name: drop_dim(p, name)


def drop_dim(program, name):
    for declaration in bodies(program):
        for argument in getattr(declaration, "arguments", []):
            if argument.type:
                argument.type.dims = [d for d in argument.type.dims if d != name]
        for statement in statements_of(declaration.body):
            if getattr(statement, "type", None):
                statement.type.dims = [d for d in statement.type.dims if d != name]
            for e in walk(statement.value) if hasattr(statement, "value") else ():
                if isinstance(e, Call) and len(e.arguments) > 1:
                    e.arguments[1:] = [a for a in e.arguments[1:] if a != Name(name)]
    for line in program.parallel:
        if isinstance(line, Shard):
            line.dims = [d for d in line.dims if d != name]


def simpler_training(program):
    for name in list(program.train):
        if name not in ("batch", "microbatch", "precision", "optimizer"):
            yield lambda p, name=name: p.train.pop(name)
    if program.train.get("optimizer") != SIMPLE_OPTIMIZER:
        yield lambda p: p.train.update(optimizer=copy.deepcopy(SIMPLE_OPTIMIZER))
    for batch, microbatch in ((1, 1), (2, 2), (2, 1), (4, 4), (4, 2)):
        if "batch" in program.train and batch < program.train["batch"].value:
            yield lambda p, batch=batch, microbatch=microbatch: p.train.update(
                batch=Number(str(batch)), microbatch=Number(str(microbatch)))


def simpler_layout(program):
    for i, line in enumerate(program.parallel):
        if not isinstance(line, Mesh):
            yield lambda p, i=i: p.parallel.pop(i)
        if isinstance(line, Shard):
            if line.otherwise:
                yield lambda p, i=i: setattr(p.parallel[i], "otherwise", None)
            for j in range(len(line.dims)) if len(line.dims) > 1 else ():
                yield lambda p, i=i, j=j: p.parallel[i].dims.pop(j)
            for j, pair in enumerate(line.dims):
                if isinstance(pair, tuple):
                    yield lambda p, i=i, j=j, d=pair[0]: p.parallel[i].dims.__setitem__(j, d)
        for name in getattr(line, "options", {}):
            yield lambda p, i=i, name=name: p.parallel[i].options.pop(name)
        if isinstance(line, Zero) and line.stage:
            yield lambda p, i=i: setattr(p.parallel[i], "stage", p.parallel[i].stage - 1)
        if isinstance(line, Mesh):
            for axis in line.axes:
                yield lambda p, axis=axis: drop_axis(p, axis)
                if line.axes[axis].value > 2:
                    yield lambda p, i=i, axis=axis: p.parallel[i].axes.update({axis: Number("2")})


def simpler_tables(program):
    """One micro-batch fewer, or one stage, or B not divided."""
    for i, table in enumerate(tables_of(program.parallel)):
        ranks, micros = len(table.cells), tables.micro_batches(program)
        if micros > 1:
            yield lambda p, i=i: fewer_micros(p, i)
        if ranks > 2 and not any("chunks" in getattr(line, "options", {}) for line in program.parallel):
            yield lambda p, i=i: fewer_stages(p, i)
        if any(cell.startswith("W") for line in table.cells for cell in line):
            yield lambda p, i=i: tables.drop_weights(tables_of(p.parallel)[i])


def fewer_micros(program, i):
    micros = tables.micro_batches(program)
    tables.without(tables_of(program.parallel)[i], micro=micros - 1)
    program.train["batch"] = Number(str(program.train["batch"].value // micros * (micros - 1)))


def fewer_stages(program, i):
    table = tables_of(program.parallel)[i]
    pipeline = next(line for line in program.parallel if isinstance(line, Pipeline))
    last = len(table.cells) - 1
    tables.without(table, stage=last)
    pipeline.options.pop("stages", None)
    for line in program.parallel:
        if isinstance(line, Mesh):
            line.axes[pipeline.axis] = Number(str(last))


def drop_axis(program, axis):
    for line in program.parallel:
        if isinstance(line, (Mesh, Zero)):
            line.axes = {a: n for a, n in line.axes.items() if a != axis} if isinstance(line, Mesh) else \
                [a for a in line.axes if a != axis]
    program.parallel[:] = [line for line in program.parallel if getattr(line, "axis", None) != axis and
                           not (isinstance(line, Zero) and not line.axes)]
    if not next(line.axes for line in program.parallel if isinstance(line, Mesh)):
        program.parallel.clear()


EDITS = [simpler_layout, simpler_tables, simpler_training, without_statements, operands_instead, simpler_statements, plain_blocks, calls_in_place,
         fewer_dims, smaller_dims, fewer_words, values_in_place]


class Shrinking:
    def __init__(self, judge, case, found, seconds):
        self.judge, self.case, self.found = judge, case, found
        self.deadline = time.time() + seconds

    def attempt(self, edit):
        """True if the program still fails so after the edit."""
        program = copy.deepcopy(self.case.program)
        try:
            edit(program)
            pruned(program)
            if program == self.case.program:
                return False
            case = copy.copy(self.case)
            case.program = program
            found = self.judge.judge(case)
        except Exception:  # an edit that makes no sense here
            return False
        if found.signature == self.found.signature:
            self.case, self.found = case, found
            return True
        return False

    def round(self):
        """Tries all edits once, those of a kind again after each that went well; True if one did."""
        progress = False
        for kind in EDITS:
            at = 0
            while time.time() < self.deadline:
                edits = list(kind(self.case.program))
                if at >= len(edits):
                    break
                if self.attempt(edits[at]):
                    progress = True
                else:
                    at += 1
        return progress


def header(case, name, found):
    """What the first lines of a failure's file say."""
    detail = [line for line in found.detail.splitlines() if line.strip() and "the same in" not in line][:12]
    lines = [found.signature, *detail, f"seed {case.seed}, variant {name}",
             "mpc compile " + " ".join(case.how.words(ranks_of(case.program)))]
    if case.then:
        lines += ["then " + layout_text(line) for line in case.then] + table_lines(case.then)
    return "".join(f"# {line[:200]}\n" for line in lines)


def shrink(judge, case, found, seconds):
    """The smallest case that was found within so many seconds, and what came of it."""
    shrinking = Shrinking(judge, case, found, seconds)
    while shrinking.round() and time.time() < shrinking.deadline:
        pass
    return shrinking.case, shrinking.found


def main():
    import variants
    from machine import ROOT, Tools
    arguments = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    arguments.add_argument("file")
    arguments.add_argument("--variant")
    arguments.add_argument("--seconds", type=float, default=120)
    arguments.add_argument("--mpc", default=ROOT / os.environ.get("BUILD", "build") / "mpc")
    said = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(said.mpc, Path(folder) / "shared")
        case, own = read_case(said.file)
        name = said.variant or own
        variants.prepare([name], tools)
        judge, case = Judge(tools, Path(folder) / "work"), variants.apply(name, case, tools)
        found = judge.judge(case)
        if found.is_failure:
            case, found = shrink(judge, case, found, said.seconds)
        print(header(case, name, found) + case.text(), end="")
    sys.exit(found.is_failure)


if __name__ == "__main__":
    main()
