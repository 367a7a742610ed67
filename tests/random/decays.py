"""Which parameters decay, from the words of docs/language.md: those that a product sums over a dim of, that attention
multiplies, or whose rows are taken; and tables of positions.  What is made of parameters and numbers alone counts as
they do."""
from constants import chosen_of, names_in, number_of
from prune import assigned_in
from tree import Assign, Call, Index, Input, Mean, Name, Named, Param, Range, Repeat, Scan, Several, Update, Yield, children

NO_DATA = frozenset()  # of numbers: (parameter, its dims as they are called there) for each that a value is made of


def renamed(parts, before, after):
    return folded(parts, [before], [after])


def names_of(dim):
    """A dim that is split is called by the names of its parts, with bars between them; one that is gone has no name."""
    return set(dim.split("|")) - {""}


def folded(parts, before, after):
    """With the dims `before` as parts of `after`, or as these together."""
    def called(dim):
        names = names_of(dim)
        return "|".join(sorted(names - set(before) | set(after))) if names & set(before) else dim
    return parts and frozenset((name, tuple(called(d) for d in dims)) for name, dims in parts)


def without(parts, gone):
    """Of what no longer has these dims: another dim may have their names."""
    return parts and frozenset((name, tuple("|".join(sorted(names_of(d) - set(gone))) for d in dims)) for name, dims in parts)


class Walk:
    def __init__(self, program, known, shared=()):
        self.program, self.known, self.decaying, self.shared = program, known, set(), dict(shared)
        self.declared, self.contracted, self.kept = {}, {}, {}  # of parameters: dims, and positions among them
        sequences = {d for s in program.model.body if isinstance(s, Input) and s.type.dtype == "i32"
                     for d in s.type.dims} - {program.batch_dim}
        self.positions = sequences
        self.body(program.model.body, {}, "")

    def contract(self, parts, dims):
        self.decaying |= {name for name, own in parts or () if any(names_of(d) & set(dims) for d in own)}
        self.note(self.contracted, parts, dims)

    @staticmethod
    def note(where, parts, dims):
        for name, own in parts or ():
            where.setdefault(name, set()).update(at for at, d in enumerate(own) if names_of(d) & set(dims))

    def body(self, body, values, path):
        """Gives what the last statement returns is made of; None: of data."""
        result = None
        for s in body:
            if isinstance(s, Assign):
                made = self.made(s.value, values, path)
                values.update(zip(s.names, made if isinstance(made, list) else [made] * len(s.names)))
            elif isinstance(s, (Named, Mean)):
                values[f"instance {s.name}"] = path
            elif isinstance(s, Param):
                for name in s.names:
                    full = f"{path}.{name}" if path else name
                    self.declared[full] = list(s.type.dims)
                    values[name] = frozenset([(full, tuple(s.type.dims))])
                    if set(s.type.dims) & self.positions:
                        self.decaying.add(full)
            elif isinstance(s, Repeat) and number_of(s.count, self.known) == 0:
                continue
            elif isinstance(s, Repeat):
                carried = {name for name in self.assigned(s.body) if name in values}
                values.update({name: None for name in carried})
                for copy in range(int(number_of(s.count, self.known)) if s.number else 1):
                    self.known[s.number] = copy
                    self.body(s.body, dict(values), path)
            elif isinstance(s, Scan):
                at_place = {name: parts if name.startswith("instance ") else renamed(parts, s.dim, f"one of {s.dim}")
                            for name, parts in values.items()}
                self.body(s.body, at_place | {name: None for name in self.assigned(s.body) if name in values}, path)
                values.update({name: None for name in self.assigned(s.body) if name in values})
                values.update({y.name: None for y in s.body if isinstance(y, Yield)})
            elif isinstance(s, Input):
                values[s.name] = None
            elif isinstance(s, Update):
                self.made(s.value, values, path)
            else:
                result = self.made(s.value, values, path)
        return result

    def assigned(self, body):
        return assigned_in(body)

    def made(self, e, values, path):
        if isinstance(e, Name) and e.name in values:
            return values[e.name]
        if number_of(e, self.known) is not None:
            return NO_DATA
        if isinstance(e, Index):
            return self.index(e, values, path)
        if isinstance(e, Several):
            return [self.made(x, values, path) for x in e.values]
        if not isinstance(e, Call):
            return self.together([self.made(x, values, path) for x in children(e)])
        if e.function == "if":
            return self.made(chosen_of(e, self.known), values, path)
        method = getattr(self, f"call_{e.function}", None)
        if method:
            return method(e, values, path)
        if e.function in self.program.blocks:
            block = self.program.blocks[e.function]
            arguments = {a.name: self.made(x, values, path) for a, x in zip(block.arguments, e.arguments)}
            path = values[f"instance {e.instance}"] if e.is_use else path
            return self.body(block.body, arguments, ".".join([path] * bool(path) + [e.instance or e.function]))
        return self.together([self.made(x, values, path) for x in self.operands(e, values)])

    def operands(self, e, values):
        """The arguments that are no dims, nor dtypes."""
        return [x for x in e.arguments if not isinstance(x, Name) or x.name in values]

    @staticmethod
    def together(parts):
        return None if None in parts else frozenset().union(*parts)

    def index(self, e, values, path):
        if isinstance(e.at, Range):
            return renamed(self.made(e.operand, values, path), e.dim, e.at.part)
        operand, at = self.made(e.operand, values, path), self.made(e.at, values, path)
        if isinstance(e.at, Call) and e.at.function == "iota":
            return renamed(operand, e.dim, e.at.arguments[0].name)
        if number_of(e.at, self.known) is None or isinstance(e.at, Name) and e.at.name in values:
            self.contract(operand, [e.dim])
            self.note(self.kept, operand, self.shared.get((id(e), path), set()) - {e.dim})
        return self.together([without(operand, [e.dim]), at])

    def reduced(self, e, values, path):
        dims = [x.name for x in e.arguments[1:]]
        parts = self.made(e.arguments[0], values, path)
        if "weight" in e.keywords:
            parts = self.together([parts, self.made(e.keywords["weight"], values, path)])
        return without(parts, dims or {n for _, own in parts or () for d in own for n in names_of(d)})

    call_sum = call_mean = call_max = call_min = call_logsumexp = reduced

    def call_iota(self, e, values, path):
        return NO_DATA

    def call_random(self, e, values, path):
        return NO_DATA

    def call_rename(self, e, values, path):
        return renamed(self.made(e.arguments[0], values, path), *e.renaming)

    def call_split(self, e, values, path):
        return folded(self.made(e.arguments[0], values, path), [e.parts[0][0]], e.parts[0][1])

    def call_merge(self, e, values, path):
        return folded(self.made(e.arguments[0], values, path), e.parts[0][1], [e.parts[0][0]])

    def call_conv(self, e, values, path):
        x, w = [self.made(a, values, path) for a in e.arguments[:2]]
        over = [d.name for d in e.arguments[2:]]
        taps = [tap for _, (_, tap) in e.parts]
        self.contract(x, over + [dim for dim, _ in e.parts])
        self.contract(w, over + taps)
        for side in (x, w):
            self.note(self.kept, side, self.shared.get((id(e), path), set()) - set(over + taps))
        for dim, (to, _) in e.parts:
            x = renamed(x, dim, to)
        return self.together([without(x, over), without(w, over + taps)])

    def call_broadcast(self, e, values, path):
        return self.made(e.arguments[0], values, path)

    def call_shift(self, e, values, path):
        x = self.made(e.arguments[0], values, path)
        if number_of(e.arguments[2], self.known) != 0:
            self.contract(x, [e.arguments[1].name])  # its rows are gathered
        return x

    def call_rope(self, e, values, path):
        positions = [self.made(e.keywords["position"], values, path)] if "position" in e.keywords else []
        return self.together([self.made(e.arguments[0], values, path), *positions])

    def call_dot(self, e, values, path):
        sides = [self.made(x, values, path) for x in e.arguments[:2]]
        for side in sides:
            over = [d.name for d in e.arguments[2:]]
            self.contract(side, over)
            if over:  # else it multiplies single elements
                self.note(self.kept, side, self.shared.get((id(e), path), set()) - set(over))
        return self.together([without(side, over) for side in sides])

    def call_solve(self, e, values, path):
        """The inverse of more than two rows is made by products of the triangle with itself."""
        triangle, x = [self.made(a, values, path) for a in e.arguments]
        row, column = e.renaming
        self.contract(triangle, [column] + [row] * (number_of(Name(row), self.known) > 2))
        self.contract(x, [row])
        return self.together([without(triangle, [column]), without(x, [row])])

    def call_add_rows(self, e, values, path):
        x, at = [self.made(a, values, path) for a in e.arguments]
        return self.together([without(x, [e.renaming[0]]), at])

    def call_attend(self, e, values, path):
        q, k, v = [self.made(x, values, path) for x in e.arguments[:3]]
        seq, feature = e.arguments[3].name, e.arguments[4].name
        rows = [seq, *(e.renaming or ())]  # of the values
        for parts, dims in ((q, [feature]), (k, [feature]), (v, rows)):
            self.contract(parts, dims)
        added = [self.made(e.keywords[x], values, path) for x in ("bias", "sinks", "mask") if x in e.keywords]
        return self.together([q, without(k, rows), without(v, rows), *[without(parts, (e.renaming or ())[1:]) for parts in added]])

    def call_concat(self, e, values, path):
        to = e.arguments[0].name
        joined = names_in(self.program.dims[to].size)
        pieces = [self.made(x, values, path) for x in e.arguments[1:]]
        for name in joined:
            pieces = [renamed(parts, name, to) for parts in pieces]
        return self.together(pieces)


def matrices(program, known, shared):
    """Of each parameter, without the numbers of copies: the positions of its dims in `in`, and of those in `out`."""
    walk, found = Walk(program, known, shared), {}
    for name, dims in walk.declared.items():
        inner = sorted(walk.contracted.get(name, ()))
        outer = [at for at in range(len(dims)) if at not in inner and at not in walk.kept.get(name, ())]
        if not outer:
            inner, outer = inner[:1] if len(inner) > 1 else [], inner[1:] or inner
        elif not inner and set(dims) & walk.positions and len(outer) > 1:
            inner, outer = outer[:1], outer[1:]
        found[name] = inner, outer
    return found


def decaying(program, known):
    """The names of parameters, without the numbers of copies."""
    return Walk(program, known).decaying
