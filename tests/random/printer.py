"""Writes a program as .mdl text.  A table that it names as its schedule is in its first lines, one for each stage:

    # file own.csv: F0.0,F0.1,B0.0,B0.1
    # file own.csv: F1.0,B1.0,F1.1,B1.1
"""
from tree import (Assign, Binary, Block, Call, Const, Dim, Flag, Index, Input, Loss, Mean, Mesh, Model, Name, Named, Negation, Number,
                  Optimizer, Param, Pipeline, Range, Recompute, Repeat, Return, Scan, Several, Shard, Slot, Table, Text,
                  Output, Update, Updated, Yield, Zero)


def expression_text(e):
    if isinstance(e, Number):
        return e.text
    if isinstance(e, Flag):
        return "true" if e.value else "false"
    if isinstance(e, Name):
        return e.name
    if isinstance(e, Table):
        return f'"{e.name}"'
    if isinstance(e, Text):
        return f'"{e.text}"'
    if isinstance(e, Negation):
        return f"-{operand_text(e.operand)}"
    if isinstance(e, Binary):
        return f"{operand_text(e.left)} {e.sign} {operand_text(e.right)}"
    if isinstance(e, Range):
        return f"{expression_text(e.first)} : {expression_text(e.end)} -> {e.part}"
    if isinstance(e, Index):
        return f"{operand_text(e.operand)}[{e.dim} = {expression_text(e.at)}]"
    if isinstance(e, Several):
        return ", ".join(map(expression_text, e.values))
    return call_text(e)


def operand_text(e):
    """In parentheses where it is not one word: precedence is left to the parser's own tests."""
    text = expression_text(e)
    return f"({text})" if isinstance(e, (Negation, Binary)) or (isinstance(e, Call) and (e.instance or e.frozen)) else text


def call_text(call):
    words = [expression_text(a) for a in call.arguments]
    if call.renaming:
        words[slice(3, 4) if call.function == "attend" else slice(len(words), None)] = [" -> ".join(call.renaming)]
    tensors = 2 if call.function == "conv" else 1
    words[tensors:tensors] = [parts_text(call.function, one, several) for one, several in call.parts]
    words += [f"{name} = {expression_text(value)}" for name, value in call.keywords.items()]
    instance = f" as {call.instance}" if call.instance and not call.is_use else ""
    function = call.instance if call.is_use else call.function
    return f"{'frozen ' if call.frozen else ''}{function}{bracketed(call.dims)}({', '.join(words)}){instance}"


def bracketed(dims):
    return f"[{', '.join(dims)}]" if dims else ""


def parts_text(function, one, several):
    tuple_text = f"({', '.join(several)})"
    return f"{tuple_text} -> {one}" if function == "merge" else f"{one} -> {tuple_text}"


def type_text(t):
    dims = (["..."] if t.is_open else []) + list(t.dims)
    return f"{t.dtype or ''}[{', '.join(dims)}]"


def braces(head, body, indent):
    inner = "".join(statement_text(s, indent + "    ") for s in body)
    return f"{indent}{head} {{\n{inner}{indent}}}\n"


def statement_text(s, indent=""):
    if isinstance(s, Block):
        arguments = ", ".join(f"{a.name}: {type_text(a.type) if a.type else 'const'}" for a in s.arguments)
        return braces(f"block {s.name}{bracketed(s.dims)}({arguments})", s.body, indent)
    if isinstance(s, Model):
        return braces(f"model {s.name}", s.body, indent)
    if isinstance(s, Repeat):
        return braces(f"repeat {expression_text(s.count)}{f' as {s.number}' if s.number else ''}", s.body, indent)
    if isinstance(s, Scan):
        return braces(f"scan {s.dim}{' (reverse = true)' if s.reverse else ''}", s.body, indent)
    if isinstance(s, Optimizer):
        arguments = ", ".join(f"{name} = {expression_text(value)}" for name, value in s.defaults.items())
        return braces(f"optimizer {s.name}({arguments})", s.body, indent)
    return f"{indent}{line_text(s)}\n"


def line_text(s):
    if isinstance(s, Const):
        return f"const {s.name} = {expression_text(s.value)}"
    if isinstance(s, Dim):
        size = f" = {expression_text(s.size)}" if s.size is not None else ""
        padded = f" padded {expression_text(s.padded)}" if s.padded is not None else ""
        return f"dim {s.name}{size}{padded}"
    if isinstance(s, Param):
        exempt = (" no_decay" if s.no_decay else "") + (" frozen" if s.frozen else "")
        word = "state" if s.state else "param"
        return f"{word} {', '.join(s.names)} : {type_text(s.type)} = {expression_text(s.init)}{exempt}"
    if isinstance(s, Input):
        source = f" = {expression_text(s.source)}" if s.source is not None else ""
        return f"input {s.name} : {type_text(s.type)}{source}"
    if isinstance(s, Assign):
        stated = f" : {type_text(s.type)}" if s.type else ""
        return f"{', '.join(s.names)}{stated} = {expression_text(s.value)}"
    if isinstance(s, Named):
        return f"{s.name} = {s.block}"
    if isinstance(s, Mean):
        return f"state {s.name} = mean of {s.of} ({expression_text(s.share)})"
    if isinstance(s, Slot):
        stated = f" : {type_text(s.type)}" if s.type else ""
        return f"state {', '.join(s.names)}{stated} = zeros"
    if isinstance(s, Updated):
        return f"update {expression_text(s.value)}"
    if isinstance(s, Update):
        return f"update {s.name} = {expression_text(s.value)}"
    if isinstance(s, Yield):
        return f"yield {s.name} = {expression_text(s.value)}"
    if isinstance(s, Return):
        return f"return {expression_text(s.value)}"
    if isinstance(s, Output):
        stated = f" : {type_text(s.type)}" if s.type else ""
        return f"output {s.name}{stated}" + (f" = {expression_text(s.value)}" if s.value != Name(s.name) else "")
    assert isinstance(s, Loss), s
    return f"loss {expression_text(s.value)}"


def option_text(name, value):
    if isinstance(value, list):
        return f"{name} = [{', '.join(map(expression_text, value))}]"
    return name if value is None else f"{name} = {expression_text(value)}"


def bracketed_options(line):
    return f" ({', '.join(option_text(name, value) for name, value in line.options.items())})" if line.options else ""


def layout_text(line):
    if isinstance(line, Mesh):
        return "mesh " + ", ".join(f"{axis} = {expression_text(size)}" for axis, size in line.axes.items())
    if isinstance(line, Shard):
        dims = ", ".join(d if isinstance(d, str) else f"({d[0]}, {d[1]})" for d in line.dims)
        otherwise = f" else {line.otherwise}" if line.otherwise else ""
        return f"shard {dims} over {line.axis}{otherwise}{bracketed_options(line)}"
    if isinstance(line, Recompute):
        return f"recompute {expression_text(line.policy)}"
    if isinstance(line, Pipeline):
        options = ", ".join(option_text(name, value) for name, value in line.options.items())
        return f"pipeline {', '.join(line.names)} over {line.axis}" + (f", {options}" if options else "")
    assert isinstance(line, Zero), line
    over = f" over {', '.join(line.axes)}" if line.axes else ""
    return f"zero {line.stage}{over}{bracketed_options(line)}"


def tables_of(lines):
    """Those of the lines of a layout."""
    return [line.options["schedule"] for line in lines
            if isinstance(line, Pipeline) and isinstance(line.options.get("schedule"), Table)]


def table_lines(lines):
    return [f"file {table.name}: {','.join(cells)}" for table in tables_of(lines) for cells in table.cells]


def setting_text(name, value):
    return f"{name}{'' if name.startswith('group ') else ' ='} {expression_text(value)}"


def program_text(program):
    """With the tables that it names, in comments."""
    text = "".join(f"# {line}\n" for line in table_lines(program.parallel))
    text += "".join(statement_text(s) for s in program.declarations)
    if program.train:
        settings = "".join(f"    {setting_text(name, value)}\n" for name, value in program.train.items())
        text += f"train {{\n{settings}}}\n"
    if program.parallel:
        lines = "".join(f"    {layout_text(line)}\n" for line in program.parallel)
        text += f"parallel {{\n{lines}}}\n"
    return text
