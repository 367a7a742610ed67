"""Draws operands of a wanted type: floating-point values with some or exactly the wanted dims, indices, conditions."""
import math

from scope import OPEN, Value, binary, call, number
from tree import Flag, Index, Name, Number



def clamped(expression, size):
    """From 0 to size - 1."""
    return call("minimum", call("maximum", expression, 0), size - 1)

class Operands:
    """For one scope; each method gives a Value, or None where nothing fits."""

    def __init__(self, scope):
        self.scope, self.state, self.draw = scope, scope.state, scope.draw

    def size(self, dim):
        return self.state.sizes[dim]

    # --- Floating-point ----------------------------------------------------------------------------------------------

    def within(self, dims):
        """With some of the dims."""
        kinds = [self.local_within, self.param_within, self.reduced_within, self.weight_within, self.literal]
        for kind in self.draw.choices(kinds, [4, 4, 2, 1, 1], k=6):
            value = self.scope.attempt(kind, dims)
            if value:
                return value
        return self.literal(dims)

    def literal(self, dims):
        value = self.draw.choice([0.5, -0.5, 1.5, 0.25, 2.0])
        return Value(number(value), frozenset(), "f32", abs(value))

    def local_within(self, dims):
        local = self.scope.pick([x for x in self.scope.all() if x.dims <= dims])
        return local and self.scope.read(local)

    def param_within(self, dims):
        return self.scope.param(self.scope.some(dims - {OPEN, "batch"}, 0, 3), 0.6)

    def reduced_within(self, dims):
        local = self.scope.pick([x for x in self.scope.all() if self.removable(x.dims - dims)])
        return local and self.without(self.scope.read(local), local.dims - dims)

    def removable(self, dims):
        return set(dims) <= set(self.scope.known_dims(dims))

    def weight_within(self, dims):
        """A number that depends on positions, or on tokens."""
        index = self.index(frozenset(self.scope.some(dims - {OPEN}, 1, 2)), 3) if dims - {OPEN} else None
        if index is None:
            return None
        return Value(binary("*", call("cast", index.expression, "f32"), 0.25), index.dims, "f32", 0.4)

    def without(self, x, dims):
        """x with these dims summed up, or taken away otherwise."""
        for dim in self.scope.some(dims, len(dims)):
            x = self.without_one(x, dim)
        return x

    def without_one(self, x, dim):
        way = self.draw.choice(["mean", "mean", "sum", "max", "min", "slice", "dot"])
        rest = x.dims - {dim}
        if way == "slice" and dim != "batch":
            return Value(Index(x.expression, dim, self.place(dim)), rest, x.kind, x.scale)
        if way == "dot" and dim != "batch" and x.kind == "f32":
            weight = self.scope.param([dim], 1 / math.sqrt(self.size(dim)))
            return Value(call("dot", x.expression, weight.expression, dim), rest, "f32", x.scale)
        is_count = way == "mean" and (dim == "batch" or self.scope.depth) and self.is_entropy(x.expression)
        way = "max" if way in ("slice", "dot") or is_count or (way == "mean" and x.kind != "f32") else way
        return Value(call(way, x.expression, dim), rest, x.kind, x.scale * (self.size(dim) if way == "sum" else 1))

    def place(self, dim):
        """One of the elements along a dim; the last is called so, or by its number."""
        at = self.draw.randrange(self.size(dim))
        is_last = at == self.size(dim) - 1
        return binary("-", dim, 1) if is_last and self.draw.random() < 0.5 else Number(str(at))

    def exactly(self, dims):
        """With all of the dims and no others."""
        if self.state.large and not self.state.fits(dims):
            return None
        ways = [self.local_exactly, self.param_exactly, self.made_from_larger, self.made_by_dot, self.gathered,
                self.made_from_smaller]
        for way in self.draw.sample(ways, len(ways)):
            value = self.scope.attempt(way, dims)
            if value:
                return value
        return None

    def local_exactly(self, dims):
        local = self.scope.pick([x for x in self.scope.all() if x.dims == dims])
        return local and self.scope.read(local)

    def param_exactly(self, dims):
        return None if dims & {OPEN, "batch"} or len(dims) > 4 else self.scope.param(dims, 0.7)

    def made_from_larger(self, dims):
        local = self.scope.pick([x for x in self.scope.all() if x.dims > dims and self.removable(x.dims - dims)])
        return local and self.without(self.scope.read(local), local.dims - dims)

    def made_from_smaller(self, dims):
        """Spread by a larger one."""
        small = self.scope.pick([x for x in self.scope.all() if x.dims < dims])
        if not small or dims & {OPEN, "batch"} or len(dims) > 4:
            return None
        spread = self.scope.param(dims, 0.7)
        return Value(binary(self.draw.choice("+*-"), spread.expression, self.scope.read(small).expression), dims, "f32", 1.0)

    def made_by_dot(self, dims):
        """What another value has besides is summed with a parameter that brings what it lacks."""
        def fits(x):
            more = x.dims - dims
            return more and not more & {OPEN, "batch"} and not (dims - x.dims) & {OPEN, "batch"}
        local = self.scope.pick([x for x in self.scope.all() if fits(x)])
        if not local:
            return None
        over = local.dims - dims
        kept = self.scope.some((local.dims & dims) - {"batch", OPEN}, 0, 1)
        return self.product(self.scope.read(local), over, frozenset(dims - local.dims) | set(kept))

    def product(self, x, over, more):
        """dot of x with a parameter over `over`, which has `more` besides."""
        if len(over) + len(more) > 4 or not self.state.fits(x.dims | more):
            return None
        weight = self.scope.param(set(over) | set(more), 1 / math.sqrt(self.state.elements(over)))
        pair = [x.expression, weight.expression]
        if self.draw.random() < 0.3:
            pair.reverse()
        return Value(call("dot", *pair, *self.scope.some(over, len(over))), (x.dims - set(over)) | set(more), "f32", x.scale)

    def gathered(self, dims):
        """A parameter, indexed by what brings the batch and some other dims."""
        if OPEN in dims:
            return None
        some = self.scope.some(dims - {"batch"}, 0, 1)
        index_dims = frozenset(some) | (dims & {"batch"})
        rest = dims - index_dims
        if len(index_dims) > 1 and self.draw.random() < 0.3:
            rest |= set(some)  # a table for each of them
        tables = [d for d in self.state.sizes if d not in rest and d != "batch"]
        if not tables or len(rest) > 3:
            return None
        table = self.draw.choice(tables)
        index = self.index(index_dims, self.size(table))
        if index is None:
            return None
        weight = self.scope.param(rest | {table}, 0.8)
        return Value(Index(weight.expression, table, index.expression), dims, "f32", weight.scale)

    # --- Whole numbers and conditions --------------------------------------------------------------------------------

    def whole_terms(self, dims):
        """i32 values of exactly these dims, none below 0, as an expression; with the largest that they may be."""
        terms, covered = [], frozenset()
        fed = [x for x in self.scope.all("i32") if x.dims <= dims or self.removable(x.dims - dims)]
        if fed and ("batch" in dims or self.draw.random() < 0.4):
            local = self.scope.pick([x for x in fed if "batch" in x.dims] if "batch" in dims else fed)
            if not local:
                return None
            value, most = self.elsewhere(self.scope.read(local)), 16
            for dim in sorted(local.dims - dims):
                way = self.draw.choice(["max", "min", "sum"])
                value = Value(call(way, value.expression, dim), value.dims - {dim}, "i32")
                most *= self.size(dim) if way == "sum" else 1
            terms.append((value.expression, most))
            covered = value.dims
        for dim in self.scope.some(dims - covered, len(dims - covered)):
            if dim in ("batch", OPEN):
                return None
            factor = self.draw.choice([1, 1, 1, 2, 3])
            iota = call("iota", dim)
            terms.append((iota if factor == 1 else binary("*", iota, factor), factor * (self.size(dim) - 1)))
        if not terms:
            return None
        total, largest = terms[0]
        for term, most in terms[1:]:
            total, largest = binary("+", total, term), largest + most
        return total, largest

    def index(self, dims, size):
        """i32 from 0 to size - 1, or the largest so far of such."""
        value = self.plain_index(dims, size)
        known = sorted(dims - {OPEN, "batch"})
        if value is None or not known or self.draw.random() < 0.85:
            return value
        exclusive = {"exclusive": Flag(True)} if self.draw.random() < 0.5 else {}
        largest = call("cummax", value.expression, self.draw.choice(known), **exclusive)
        return Value(call("maximum", largest, 0) if exclusive else largest, dims, "i32")

    def plain_index(self, dims, size):
        if not dims:
            return Value(Number(str(self.draw.randrange(size))), dims, "i32")
        made = self.whole_terms(dims)
        if made is None:
            return None
        expression, largest = made
        if largest < size and self.draw.random() < 0.7:
            return Value(expression, dims, "i32")
        ways = ["remainder", "remainder", "minimum", "shifted", "hashed", "beyond"]
        way = self.draw.choice(ways)
        if way == "hashed":  # leaves 32 bits
            expression = binary("*", binary("+", expression, 40503), 1_000_003)
        if way in ("remainder", "hashed"):
            quotient = binary("*", binary("/", expression, size), size)
            expression = binary("%", expression, size) if self.draw.random() < 0.5 else binary("-", expression, quotient)
            expression = call("maximum", expression, 0) if way == "hashed" else expression
        elif way == "minimum":
            expression = call("minimum", expression, size - 1)
        elif way == "beyond":  # floats that no i32 is
            far = binary("-", binary("*", call("cast", expression, "f32"), Number("1e9")), Number("2e9"))
            expression = clamped(binary("/", call("cast", far, "i32"), 900_000_000), size)
        else:
            expression = clamped(binary("-", expression, self.draw.randint(0, 3)), size)
        return Value(expression, dims, "i32")

    def elsewhere(self, value):
        """The same, or elements of it from other places along a dim."""
        known = sorted(value.dims - {OPEN, "batch"})
        if not known or self.draw.random() < 0.85:
            return value
        dim = self.draw.choice(known)
        at = clamped(binary("+", call("iota", dim), self.draw.randint(-2, 2)), self.size(dim))
        return Value(Index(value.expression, dim, at), value.dims, value.kind, value.scale)

    def condition(self, dims):
        """A bool with some of the dims."""
        ways = [self.whole_condition, self.pair_condition, self.float_condition, self.bool_local]
        for way in self.draw.sample(ways, len(ways)):
            value = self.scope.attempt(way, dims)
            if value:
                value = self.elsewhere(value)
                if self.draw.random() < 0.15:
                    other = self.whole_condition(value.dims)
                    if other:
                        sign = self.draw.choice(["*", "=="])
                        return Value(binary(sign, value.expression, other.expression), value.dims, "bool")
                return value
        return None

    def comparison(self):
        return self.draw.choice(["<", "<=", ">", ">=", "==", "!="])

    def whole_condition(self, dims):
        chosen = frozenset(self.scope.some(dims - {OPEN}, 0, 2))
        made = self.whole_terms(chosen) if chosen else None
        if made is None:
            return None
        if self.draw.random() < 0.15:
            return Value(call("cast", binary("%", made[0], self.draw.choice([2, 3])), Name("bool")), chosen, "bool")
        compared = call("sign", binary("-", made[0], 2)) if self.draw.random() < 0.1 else made[0]
        return Value(binary(self.comparison(), compared, self.draw.randint(0, 4) if compared is made[0] else 0), chosen, "bool")

    def pair_condition(self, dims):
        known = sorted(dims - {OPEN, "batch"})
        if not known:
            return None
        a, b = self.draw.choice(known), self.draw.choice(known)
        return Value(binary(self.comparison(), call("iota", a), call("iota", b)), frozenset({a, b}), "bool")

    def float_condition(self, dims):
        local = self.scope.pick([x for x in self.scope.all() if x.dims <= dims])
        if local is None:
            return None
        compared = binary(self.draw.choice(["<", ">"]), self.scope.read(local).expression, 0.137)
        return Value(compared, local.dims, "bool")

    def bool_local(self, dims):
        local = self.scope.pick([x for x in self.scope.all("bool") if x.dims <= dims])
        return local and self.scope.read(local)

    def mask(self, dims):
        """A condition as a number, or with one of two numbers."""
        condition = self.condition(dims)
        if condition is None:
            return None
        if self.draw.random() < 0.5:
            return Value(call("cast", condition.expression, "f32"), condition.dims, "f32", 1.0)
        return Value(call("where", condition.expression, 1.0, 0.0), condition.dims, "f32", 1.0)
