"""Draws operations: each takes a value that is there and makes another of it, of whatever type comes out."""
import math

from scope import OPEN, Value, binary, call
from shapes import Shapes
from tree import Assign, Call, Flag, Index, Name, Negation, Number, Repeat, walk

UNARY = ["abs", "square", "tanh", "sigmoid", "sin", "cos", "relu", "gelu", "gelu_tanh", "silu", "softplus", "stop_gradient", "sign"]

MOST_SCORES = 400_000  # of an attention
MOST_ROUTED, MOST_ROWS = 4000, 200_000  # choices of all tokens; elements of rows by expert, if none is dropped


class Operations(Shapes):
    """For one scope; each method takes a floating-point Value and gives a Value, or None where it does not fit."""

    def weighted(self):
        return [(self.unary, 5), (self.guarded, 4), (self.arithmetic, 7), (self.choice, 3), (self.product_with_param, 7),
                (self.product_of_two, 4), (self.reduction, 5), (self.normal, 4), (self.attention, 6), (self.rotary, 2), (self.running, 2),
                (self.logsumexp, 1), (self.hot, 1), (self.noise, 1), (self.stretch, 2), (self.split, 2), (self.merged, 2), (self.convolved, 3), (self.moved, 2), (self.repeated, 2),
                (self.drop, 1.5), (self.trained, 1), (self.take, 4), (self.window, 2), (self.cut, 3), (self.renamed, 2), (self.joined, 3), (self.solved, 1), (self.sorted, 1), (self.added, 1),
                (self.entropy, 2), (self.outer_bias, 2), (self.experts, 4), (self.contrast, 2), (self.picked, 2)]

    def draw_operation(self, x):
        """Some operation on x; None if none of several fits."""
        ways, weights = zip(*self.weighted())
        for way in self.draw.choices(ways, weights, k=8):
            value = self.scope.attempt(way, x)
            if value and self.state.fits(value.dims):
                return value
        return None

    def contrast(self, x):
        """Each record with all of the batch, at times but itself."""
        over = self.scope.some(x.dims - {"batch"}, 1, 2)
        if not self.state.mixes or "batch" not in x.dims or OPEN in x.dims or not over:
            return None
        other = Call("others", [x.expression], {}, ("batch", "other"))
        scores = call("dot", x.expression, other, *over)
        if self.draw.random() < 0.5:
            own = binary("==", call("iota", "batch"), call("iota", "other"))
            scores = call("where", own, -9.0, scores)
        size = x.scale**2 * math.sqrt(self.state.elements(over))
        return Value(call("logsumexp", scores, "other"), x.dims - set(over), "f32", size + 2)

    # --- Elementwise -------------------------------------------------------------------------------------------------

    def unary(self, x):
        name = self.draw.choice(UNARY)
        if name == "sign":  # which jumps where many values are
            return Value(call(name, binary("-", x.expression, 0.137)), x.dims, "f32", 1.0)
        scale = {"square": x.scale**2, "abs": x.scale, "relu": x.scale, "stop_gradient": x.scale}.get(name, min(x.scale, 2))
        return Value(call(name, x.expression), x.dims, "f32", scale)

    def guarded(self, x):
        """What is defined for some numbers only, of such numbers."""
        positive = binary("+", call("square", x.expression), 0.5)
        ways = {"log": call("log", positive), "sqrt": call("sqrt", positive), "rsqrt": call("rsqrt", positive),
                "exp": call("exp", binary("*", call("tanh", x.expression), 0.5)),
                "expm1": call("expm1", binary("*", call("tanh", x.expression), 0.5)), "power": binary("^", positive, -0.5),
                "cube": binary("^", x.expression, 3.0), "negation": Negation(x.expression),
                "half": binary("*", x.expression, 0.5), "more": binary("+", x.expression, 0.25),
                "root": binary("/", x.expression, self.root(x)), "whole": call("cast", x.expression, "f32")}
        name = self.draw.choice(list(ways))
        return Value(ways[name], x.dims, "f32", {"cube": x.scale**3, "log": 1.0, "sqrt": x.scale + 0.5}.get(name, x.scale))

    def root(self, x):
        known = sorted(d for d in x.dims if d not in (OPEN, "batch"))
        return call("sqrt", self.draw.choice(known)) if known else Number("2.0")

    def arithmetic(self, x):
        y = self.within(x.dims)
        sign = self.draw.choice(["+", "+", "-", "-", "*", "*", "/", "maximum", "minimum", "^"])
        left, right, scale = x.expression, y.expression, math.hypot(x.scale, y.scale)
        if sign in ("maximum", "minimum"):
            return Value(call(sign, *self.either(left, right)), x.dims, "f32", scale)
        if sign == "^":
            base = binary("+", call("sigmoid", left), 0.5)
            return Value(binary("^", base, call("tanh", right) if y.dims else right), x.dims, "f32", 1.0)
        if sign == "/":
            divisor = binary("+", call("square", right), 0.5) if y.dims else right
            return Value(binary("/", left, divisor), x.dims, "f32", 2 * x.scale)
        scale = x.scale * y.scale if sign == "*" else scale
        return Value(binary(sign, *self.either(left, right)), x.dims, "f32", scale)

    def either(self, a, b):
        return (a, b) if self.draw.random() < 0.6 else (b, a)

    def choice(self, x):
        if self.draw.random() < 0.3:
            mask = self.mask(x.dims)
            return mask and Value(binary("*", *self.either(x.expression, mask.expression)), x.dims, "f32", x.scale)
        condition = self.condition(x.dims)
        if condition is None:
            return None
        if self.draw.random() < 0.15:
            return Value(binary("*", x.expression, condition.expression), x.dims, "f32", x.scale)
        other = self.within(x.dims)
        return Value(call("where", condition.expression, *self.either(x.expression, other.expression)), x.dims, "f32",
                     max(x.scale, other.scale))

    # --- Products and reductions -------------------------------------------------------------------------------------

    def new_dims(self, lacking, most):
        return self.scope.some([d for d in self.state.sizes if d not in lacking and d != "batch"], 0, most)

    def product_with_param(self, x):
        over = self.scope.some(x.dims - {OPEN, "batch"}, 1, 2)
        if not over:
            return None
        kept = self.scope.some(x.dims - {OPEN, "batch"} - set(over), 0, 1) if self.draw.random() < 0.4 else []
        more = self.new_dims(x.dims | self.forbidden(), 2) if self.draw.random() < 0.8 else []
        if self.draw.random() < 0.1:  # in f32 for every precision, as routers are
            x = Value(call("cast", x.expression, "f32"), x.dims, "f32", x.scale)
        return self.product(x, frozenset(over), frozenset(kept) | set(more))

    def forbidden(self):
        """In an open block, dims that what it is called with may have: it brings none of its own."""
        return frozenset(self.state.sizes) if any(OPEN in local.dims for local in self.scope.all()) else frozenset()

    def product_of_two(self, x):
        def fits(y):
            same = (OPEN in x.dims) == (OPEN in y.dims)
            return same and self.scope.known_dims(x.dims & y.dims) and self.state.fits(x.dims | y.dims)
        local = self.scope.pick([y for y in self.scope.all() if fits(y)])
        if not local:
            return None
        over = self.scope.some(self.scope.known_dims(x.dims & local.dims), 0 if self.draw.random() < 0.2 else 1, 2)
        y = self.scope.read(local)
        scale = x.scale * y.scale * math.sqrt(self.state.elements(over))
        return Value(call("dot", *self.either(x.expression, y.expression), *over), (x.dims | y.dims) - set(over), "f32", scale)

    def reduction(self, x):
        known = self.scope.known_dims(x.dims)
        name = self.draw.choice(["sum", "mean", "mean", "max", "min"])
        over = known if set(known) == x.dims and self.draw.random() < 0.15 else self.scope.some(known, 1)
        counts = self.is_entropy(x.expression) and ("batch" in over or self.scope.depth)  # labels, perhaps of one copy only
        name = "sum" if name == "mean" and counts else name
        if over is known:
            return Value(call(name, x.expression), frozenset(), "f32", x.scale)
        scale = x.scale * (math.sqrt(self.state.elements(over)) if name == "sum" else 1)
        return Value(call(name, x.expression, *over), x.dims - set(over), "f32", scale) if over else None

    def normal(self, x):
        known = self.scope.known_dims(x.dims)
        if not known:
            return None
        dims, name = self.scope.some(known, 1, self.draw.choice([1, 1, 1, 2, 3])), self.draw.choice(["softmax", "log_softmax", "layernorm", "rmsnorm"])
        dim = dims[0]
        if name in ("softmax", "log_softmax"):
            return Value(call(name, x.expression, *dims), x.dims, "f32", 0.5 if name == "softmax" else x.scale + 1)
        normal = call(name, x.expression, *dims, eps=self.draw.choice([Number("0.1"), Number("1e-2")]))
        if self.draw.random() < 0.5 or dim == "batch":
            return Value(normal, x.dims, "f32", 1.0)
        return Value(binary("*", normal, self.scope.param([dim], 0.6).expression), x.dims, "f32", 1.0)

    def entropy(self, x):
        """Cross-entropy against labels that are drawn, some of them ignored."""
        known = self.scope.known_dims(x.dims)
        if OPEN in x.dims or not set(known) - {"batch"} or len(x.dims) < 2:
            return None
        dim = self.draw.choice([d for d in known if d != "batch"])
        fed = [y for y in self.scope.all("i32") if y.name in self.state.inputs and y.dims == x.dims - {dim}]
        labels = self.scope.read(self.draw.choice(fed)) if fed else self.index(x.dims - {dim}, self.size(dim))
        if labels is None:
            return None
        ignored = {"ignore": Number(str(self.draw.randrange(self.size(dim))))} if self.draw.random() < 0.4 else {}
        return Value(call("cross_entropy", x.expression, labels.expression, dim, **ignored), x.dims - {dim}, "f32", 2.0)

    # --- Positions ---------------------------------------------------------------------------------------------------

    def attention(self, x):
        known = self.scope.known_dims(x.dims)
        if len(known) < 2:
            return None
        seq, feature = self.draw.sample(known, 2)
        if self.draw.random() < 0.35 and feature != "batch":
            x, feature = self.with_heads(x, feature)
        if self.state.elements(x.dims - {feature}) * self.size(seq) > MOST_SCORES:
            return None
        free = [d for d in self.state.sizes if d not in x.dims | self.forbidden() and d != "batch"]
        other = self.draw.choice(free) if free and feature != "batch" and self.draw.random() < 0.3 else None  # of the keys
        sides = [self.other_side(x, seq, other, feature) if other else self.side(x, seq, feature) for _ in range(2)]
        query = self.mixed(x, feature)
        own = self.scope.some([d for d in free if d != other], 0, 1)
        if own and feature != "batch" and self.draw.random() < 0.4:  # the values have a feature dim of their own
            weight = self.scope.param([feature, *own], 0.8).expression
            sides[1] = Value(call("dot", sides[1].expression, weight, feature), sides[1].dims - {feature} | set(own))
        keywords = {}
        if self.draw.random() < 0.5:
            keywords["causal"] = Flag(self.draw.random() < 0.8)
        if self.draw.random() < 0.4:
            most = self.size(seq) if self.state.large and seq != "batch" else 4
            keywords["window"] = Number(str(self.draw.randint(1, most)))
        if self.draw.random() < 0.3:
            keywords["scale"] = Number("0.5")
        if self.draw.random() < 0.25:
            keywords["softcap"] = Number(self.draw.choice(["0.5", "2", "50"]))
        if self.draw.random() < 0.35 and not other:
            segment = self.integers(x, feature, {seq}, 3)
            keywords |= {"segment": self.documents(segment, seq).expression} if segment else {}
        keywords |= self.logits(x, seq, feature, other, sides[1].dims) if self.draw.random() < 0.4 else {}
        named = keywords.pop("named", other)
        dims = x.dims - {feature} | set(own) if feature not in sides[1].dims else x.dims
        made = call("attend", query.expression, *[side.expression for side in sides], seq, feature, **keywords)
        if not named and self.draw.random() < 0.1:
            named = seq  # as a block of two sequences may write that attends to one
        made.renaming = named and (seq, named)
        own, *keys = [frozenset(self.scope.known_dims(y.dims)) for y in (query, *sides)]
        made.shared = own.intersection(*keys) | own.difference(*keys)
        return Value(made, dims, "f32", x.scale)

    def with_heads(self, x, feature):
        """x with features by head in place of a dim, as most models have it; or both as they are."""
        free = self.new_dims(x.dims | self.forbidden(), 2)
        made = self.product(x, frozenset({feature}), frozenset(free)) if len(free) == 2 else None
        return (made, max(free, key=lambda d: (self.size(d) % 2, d))) if made else (x, feature)

    def integers(self, x, feature, least, size):
        """i32 below size, of some dims of x but not the feature."""
        dims = frozenset(least) | frozenset(self.scope.some(x.dims - {feature, OPEN} - set(least), 0))
        return self.scope.attempt(self.index, dims, size)

    def documents(self, segment, seq):
        """As they are, or counted along the sequence."""
        if seq == "batch" or self.draw.random() < 0.5:
            return segment
        ends = call("cast", binary("==", segment.expression, 0), Name("i32"))
        exclusive = {"exclusive": Flag(True)} if self.draw.random() < 0.7 else {}
        return Value(call("cumsum", ends, seq, **exclusive), segment.dims, "i32")

    def running(self, x):
        """Sums so far."""
        known = self.scope.known_dims(x.dims - {"batch"})
        if not known:
            return None
        dim = self.draw.choice(known)
        flags = {name: Flag(self.draw.random() < 0.7) for name in ("exclusive", "reverse") if self.draw.random() < 0.4}
        return Value(call("cumsum", x.expression, dim, **flags), x.dims, "f32", x.scale * math.sqrt(self.size(dim)))

    def side(self, x, seq, feature):
        """Keys or values for the queries x: x itself, x through a parameter, or another value with fewer dims."""
        way = self.draw.random()
        if way < 0.4:
            return self.mixed(x, feature)
        least = frozenset({seq, feature})
        local = self.scope.pick([y for y in self.scope.all() if least <= y.dims <= x.dims])
        if local and way < 0.75:
            return self.scope.read(local)
        fewer = least | set(self.scope.some(x.dims - least - {OPEN}, 0))
        return self.scope.attempt(self.exactly, fewer) or x

    def logits(self, x, seq, feature, other, of_values):
        """A bias and a mask, of a dim for the keys that is `other`, or any of the size of seq; and sinks."""
        taken = x.dims | of_values | self.forbidden() | {"batch"}
        same = [d for d in self.state.sizes if self.size(d) == self.size(seq) and d not in taken]
        key, keywords = other or (self.draw.choice(same) if same and seq != "batch" else None), {}
        known = x.dims - {feature, OPEN, "batch"}
        if self.draw.random() < 0.4:
            heads = self.scope.some(known - {seq}, 0)
            keywords["sinks"] = self.scope.param(heads, 1.0).expression if heads else Number("0.5")
        if key and self.draw.random() < 0.6:
            keywords["bias"] = (self.of_keys(self.exactly, x, seq, feature, key) if self.draw.random() < 0.4 else None) or \
                self.scope.param({key, *self.scope.some(known, 0)}, 1.0).expression
        if key and seq != "batch" and self.draw.random() < 0.5:
            keywords["mask"] = (self.of_keys(self.condition, x, seq, feature, key) if self.draw.random() < 0.5 else None) or \
                binary(self.draw.choice(["!=", "<", ">"]), call("iota", key), call("iota", seq))
        return keywords | ({"named": key} if other or "bias" in keywords or "mask" in keywords else {})

    def of_keys(self, draw_value, x, seq, feature, key):
        """A value of the data, such as a mask of padding: along the keys in place of the queries."""
        if self.size(key) != self.size(seq) or seq == "batch":
            return None
        value = self.scope.attempt(draw_value, frozenset({seq, *self.scope.some(x.dims - {seq, feature, OPEN}, 0)}))
        if value is None or seq not in value.dims or self.is_entropy(value.expression):
            return None
        return Call("rename", [value.expression], {}, (seq, key))

    def other_side(self, x, seq, other, feature):
        """Keys or values along another sequence dim."""
        dims = {other, feature, *self.scope.some(x.dims - {seq, feature, OPEN, "batch"}, 0)}
        return self.scope.attempt(self.exactly, dims) or self.scope.param(dims, 0.8)

    def mixed(self, x, feature):
        """x, or its features through a square of parameters."""
        if self.draw.random() < 0.5 or feature == "batch":
            return x
        twin = self.state.twin(feature)
        if twin in x.dims:
            return x
        weight = self.scope.param([feature, twin], 1 / math.sqrt(self.size(feature)))
        product = call("dot", x.expression, weight.expression, feature)
        return Value(Call("rename", [product], {}, (twin, feature)), x.dims, "f32", x.scale)

    def rotary(self, x):
        known = self.scope.known_dims(x.dims)
        even = [d for d in known if d != "batch" and self.size(d) % 2 == 0]
        if len(known) < 2 or not even:
            return None
        feature = self.draw.choice(even)
        seq = self.draw.choice([d for d in known if d != feature])
        style = {"style": Name(self.draw.choice(["half", "interleaved"]))} if self.draw.random() < 0.7 else {}
        base = {"base": Number(self.draw.choice(["100", "10000"]))} if self.draw.random() < 0.5 else {}
        if self.draw.random() < 0.3:
            base["stretch"] = Number(self.draw.choice(["2.5", "8", "1"]))
        if seq == "batch":
            return None
        at = self.integers(x, feature, {seq} if self.draw.random() < 0.8 else {}, 40) if self.draw.random() < 0.4 else None
        place = {"position": at.expression} if at and at.dims else {}
        return Value(call("rope", x.expression, seq, feature, **base, **style, **place), x.dims, "f32", x.scale)

    def drop(self, x):
        self.state.uses_dropout = True
        return Value(call("dropout", x.expression, self.draw.choice([0.1, 0.25, 0.5])), x.dims, "f32", x.scale)

    def trained(self, x):
        """Evaluation reads something else."""
        other = call(self.draw.choice(UNARY), x.expression)
        first, second = (other, x.expression) if self.draw.random() < 0.5 else (x.expression, other)
        return Value(call("training", first, second), x.dims, "f32", max(x.scale, x.scale**2))

    def take(self, x):
        """x[d = index], with the index over d itself, or over other dims, of which x may have some."""
        known = sorted(x.dims - {OPEN, "batch"})
        if not known:
            return None
        dim = self.draw.choice(known)
        if self.draw.random() < 0.4:
            return self.shifted(x, dim)
        free = [d for d in self.state.sizes if d not in x.dims | self.forbidden() and d != "batch"] + [dim]
        dims = frozenset(self.scope.some(free, 1, 2))
        if self.draw.random() < 0.4:
            dims |= frozenset(self.scope.some(x.dims - {dim, OPEN}, 1, 2))
        if "batch" not in x.dims and self.draw.random() < 0.4:
            dims |= {"batch"}
        index = self.index(dims - ({OPEN} if OPEN in x.dims else set()), self.size(dim))
        return index and Value(Index(x.expression, dim, index.expression), (x.dims - {dim}) | index.dims, "f32", x.scale)

    def shifted(self, x, dim):
        by = self.draw.randint(1, 2)
        back = call("maximum", binary("-", call("iota", dim), by), 0)
        forth = call("minimum", binary("+", call("iota", dim), by), binary("-", dim, 1))
        return Value(Index(x.expression, dim, self.draw.choice([back, forth])), x.dims, "f32", x.scale)

    def window(self, x):
        """What stands at several places along d, summed with weights: a convolution."""
        known = sorted(x.dims - {OPEN, "batch"})
        taps = [d for d in self.state.sizes if d not in x.dims | self.forbidden() and d != "batch" and self.size(d) <= 4]
        if not known or not taps:
            return None
        dim, tap = self.draw.choice(known), self.draw.choice(taps)
        at = binary("-", binary("+", call("iota", dim), call("iota", tap)), self.size(tap) - 1)
        places = Index(x.expression, dim, call("minimum", call("maximum", at, 0), binary("-", dim, 1)))
        if self.draw.random() < 0.3:
            return Value(places, x.dims | {tap}, "f32", x.scale)
        kept = self.scope.some(x.dims - {OPEN, "batch"}, 0, 1)
        weight = self.scope.param({tap, *kept}, 0.6)
        return Value(call("dot", *self.either(places, weight.expression), tap), x.dims, "f32", x.scale)

    def cut(self, x):
        """One slice, spread again or not."""
        known = sorted(x.dims - {OPEN, "batch"})
        if not known:
            return None
        dim = self.draw.choice(known)
        part = Index(x.expression, dim, self.place(dim))
        if self.draw.random() < 0.5:
            return Value(part, x.dims - {dim}, "f32", x.scale)
        return Value(binary(self.draw.choice("+-*"), *self.either(x.expression, part)), x.dims, "f32", 1.5 * x.scale)

    def added(self, x):
        """Rows with the same number, added up."""
        known = self.scope.known_dims(x.dims - {"batch"})
        others = [d for d in self.state.sizes if d not in x.dims and d != "batch" and not d.endswith("_t")]
        if not known or not others or OPEN in x.dims or self.forbidden():
            return None
        dim, to = self.draw.choice(known), self.draw.choice(others)
        index = self.index({dim} | (x.dims & {"batch"} if self.draw.random() < 0.5 else set()), self.size(to))
        return index and Value(Call("add_rows", [x.expression, index.expression], {}, (dim, to)), (x.dims - {dim}) | {to}, "f32",
                               x.scale * math.sqrt(self.size(dim)))

    def sorted(self, x):
        """Rows in the order of numbers, some of which are equal."""
        known = self.scope.known_dims(x.dims - {"batch"})
        if not known:
            return None
        dim = self.draw.choice(known)
        number_of_row = call("cast", binary("%", binary("*", call("iota", dim), self.draw.choice([3, 5])), self.draw.choice([4, 7])), "f32")
        order = call("argsort", number_of_row, dim, **({"reverse": Flag(True)} if self.draw.random() < 0.4 else {}))
        return Value(Index(x.expression, dim, order), x.dims, "f32", x.scale)

    def solved(self, x):
        """Equations along a dim, with a triangle of a parameter, or of products of x with itself."""
        known = sorted(d for d in x.dims - {OPEN, "batch"} if not d.endswith("_t"))
        if not known or self.forbidden() or len(x.dims) > 4:
            return None
        dim = self.draw.choice(known)
        twin = self.state.twin(dim)
        if twin in x.dims:
            return None
        if self.draw.random() < 0.5:
            triangle = self.scope.param([dim, twin], 0.4).expression
        else:
            small = call("tanh", x.expression)
            others = [d for d in self.scope.known_dims(x.dims - {dim}) if d != "batch"]
            row = call("mean", small, *others) if others else small
            triangle = call("dot", row, Call("rename", [row], {}, (dim, twin)))
        return Value(Call("solve", [triangle, x.expression], {}, (dim, twin)), x.dims, "f32", x.scale * 1.5)

    def renamed(self, x):
        known = sorted(d for d in x.dims - {OPEN, "batch"} if not d.endswith("_t"))
        if not known or self.forbidden():
            return None
        dim = self.draw.choice(known)
        twin = self.state.twin(dim)
        if twin in x.dims:
            return None
        return Value(Call("rename", [x.expression], {}, (dim, twin)), (x.dims - {dim}) | {twin}, "f32", x.scale)

    def joined(self, x):
        """Two or three pieces along a dim that is declared as their sum."""
        known = sorted(x.dims - {OPEN, "batch"})
        if not known or self.forbidden():
            return None
        own = [self.draw.choice(known)]
        pieces = [x.expression]
        rest = x.dims - {own[0]}
        for _ in range(self.draw.choice([1, 1, 2])):
            others = [d for d in self.state.sizes if d not in rest | {own[0]} and d != "batch"]
            dim = own[0] if self.draw.random() < 0.6 or not others else self.draw.choice(others)
            piece = self.exactly(rest | {dim})
            if piece is None:
                return None
            own.append(dim)
            pieces.append(piece.expression)
        if len(set(own)) > 1 and len(own) > 2:
            return None
        to = self.sum_dim(own)
        along = {"along": Name(own[0])} if len(set(own)) == 1 and self.draw.random() < 0.2 else {}
        return Value(call("concat", to, *pieces, **along), rest | {to}, "f32", x.scale) if to not in rest else None

    def sum_dim(self, own):
        total = Name(own[0])
        for dim in own[1:]:
            total = binary("+", total, dim)
        if len(own) == 2 and own[0] == own[1] and self.draw.random() < 0.3:
            total = binary("*", 2, own[0])
        return self.state.derived("cat_" + "_".join(own), total, sum(self.size(d) for d in own))

    def experts(self, x):
        """A mixture: tokens to the experts that a router chooses, what these make of them, and back."""
        known = sorted(x.dims - {OPEN, "batch"})
        if self.state.scanned:
            return None
        free = [d for d in self.state.sizes if d not in x.dims | self.forbidden() and d != "batch"]
        pairs = [(e, k) for e in free for k in free if e != k and self.size(k) <= self.size(e)]
        if not known or not pairs or OPEN in x.dims or "batch" not in x.dims:
            return None
        shared_out = [(e, k) for e, k in pairs if self.size(e) % 4 == 0]  # over ranks, in several blocks
        feature, (experts, choice) = self.draw.choice(known), self.draw.choice(shared_out if shared_out and self.draw.random() < 0.6 else pairs)
        routed = self.state.elements(x.dims - {feature}) * self.size(choice)
        if self.state.large and (routed > MOST_ROUTED or routed * self.size(experts) * self.size(feature) > MOST_ROWS):
            return None
        if any(isinstance(e, Call) and e.function in ("dropout", "random") for e in walk(x.expression)):  # one choice for both
            x = self.scope.read(self.scope.assign(self.state.fresh("v"), x))
        slots = self.state.slots()
        router = self.scope.param([feature, experts], 1.0).expression
        inner = [d for d in free if d not in (experts, choice) and routed * self.size(experts) * self.size(d) <= MOST_ROWS]
        score = call("sigmoid", call("dot", x.expression, router, feature))
        short = self.draw.random() < 0.5
        chosen = call("top_k", score, experts, choice)
        if short:
            chosen.arguments.pop()
            chosen.renaming = (str(self.size(choice)), choice)
        rounds, share = self.draw.random() < 0.25, None
        if self.draw.random() < 0.4:
            share, chosen = self.both(chosen)
        elif rounds:  # for which the choice has a name
            self.scope.body.append(Assign(self.state.fresh("v"), chosen))
            chosen = Name(self.scope.body[-1].name)
        how = dict(self.capacity(x.dims - {feature}), **({"rounds": Flag(True)} if rounds else {}))
        rows = call("dispatch", x.expression, chosen, experts, slots, **how)
        has_matrices = inner and self.draw.random() < (0.8 if self.state.large else 0.6)
        made = self.by_expert(rows, experts, feature, self.draw.choice(inner) if has_matrices else None)
        back = call("combine", made, chosen, *[experts, slots][:0 if short else 2])
        weighted = binary("*", back, share or Index(score, experts, chosen)) if share or self.draw.random() < 0.6 else back
        if self.draw.random() < 0.2:
            own = self.scope.some(x.dims - {feature, "batch"}, 1) if not self.state.mixes or self.draw.random() < 0.3 else []
            weighted = binary("+", weighted, call("balance", score, chosen, experts, *own)) if own or self.state.mixes else weighted
        result = Value(call("sum", weighted, choice), x.dims, "f32", x.scale)
        return self.in_rounds(x, result) if rounds else result

    def both(self, choice):
        """Names of what top_k chooses, and of where that is."""
        names = [self.state.fresh("v"), self.state.fresh("v")]
        self.scope.body.append(Assign(names[0], choice, None, names[1:]))
        return [Name(name) for name in names]

    def picked(self, x):
        """The places along a dim with the largest scores, of each sequence, or of each element of other dims."""
        known = sorted(x.dims - {OPEN, "batch"})
        if len(known) < 2 or self.forbidden() or self.state.scanned:
            return None
        dim, *over = self.draw.sample(known, 2)
        choices = [k for k in self.state.sizes if k not in x.dims and k != "batch" and self.size(k) <= self.size(dim)]
        if not choices:
            return None
        if any(isinstance(e, Call) and e.function in ("dropout", "random") for e in walk(x.expression)):  # one choice for both
            x = self.scope.read(self.scope.assign(self.state.fresh("v"), x))
        choice = self.draw.choice(choices)
        score = call("sigmoid", call("dot", x.expression, self.scope.param(over, 1.0).expression, *over))
        share, chosen = self.both(call("top_k", score, dim, choice))
        rows = Index(x.expression, dim, chosen)
        return Value(binary("*", rows, share), x.dims - {dim} | {choice}, "f32", x.scale)

    def by_expert(self, rows, experts, feature, inner):
        """Rows times a row of the expert; or times its matrix, to the dim `inner`, and another one back.  Empty rows give zeros
        there, or not, if there is a bias."""
        if inner is None:
            rows = binary("*", rows, self.scope.param([experts, feature], 0.8).expression)
            return call(self.draw.choice(["tanh", "square"]), rows)
        weight = self.scope.param([experts, feature, inner], 1 / math.sqrt(self.size(feature))).expression
        rows = call("dot", rows, weight, feature)
        if self.draw.random() < 0.2:
            rows = binary("+", rows, self.scope.param([experts, inner], 0.5).expression)
        rows = call(self.draw.choice(["tanh", "relu", "silu"]), rows)
        return call("dot", rows, self.scope.param([experts, inner, feature], 1 / math.sqrt(self.size(inner))).expression, inner)

    def in_rounds(self, x, term):
        """The copies of a repeat take turns at the queues."""
        total = self.scope.assign(self.state.fresh("v"), Value(binary("*", 0.0, x.expression), x.dims))
        count = Number(str(self.draw.choice([1, 2, 2, 3, 4])))
        self.scope.body.append(Repeat(count, [Assign(total.name, binary("+", total.name, term.expression))]))
        return self.scope.read(total)

    def capacity(self, tokens):
        """Rows are dropped by sequence, or, where values may depend on several sequences, by place in the batch."""
        share = Number(self.draw.choice(["0.5", "1.0", "1.25", "2.0"]))
        ways = [{}, {"capacity": Name("none")}]
        ways += [{"capacity": share}] * 2 if self.state.mixes else []
        ways += [{"capacity": share, "within": Name("batch")}] * 2 if len(tokens) > 1 else []
        others = sorted(tokens - {"batch"})
        ways += [{"capacity": share, "within": Name(d)} for d in others[:1]] if self.state.mixes else []
        return self.draw.choice(ways)

    def outer_bias(self, x):
        """Dims that x lacks, brought by a parameter: only where x has no batch can a parameter be the larger side."""
        if x.dims & {"batch", OPEN} or self.forbidden():
            return None
        more = self.new_dims(x.dims, 1)
        if not more or len(x.dims) > 2:
            return None
        weight = self.scope.param(x.dims | set(more), 0.7)
        pair = self.either(x.expression, weight.expression)
        return Value(binary(self.draw.choice("+*-"), *pair), weight.dims, "f32", x.scale)
