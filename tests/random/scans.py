"""Draws scans: along a dim of values that are there, with what is carried from place to place and what is yielded."""
from operations import Operations
from scope import OPEN, Local, Scope, Value, binary, call
from tree import Assign, Index, Name, Number, Scan, TypeOf, Yield

MOST_PLACES_OF_LARGE = 17


class Scans(Operations):
    """For one scope."""

    def scan(self):
        """While its body is drawn, nobody knows of the dim: tensors in it do not have it."""
        values = [x for x in self.scope.all() if x.name not in self.state.entropies]
        dims = sorted({d for x in values for d in x.dims if d != "batch" and d in self.state.sizes and not self.state.padded[d]})
        if self.state.large:  # PyTorch takes its time for each place
            dims = [d for d in dims if self.size(d) <= MOST_PLACES_OF_LARGE]
        if not dims or any(OPEN in x.dims for x in self.scope.all()):
            return None
        dim, hidden = self.draw.choice(dims), dict(self.state.sizes)
        read = [x for x in values if dim in x.dims and self.state.fits(x.dims)]
        if not read:
            return None
        names = [self.begin(dim, self.draw.choice(read)) for _ in range(self.draw.choice([1, 1, 2]))]
        del self.state.sizes[dim]
        self.state.scanned.append(dim)
        try:
            inner = self.places(dim, names)
        finally:
            self.state.scanned.pop()
            self.state.sizes = {d: size for d, size in (hidden | self.state.sizes).items()}
        if inner is None:
            return None
        if self.draw.random() < 0.3:
            self.switch(inner, names[0])
        self.scope.body.append(Scan(dim, inner.scope.body, self.draw.random() < 0.3))
        self.leave(dim, names, inner)
        return names

    def begin(self, dim, like):
        """What is carried: a number in all elements, or what a value is at one place."""
        name, dims = self.state.fresh("h"), like.dims - {dim}
        if self.draw.random() < 0.6:
            self.scope.body.append(Assign(name, Number(self.draw.choice(["0", "0.0", "0.5"])), TypeOf(self.scope.some(dims, len(dims)))))
        else:
            self.scope.body.append(Assign(name, Index(self.scope.read(like).expression, dim, Number("0"))))
        self.scope.locals[name] = Local(name, dims, optional=True)
        return name

    def places(self, dim, names):
        """The scope of the body; None if nothing can be carried."""
        inner = type(self)(Scope(self.state, self.scope))
        for name, local in list(inner.scope.locals.items()):
            if name in self.state.entropies:  # a mean of it would count labels
                del inner.scope.locals[name]
            elif dim in local.dims:
                inner.scope.locals[name] = Local(name, local.dims - {dim}, local.kind, local.scale, optional=True)
        for name in names:
            inner.enter(self.scope.locals[name])
        inner.entered = [inner.scope.locals[name] for name in names]
        inner.draw_statements(self.draw.choice([0, 0, 1, 2, 3]))
        if not inner.turn(names):
            return None
        inner.yields = [inner.yielded(name) for name in names[:self.draw.choice([1, 1, 2])]]
        if self.draw.random() < 0.3:
            inner.yields.append(inner.yielded(self.draw.choice([x.name for x in inner.scope.all()])))
        return inner

    def switch(self, inner, name):
        """A bool or a whole number that is carried, too, and on which the value depends."""
        carried, is_bool = self.state.fresh("s"), self.draw.random() < 0.5
        dims = self.scope.locals[name].dims if is_bool else ()
        stated = TypeOf(self.scope.some(dims, len(dims)), "bool" if is_bool else "i32")
        self.scope.body.append(Assign(carried, Number(self.draw.choice(["0", "1"])), stated))
        if is_bool:
            value = call("where", carried, name, binary("*", name, 0.5))
            then = call(self.draw.choice(["maximum", "minimum"]), carried, binary(">", name, 0.137))
        else:
            value = binary("*", name, call("cos", binary("*", call("cast", carried, "f32"), 0.3)))
            then = binary("+", carried, 1)
        inner.scope.body += [Assign(name, value), Assign(carried, then)]

    def yielded(self, name):
        """The value, or what an operation makes of it."""
        value = self.scope.read(self.scope.locals[name])
        if self.is_entropy(value.expression):
            value = Value(binary("*", value.expression, 1.0), value.dims, "f32", value.scale)
        if self.draw.random() < 0.4:
            value = Value(call("tanh", value.expression), value.dims)
        yielded = Local(self.state.fresh("y"), value.dims, "f32", value.scale)
        self.scope.body.append(Yield(yielded.name, value.expression))
        return yielded

    def leave(self, dim, names, inner):
        """Outside, the carried values are those of the last place, and what is yielded has the dim."""
        for name, was in zip(names, inner.entered):
            self.scope.locals[name] = Local(name, self.scope.locals[name].dims, scale=2.0, optional=was.reads > 0)
            self.scope.own.add(name)
        for name, local in self.scope.locals.items():
            if dim in local.dims and name in inner.scope.locals:
                local.reads += inner.scope.locals[name].reads
        for y in inner.yields:
            self.scope.locals[y.name] = Local(y.name, y.dims | {dim}, "f32", y.scale)
            self.scope.own.add(y.name)
        for name in self.state.entropies.intersection(names):
            self.scope.assign(name, Value(binary("*", Name(name), 1.0), self.scope.locals[name].dims)).optional = True
