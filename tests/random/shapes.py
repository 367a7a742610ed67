"""Draws operations that give dims other sizes: parts of a dim, dims split and merged, windows of a convolution; and what
makes a dim of an index, or takes one away."""
import math

from operands import Operands
from scope import OPEN, Value, binary, call
from tree import Call, Flag, Index, Name, Negation, Number, Range


class Shapes(Operands):
    """For one scope; each method takes a floating-point Value and gives a Value, or None where it does not fit."""

    def choose_known(self, x):
        """A dim of x that may be named and is not the batch, where a dim may be declared for what is made of it."""
        known = sorted(x.dims - {OPEN, "batch"})
        return None if not known or self.forbidden() else self.draw.choice(known)

    def sized(self, name, size, expression=None):
        """A dim of that size, sometimes with padding."""
        padded = self.draw.choice([None] * 5 + [4])
        return self.state.derived(name, expression or Number(str(size)), size, padded)

    def logsumexp(self, x):
        known = self.scope.known_dims(x.dims)
        if not known:
            return None
        dims = self.scope.some(known, 1, self.draw.choice([1, 1, 2]))
        return Value(call("logsumexp", x.expression, *dims), x.dims - set(dims), "f32", x.scale + 1)

    def hot(self, x):
        """x at the place that an index names along a dim, else 0."""
        known = sorted(x.dims - {OPEN, "batch"})
        if not known:
            return None
        dim = self.draw.choice(known)
        dims = frozenset(self.scope.some(x.dims - {OPEN, dim}, 0, 2))
        index = self.index(dims, self.size(dim)) if dims else None
        place = index.expression if index else Number(str(self.draw.randrange(self.size(dim))))
        return Value(binary("*", x.expression, call("one_hot", place, dim)), x.dims, "f32", x.scale)

    def noise(self, x):
        """A random number beside each element, or those of other dims."""
        dims = [] if self.draw.random() < 0.1 else self.scope.some(x.dims - {OPEN}, 1)
        if not dims and x.dims == {OPEN}:
            return None
        self.state.uses_dropout = True
        drawn = binary(self.draw.choice("+-"), call("random", *dims), 0.5)
        return Value(binary(self.draw.choice("+*"), *self.either(x.expression, drawn)), x.dims, "f32", x.scale)

    def stretch(self, x):
        """x[d = a : b -> e]"""
        dim = self.choose_known(x)
        if dim is None:
            return None
        first = self.draw.randrange(self.size(dim))
        count = self.draw.randint(1, self.size(dim) - first)
        part = self.sized(f"{dim}_part{count}", count)
        if part in x.dims:
            return None
        at = Range(Number(str(first)), Number(str(first + count)), part)
        return Value(Index(x.expression, dim, at), x.dims - {dim} | {part}, "f32", x.scale)

    def split(self, x):
        dim = self.choose_known(x)
        if dim is None:
            return None
        inner = self.draw.choice([n for n in range(1, self.size(dim) + 1) if self.size(dim) % n == 0])
        sizes = [self.size(dim) // inner, inner]
        parts = [self.sized(f"{dim}_{word}{inner}", size) for word, size in zip(("by", "in"), sizes)]
        if x.dims & set(parts):
            return None
        made = call("split", x.expression)
        made.parts = [(dim, parts)]
        return Value(made, x.dims - {dim} | set(parts), "f32", x.scale)

    def merged(self, x):
        known = sorted(x.dims - {OPEN, "batch"})
        if len(known) < 2 or self.forbidden():
            return None
        parts = self.draw.sample(known, self.draw.choice([2, 2, 2, min(3, len(known))]))
        whole = self.sized("_x_".join(parts), math.prod(self.size(d) for d in parts))
        if whole in x.dims:
            return None
        made = call("merge", x.expression)
        made.parts = [(whole, parts)]
        return Value(made, x.dims - set(parts) | {whole}, "f32", x.scale)

    def moved(self, x):
        """What stands some places before or after."""
        dim = self.choose_known(x)
        if dim is None:
            return None
        by = self.draw.choice([n for n in (1, 1, 2, -1) if abs(n) < self.size(dim)] or [0])
        number = Number(str(by)) if by >= 0 else Negation(Number(str(-by)))
        return Value(call("shift", x.expression, dim, number), x.dims, "f32", x.scale)

    def repeated(self, x):
        """The same along dims that x lacks, beside something that has them."""
        more = self.scope.some([d for d in self.state.sizes if d not in x.dims | self.forbidden()], 1, 2)
        if not more or not self.state.fits(x.dims | set(more)):
            return None
        spread = Value(call("broadcast", x.expression, *more), x.dims | set(more), "f32", x.scale)
        if self.draw.random() < 0.3:
            return spread
        y = self.within(spread.dims)
        return Value(binary("-", spread.expression, y.expression), spread.dims, "f32", math.hypot(x.scale, y.scale))

    def convolved(self, x):
        """Along one dim or two, with or without channels, or by each channel on its own."""
        known = sorted(x.dims - {OPEN, "batch"})
        if not known or self.forbidden():
            return None
        dims = self.draw.sample(known, min(len(known), self.draw.choice([1, 1, 2])))
        steps = {"stride": self.draw.choice([1, 1, 2, 3]), "padding": self.draw.choice([0, 0, 1, 2]),
                 "dilation": self.draw.choice([1, 1, 1, 2])}
        causal = not steps["padding"] and self.draw.random() < 0.5
        parts, made = [], set()
        for dim in dims:
            size = self.draw.choice([steps["stride"], 1, 2, 3])
            tap = self.sized(f"tap{size}" if dim == dims[0] else f"tip{size}", size)
            reach = steps["dilation"] * (size - 1)
            rest = self.size(dim) + (reach if causal else 2 * steps["padding"]) - reach - 1
            if rest < 0:
                return None
            count = rest // steps["stride"] + 1
            to = dim if count == self.size(dim) and self.draw.random() < 0.7 else self.sized(f"{dim}_at{count}", count)
            if {to, tap} & (x.dims - {dim} | made) or tap == dim:
                return None
            made |= {to, tap}
            parts.append((dim, [to, tap]))
        others = x.dims - {OPEN, "batch"} - set(dims)
        over = self.scope.some(others, 0, 1)
        kept = self.scope.some(others - set(over), 0, 1)
        new = self.new_dims(x.dims | made, 1) if self.draw.random() < 0.6 else []
        taps = [tap for _, (_, tap) in parts]
        elements = math.prod(self.size(d) for d in [*taps, *over])
        weight = self.scope.param([*taps, *over, *kept, *new], 1 / math.sqrt(elements))
        result = Call("conv", [x.expression, weight.expression, *map(Name, over)],
                      {name: Number(str(n)) for name, n in steps.items() if n != (name != "padding") or self.draw.random() < 0.1})
        result.parts = parts
        if causal:
            result.keywords = {name: n for name, n in result.keywords.items() if name != "padding"} | {"causal": Flag(True)}
        dims = x.dims - set(dims) - set(over) | {to for _, (to, _) in parts} | set(new)
        return Value(result, dims, "f32", x.scale) if self.state.fits(dims | set(taps) | set(over)) else None  # of windows
