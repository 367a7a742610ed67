"""Fails if the two columns of docs/from-pytorch.md compute different numbers: each row whose left column is an expression
of PyTorch, against what the evaluator of tests/random, which shares nothing with mpc, makes of the right column.

Several expressions of a left column are added up, as those of the right column are.  Left out are rows that draw random
numbers or weights, statements, and functions that the installed PyTorch lacks or that want dims in another order.
"""
import pathlib
import re
import sys

import torch
import torch.nn.functional
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/docs"), str(ROOT / "tests/random")]
import columns  # noqa: E402
from blocks import expanded  # noqa: E402
from constants import known_numbers  # noqa: E402
from evaluate import Evaluation, Place  # noqa: E402
from parser import parse  # noqa: E402
from tree import Input, Loss  # noqa: E402

B, SEED, LEAST = 3, 7, 30
LEFT_OUT = re.compile(r"rand|Dropout|Embedding|Linear|Conv1d|scaled_dot")  # numbers, weights or dims of their own
INITIAL = {"zeros": torch.zeros, "ones": torch.ones}


def drawn(type_, sizes, known):
    """Numbers for an input; tokens and labels are below the vocabulary."""
    shape = [sizes[d] for d in type_.dims]
    if type_.dtype == "i32":
        return torch.randint(known["vocab"], shape)
    return torch.rand(shape) < 0.5 if type_.dtype == "bool" else torch.randn(shape, dtype=torch.float64)


class Row(Evaluation):
    """Evaluates all of a row's model but the loss, with drawn inputs and parameters."""

    def __init__(self, program, known):
        sizes = {d: known.get(d, B) for d in program.dims}
        inputs = {s.name: drawn(s.type, sizes, known) for s in program.model.body if isinstance(s, Input)}
        super().__init__(program, known, B, inputs, self.initial, drops=False)

    @staticmethod
    def initial(name, param, sizes):
        return INITIAL.get(getattr(param.init, "name", ""), torch.randn)(sizes, dtype=torch.float64)

    def values(self):
        values = {}
        self.body([s for s in self.program.model.body if not isinstance(s, Loss)], values, Place("", (), 0))
        return values


def evaluated(text, names):
    """An expression of PyTorch; of a module, what it makes of x."""
    value = eval(text, dict(names))
    return value.double()(names["x"]) if isinstance(value, nn.Module) else value


def left_of(column, names):
    """What the left column computes, as a list of tensors, or None where it is no expression."""
    try:
        found = [evaluated(text, names) for text in re.findall(r"`([^`]+)`", column)]
    except (AttributeError, NameError, SyntaxError, TypeError):
        return None
    if len(found) == 1 and isinstance(found[0], tuple):
        return list(found[0])
    return [sum(found)] if found and all(isinstance(x, torch.Tensor) for x in found) else None


def is_same(left, right):
    return len(left) == len(right) and all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), atol=1e-9, equal_nan=True)
        for a, b in zip(left, right))


def compare(column, lines):
    """None where the row is left out, else whether its columns agree."""
    last = [line for line in lines if not line.startswith("dim ")][-1]
    names = re.match(r"([a-z]+(?:, [a-z]+)*)(?: :[^=]*)? = ", last)
    if LEFT_OUT.search(column) or not names:
        return None
    torch.manual_seed(SEED)
    program = expanded(parse(columns.program("Tensors", lines)))
    row = Row(program, known_numbers(program, ()))
    known, values = row.known, row.values()
    given = {name: value.data for name, value in values.items() if isinstance(name, str) and hasattr(value, "data")}
    given.update(torch=torch, nn=nn, F=torch.nn.functional, B=B, T=known["seq"], C=known["embed"], H=known["heads"],
                 D=known["head"], V=known["vocab"])
    left = left_of(column, given)
    right = [values[name].data for name in names[1].split(", ")]
    return None if left is None else is_same(left, right)


def main():
    rows = [row for row in columns.rows(columns.PAGE.read_text()) if row[0] in ("Tensors", "Modules") and row[2]]
    answers = {(column, lines[-1]): compare(column, lines) for _, column, lines in rows}
    for (column, line), answer in answers.items():
        if answer is False:
            print(f"from-pytorch.md: {column} is not {line}")
    compared = [answer for answer in answers.values() if answer is not None]
    print(f"from-pytorch.md: {len(compared)} of {len(answers)} rows compared with PyTorch, {compared.count(False)} differ")
    return False in compared or len(compared) < LEAST


if __name__ == "__main__":
    sys.exit(main())
