"""What an optimizer does to one parameter, in PyTorch: those of the language from their papers, and those that a program
declares, whose text is evaluated."""
import math
import string
from fnmatch import fnmatchcase

import torch

import constants
from constants import called, number_of
from tree import Assign, Binary, Call, Flag, Name, Negation, Number, Optimizer, Repeat, Slot, TypeOf, Updated

DEFAULTS = {"adamw": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
            "sgd": {"lr": 1e-3, "momentum": 0.0, "weight_decay": 0.0, "nesterov": False},
            "adafactor": {"lr": 1e-2, "beta2_decay": -0.8, "eps1": 1.1920929e-7, "eps2": 1e-3, "d": 1.0, "weight_decay": 0.0},
            "muon": {"lr": 1e-3, "momentum": 0.95, "weight_decay": 0.1, "nesterov": True, "steps": 5},
            "lion": {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0}}


class Chosen:
    """An optimizer with its arguments, and what it is of."""

    def __init__(self, program, known, call, base=None):
        name, given = called(call, known)
        flags = {key: v.value for key, v in getattr(call, "keywords", {}).items() if isinstance(v, Flag)}
        self.name = name or base.name
        self.declared = next((d for d in program.declarations if isinstance(d, Optimizer) and d.name == self.name), None)
        defaults = {key: number_of(v, known) for key, v in self.declared.defaults.items()} if self.declared \
            else DEFAULTS[self.name]
        self.options = {**(defaults if name else base.options), **given, **flags}
        self.sets_decay = base is not None and "weight_decay" in given


def chosen(program, known):
    """[(patterns, Chosen)]: the first is of all parameters, and the last that names one counts."""
    base = Chosen(program, known, program.train.get("optimizer", Name("adamw")))
    groups = [(["*"], base)]
    for key, call in program.train.items():
        if key.startswith("group "):
            patterns = [p.strip() for p in key.split('"')[1].split(",")]
            groups.append((patterns, Chosen(program, known, call, base)))
    return groups


def chosen_of(groups, name):
    path = ".".join("*" if part.isdigit() else part for part in name.split("."))
    return [group for patterns, group in groups if any(fnmatchcase(path, p) for p in patterns)][-1]


def update(group, weight, gradient, state, count, rate, decays, matrix):
    """Changes weight and state; count: this update's number, from 1."""
    o = dict(group.options)
    if "weight_decay" in o and not (decays or group.sets_decay):
        o["weight_decay"] = 0.0
    if group.declared:
        declared(group.declared, weight, gradient, state, count, rate, o, *matrix)
    elif group.name in ("adafactor", "muon"):
        {"adafactor": adafactor, "muon": muon}[group.name](weight, gradient, state, count, rate, o, *matrix)
    else:
        {"adamw": adamw, "sgd": sgd, "lion": lion}[group.name](weight, gradient, state, count, rate, o)


def adamw(weight, gradient, state, count, rate, o):
    first, second = (state.setdefault(name, torch.zeros_like(weight)) for name in ("m", "v"))
    first.mul_(o["beta1"]).add_((1 - o["beta1"]) * gradient)
    second.mul_(o["beta2"]).add_((1 - o["beta2"]) * gradient**2)
    weight *= 1 - rate * o["weight_decay"]
    weight -= rate * (first / (1 - o["beta1"]**count)) / ((second / (1 - o["beta2"]**count)).sqrt() + o["eps"])


def sgd(weight, gradient, state, count, rate, o):
    gradient = gradient + o["weight_decay"] * weight
    mean = state["m"] = o["momentum"] * state.get("m", 0) + gradient
    weight -= rate * (gradient + o["momentum"] * mean if o["nesterov"] else mean)


def lion(weight, gradient, state, count, rate, o):
    mean = state.setdefault("m", torch.zeros_like(weight))
    direction = torch.sign(o["beta1"] * mean + (1 - o["beta1"]) * gradient)
    mean.mul_(o["beta2"]).add_((1 - o["beta2"]) * gradient)
    weight *= 1 - rate * o["weight_decay"]
    weight -= rate * direction


def adafactor(weight, gradient, state, count, rate, o, inner, outer):
    """Of the dims at positions `inner` and `outer`; the others count matrices."""
    def mean(x, dims):
        return x.mean(tuple(dims), keepdim=True) if dims else x

    def kept(name, value):
        state[name] = state.get(name, 0) + (value - state.get(name, 0)) * count**o["beta2_decay"]
        return state[name]

    row, column = kept("r", mean(gradient**2, outer)), kept("c", mean(gradient**2, inner))
    has_rows = math.prod(weight.shape[at] for at in inner) > 1
    size = row * column / mean(row, inner).clamp(min=o["eps1"]) if has_rows else column
    step = gradient / size.clamp(min=o["eps1"]**2).sqrt()
    scale = min(rate, count**-0.5) * mean(weight**2, inner + outer).sqrt().clamp(min=o["eps2"])
    weight *= 1 - rate * o["weight_decay"]
    weight -= step * scale / (mean(step**2, inner + outer).sqrt() / o["d"]).clamp(min=1)


def muon(weight, gradient, state, count, rate, o, inner, outer):
    mean = state.setdefault("m", torch.zeros_like(weight))
    mean.mul_(o["momentum"]).add_((1 - o["momentum"]) * gradient)
    x = (1 - o["momentum"]) * gradient + o["momentum"] * mean if o["nesterov"] else mean
    rows, columns = (math.prod(weight.shape[at] for at in dims) for dims in (inner, outer))
    weight *= 1 - rate * o["weight_decay"]
    weight -= rate * max(1, columns / rows)**0.5 * orthogonal(x, inner, outer, o["steps"])


def orthogonal(x, inner, outer, steps):
    """Each matrix on its own, nearly."""
    order = [at for at in range(x.dim()) if at not in inner + outer] + inner + outer
    rows, columns = (math.prod(x.shape[at] for at in dims) for dims in (inner, outer))
    moved = x.permute(order)
    x = moved.reshape(-1, rows, columns)
    x = x.transpose(1, 2) if rows > columns else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(int(steps)):
        square = x @ x.transpose(1, 2)
        x = 3.4445 * x + (2.0315 * square @ square - 4.7750 * square) @ x
    x = (x.transpose(1, 2) if rows > columns else x).reshape(moved.shape)
    return x.permute([order.index(at) for at in range(len(order))])


# --- Declared in the program -----------------------------------------------------------------------------------------

SIGNS = {"+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div, "^": torch.pow, "<": torch.lt, ">": torch.gt,
         "<=": torch.le, ">=": torch.ge, "==": torch.eq, "!=": torch.ne}
FUNCTIONS = {"sqrt": torch.sqrt, "square": torch.square, "abs": torch.abs, "tanh": torch.tanh, "maximum": torch.maximum,
             "minimum": torch.minimum, "where": torch.where, "sign": torch.sign, "exp": torch.exp, "log": torch.log,
             "rsqrt": torch.rsqrt}


REDUCTIONS = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}


class Declared:
    """One update of one parameter.  A tensor has the dims of the parameter three times, as in, in' and in''; what lacks
    one has one element along it."""

    def __init__(self, weight, gradient, count, rate, options, inner, outer):
        self.shape, self.dtype = list(weight.shape) * 3, weight.dtype
        rank = weight.dim()
        self.dims = {name + "'" * times: [at + times * rank for at in dims]
                     for times in range(3) for name, dims in (("in", inner), ("out", outer))}
        self.known = {name: value for name, value in options.items() if name != "lr"}
        self.known |= {name: math.prod(self.shape[at] for at in dims) for name, dims in self.dims.items()}
        self.names = {"param": self.spread(weight.clone()), "grad": self.spread(gradient), "lr": self.number(rate),
                      "step": self.number(count), **{name: self.number(value) for name, value in self.known.items()}}

    def spread(self, x):
        return x[(...,) + (None,) * (2 * x.dim())]

    def number(self, value):
        return torch.tensor(float(value), dtype=self.dtype)

    def zeros(self, stated):
        rank = len(self.shape) // 3
        counts = set(range(rank)) - {*self.dims["in"], *self.dims["out"]}
        kept = {at for name in (stated.dims if stated else ["in", "out"]) for at in self.dims[name]}
        kept |= counts if stated is None or stated.is_open else set()
        return torch.zeros([size if at in kept else 1 for at, size in enumerate(self.shape)], dtype=self.dtype)

    def value(self, e):
        number = None if isinstance(e, Name) and e.name in self.names else number_of(e, self.known)
        if number is not None:
            return self.number(number)
        if isinstance(e, Name):
            return self.names[e.name]
        if isinstance(e, Negation):
            return -self.value(e.operand)
        if isinstance(e, Binary):
            return self.combined(e.sign, self.value(e.left), self.value(e.right))
        return self.call(e)

    @staticmethod
    def combined(sign, a, b):
        """Of whole numbers a division drops the remainder; a number takes the type of what it meets."""
        if torch.int64 in (a.dtype, b.dtype):
            a, b = a.long(), b.long()
        is_whole = sign == "/" and a.dtype == torch.int64
        return torch.div(a, b, rounding_mode="trunc") if is_whole else SIGNS[sign](a, b)

    def axes(self, names):
        return [at for name in names for at in self.dims[name.name]]

    def places(self, dims):
        """The number of each row, the first of these dims outermost."""
        count = math.prod(self.shape[at] for at in dims)
        return torch.arange(count).reshape([size if at in dims else 1 for at, size in enumerate(self.shape)])

    def renamed(self, x, before, after):
        for a, b in zip(self.dims[before], self.dims[after]):
            x = x.transpose(a, b)
        return x

    def product(self, x, y, over):
        """Summed over these axes, which stay with one element; never all at once, which can be terabytes."""
        letters = string.ascii_letters[:x.dim()]
        kept = "".join(letter for at, letter in enumerate(letters) if at not in over)
        summed = torch.einsum(f"{letters},{letters}->{kept}", x.to(self.dtype), y.to(self.dtype))
        for at in sorted(over):
            summed = summed.unsqueeze(at)
        return summed

    def call(self, e):
        if e.function == "if":
            return self.value(constants.chosen_of(e, self.known))
        if e.function == "iota":
            return self.places(self.axes(e.arguments))
        x = self.value(e.arguments[0])
        if e.function == "cast":
            return x.trunc().long() if e.arguments[1].name == "i32" else x.to(self.dtype)
        if e.function == "rename":
            return self.renamed(x, *e.renaming)
        if e.function == "dot":
            return self.product(x, self.value(e.arguments[1]), self.axes(e.arguments[2:]))
        if e.function == "orthogonal":
            plain = x.reshape(self.shape[:len(self.shape) // 3])
            found = orthogonal(plain, self.dims["in"], self.dims["out"],
                               number_of(e.keywords.get("steps", Number("5")), self.known))
            return self.spread(found)
        if e.function in REDUCTIONS:
            over = self.axes(e.arguments[1:] or [Name(name) for name in self.dims])
            return REDUCTIONS[e.function](x, dim=over, keepdim=True) if over else x
        return FUNCTIONS[e.function](x, *[self.value(a) for a in e.arguments[1:]])

    def run(self, line):
        if isinstance(line, Repeat):
            for _ in range(number_of(line.count, self.known)):
                for inner in line.body:
                    self.run(inner)
        else:
            self.names[line.name] = self.value(line.value)


def declared(optimizer, weight, gradient, state, *others):
    update = Declared(weight, gradient, *others)
    for line in optimizer.body:
        if isinstance(line, Slot):
            update.names.update({name: state.setdefault(name, update.zeros(line.type)) for name in line.names})
        elif isinstance(line, Updated):
            after = update.value(line.value)
        else:
            update.run(line)
    state.update({name: update.names[name] for line in optimizer.body if isinstance(line, Slot) for name in line.names})
    weight.copy_(after.reshape(weight.shape))


# --- Drawn -----------------------------------------------------------------------------------------------------------

def statistic(draw, grad):
    """Lines for a statistic of one side, and gram, near 1 on its diagonal: the matrix itself, or its inverse by Newton."""
    side, other = draw.sample(["in", "out"], 2)
    second, third = side + "'", side + "''"

    def times(a, b):
        moved = Call("rename", [Name(b)], renaming=(side, third))
        return Call("rename", [Call("dot", [Name(a), moved, Name(second)])], renaming=(third, second))

    product = Call("dot", [grad, Call("rename", [grad], renaming=(side, second)), Name(other)])
    one = Call("cast", [Binary("==", Call("iota", [Name(side)]), Call("iota", [Name(second)])), Name("f32")])
    mean = Call("sum", [Call("abs", [Name("both")])] + draw.choice([[], [Name(side), Name(second)]]))
    lines = [Slot(["both"], TypeOf([side, second], None, True)),
             Assign("both", Binary("+", Binary("*", Name("both"), Number("0.5")), product)),
             Assign("one", one),
             Assign("gram", Binary("+", Name("one"), Binary("/", Name("both"), Binary("+", mean, Number("0.1")))))]
    if draw.random() < 0.5:
        rest = Binary("-", Binary("*", Number("2.0"), Name("one")), Name("made"))
        lines += [Assign("guess", Binary("*", Number("0.5"), Name("one"))),
                  Repeat(Number(draw.choice("123")), [Assign("made", times("gram", "guess")), Assign("made", rest),
                                                      Assign("guess", times("guess", "made"))]),
                  Assign("gram", Name("guess"))]
    return side, lines


def drawn(draw, large):
    """A declaration: a mean of gradients or none, divided by something or not, and what was before.  large: no statistic of
    pairs of rows, which of a large matrix has billions."""
    def of(sign, a, b):
        return Binary(sign, a, b)

    lr, grad, param, mean, beta = (Name(name) for name in ("lr", "grad", "param", "mean", "beta"))
    one, small = Number("1.0"), Number("0.1")
    body, defaults = [], {"lr": Number("0.05")}
    direction = grad
    if draw.random() < 0.3:
        direction = of("+", direction, of("*", Name("weight_decay"), param))
        defaults["weight_decay"] = Number("0.1")
    if draw.random() < 0.7:
        defaults["beta"] = Number(draw.choice(["0.9", "0.5"]))
        body = [Slot(["mean"]), Assign("mean", of("+", of("*", beta, mean), of("*", of("-", one, beta), direction)))]
        direction = mean
    if draw.random() < 0.4:
        body += [Slot(["size"]), Assign("size", Call("maximum", [of("*", Name("size"), Number("0.9")), Call("abs", [grad])]))]
        direction = of("/", direction, of("+", Name("size"), small))
    if draw.random() < 0.3:  # of rows or columns of a matrix, or of all of it
        side, other = draw.sample(["in", "out"], 2)
        stated, over = draw.choice([(TypeOf([side], None, True), [Name(other)]), (TypeOf([], None, True), [Name("in"), Name("out")]),
                                    (TypeOf([], None, True), [])])
        mean_of = Call(draw.choice(["mean", "max", "sum"]), [Call("square", [grad]), *over])
        body += [Slot(["part"], stated), Assign("part", of("+", of("*", Name("part"), Number("0.5")), mean_of))]
        direction = of("/", direction, of("+", Call("sqrt", [of("+", Name("part"), small)]), small))
    if draw.random() < 0.25:  # what was there before
        kept = draw.choice([grad, param, direction])
        change = of("-", kept, Name("before"))
        change = change if draw.random() < 0.5 else of("*", Name("before"), Call("tanh", [Call("mean", [kept])]))
        body += [Slot(["before"]), Assign("change", change), Assign("before", kept)]
        direction = of("+", direction, of("*", small, Name("change")))
    if draw.random() < 0.25 and not large:  # what both sides of a product have, multiplied by it or its inverse
        side, lines = statistic(draw, grad)
        body += lines
        direction = Call("dot", [Name("gram"), Call("rename", [direction], renaming=(side, side + "'")), Name(side + "'")])
    if draw.random() < 0.15:  # which has nothing to do with a bias
        squared = Call("orthogonal", [direction], {"steps": Number("2")})
        direction = Call("if", [of(">", Name("in"), Number("1")), squared, direction])
    direction = draw.choice([direction, Call("tanh", [direction]),
                             Call("where", [of("<", Call("abs", [direction]), one), direction, of("*", direction, small)])])
    rate = draw.choice([lr, of("/", lr, Call("sqrt", [Name("step")]))])
    return Optimizer("mine", defaults, body + [Updated(of("-", param, of("*", rate, direction)))])
