"""Draws statements: assignments, repeats and scans with what they carry, calls of blocks with the blocks themselves, and the value
in which everything that nobody has read comes together."""
import copy
import math
from dataclasses import dataclass

from blocks import General, generalise, other_dims, other_numbers
from scans import Scans
from scope import OPEN, Scope, Value, binary, call
from tree import Argument, Assign, Block, Call, Name, Number, Repeat, Return, Several, TypeOf

MOST_DEPTH = 3


class Statements(Scans):
    """For one scope."""

    def draw_statements(self, count):
        for _ in range(count):
            ways = [(self.operation, 12), (self.alias, 1.5), (self.embedding, 2), (self.whole, 0.7), (self.decision, 0.5)]
            if self.scope.depth < MOST_DEPTH:
                ways += [(self.repeat, 2), (self.scan, 1.5), (self.block_call, 2.5)]
            ways, weights = zip(*ways)
            self.scope.attempt(self.draw.choices(ways, weights)[0])

    # --- Assignments -------------------------------------------------------------------------------------------------

    def operation(self):
        """One to three operations on a value that is there, as one expression."""
        local = self.scope.pick(self.scope.all())
        if local is None:
            return None
        value = self.scope.read(local)
        for _ in range(self.draw.choice([1, 1, 2, 3])):
            value = self.tamed(self.draw_operation(value) or value)
        return None if isinstance(value.expression, Name) else self.keep(value)

    def tamed(self, value):
        """Brought back to numbers of order one where it may have grown."""
        if value.kind != "f32" or value.scale < 6:
            return value
        if self.draw.random() < 0.5:
            return Value(call("tanh", value.expression), value.dims, "f32", 1.0)
        return Value(binary("*", value.expression, float(f"{1 / value.scale:.2g}")), value.dims, "f32", 1.0)

    def keep(self, value):
        """Under a new name, or that of a value that has been read; with its type stated, or not."""
        own = [name for name in self.scope.own if self.scope.locals[name].reads or self.scope.locals[name].optional]
        name = self.draw.choice(sorted(own)) if own and self.draw.random() < 0.25 else self.state.fresh("v")
        stated = None
        if OPEN not in value.dims and self.draw.random() < 0.15 and not self.is_entropy(value.expression):
            stated = TypeOf(self.scope.some(value.dims, len(value.dims)), None if value.kind == "f32" else value.kind)
        return self.scope.assign(name, value, stated)

    def is_entropy(self, expression):
        """Its mean counts labels; in another order it would be another value."""
        return self.state.is_entropy(expression)

    def alias(self):
        local = self.scope.pick(self.scope.all())
        return local and self.scope.assign(self.state.fresh("v"), self.scope.read(local))

    def embedding(self):
        """A value beside those there are: rows of a parameter, by tokens or by a computed index."""
        known = [d for d in self.state.sizes if d not in self.forbidden()]
        value = self.gathered(frozenset(self.scope.some(known, 1, 3)))
        return self.scope.assign(self.state.fresh("v"), value) if value and self.state.fits(value.dims) else None

    def whole(self):
        """Whole numbers, to index or to compare with."""
        dims = frozenset(self.scope.some([d for d in self.state.sizes if d not in self.forbidden()], 1, 2))
        value = self.index(dims, self.draw.randint(2, 8))
        return value and self.scope.assign(self.state.fresh("i"), value)

    def decision(self):
        local = self.scope.pick(self.scope.all())
        value = local and self.condition(local.dims)
        if value is None or isinstance(value.expression, Name) or not value.dims:
            return None
        return self.scope.assign(self.state.fresh("b"), value)

    # --- Everything that is left -------------------------------------------------------------------------------------

    def as_float(self, local):
        value = self.scope.read(local)
        if local.kind == "f32":
            return value
        if local.kind == "bool" and self.draw.random() < 0.5:
            return Value(call("where", value.expression, 0.5, 1.5), value.dims)
        return Value(binary("*", call("cast", value.expression, "f32"), 0.2), value.dims)

    def long_chain(self, count):
        """What a user writes who does not know of `repeat`."""
        value = self.scope.pick(self.scope.all())
        for _ in range(count):
            read = self.scope.read(value)
            term = Value(call("tanh", binary("*", read.expression, self.scope.param([], 0.5).expression)), read.dims)
            total = binary("+", read.expression, binary("*", term.expression, 0.1))
            value = self.scope.assign(self.state.fresh("v"), Value(total, read.dims))

    # --- Repeats -----------------------------------------------------------------------------------------------------

    def repeat(self):
        """Of one to four values, in each turn made of themselves, of each other, and of values from outside."""
        candidates = [x for x in self.scope.all() if x.name in self.scope.own and self.state.fits(x.dims)]
        if not candidates:
            return None
        carried = self.draw.sample(candidates, min(self.draw.choice([1, 1, 2, 2, 3, 4]), len(candidates)))
        if len(carried) < 3 and self.draw.random() < 0.5:
            twin = self.scope.assign(self.state.fresh("v"), self.scope.read(self.draw.choice(carried)))
            carried.append(twin)
        inner = type(self)(Scope(self.state, self.scope))
        names = [local.name for local in carried]
        for local in carried:
            local.reads += 1
            inner.enter(local)
        reads_before = {name: inner.scope.locals[name] for name in names}
        if self.draw.random() < 0.35:
            inner.scope.attempt(inner.layer, self.draw.choice(names))
        inner.draw_statements(self.draw.choice([0, 0, 1, 2, 3]))
        if self.draw.random() < 0.3:
            inner.scope.attempt(inner.block_call)
        if not inner.turn(names):
            return None
        for name in names:
            left = self.scope.locals.pop(name)
            again = self.scope.locals[name] = type(left)(name, left.dims, left.kind, max(1.0, left.scale))
            again.optional = reads_before[name].reads > 0
        if self.draw.random() < 0.15:
            self.count_turns(inner.scope, self.draw.choice(names))
        number = None
        if self.scope.depth == 0 and self.draw.random() < 0.3:
            number = self.number_copies(inner.scope, self.draw.choice(names))
        self.scope.body.append(Repeat(Number(str(self.draw.choice([1, 2, 2, 3, 4, 5, 6]))), inner.scope.body, number))
        for name in self.state.entropies.intersection(names):  # a mean would count labels that the body may have made
            again = self.scope.assign(name, Value(binary("*", name, 1.0), self.scope.locals[name].dims))
            again.optional = True
        if self.scope.depth == 0 and self.draw.random() < 0.25:  # one after the other, as an encoder and a decoder
            self.scope.attempt(self.repeat)
        return names

    def layer(self, name):
        """A carried value and what two products make of it, to another dim and back, as the layers of most models have it."""
        old = self.scope.locals[name]
        own, others = sorted(old.dims - {OPEN, "batch"}), self.new_dims(old.dims | self.forbidden(), 1)
        if old.kind != "f32" or not own or not others:
            return None
        over, other = self.draw.choice(own), others[0]
        up = self.scope.param([over, other], 1 / math.sqrt(self.size(over)))
        down = self.scope.param([over, other], 0.5 / math.sqrt(self.size(other)))
        x = self.scope.read(old)
        inside = call(self.draw.choice(["gelu", "relu", "tanh", "silu"]), call("dot", x.expression, up.expression, over))
        total = binary("+", x.expression, call("dot", inside, down.expression, other))
        self.scope.assign(name, Value(total, old.dims, "f32", old.scale + 0.5)).optional = True
        self.scope.own.discard(name)  # what is carried keeps its type
        return name

    def count_turns(self, inner, name):
        """The value depends on the number of the turn, which is carried: as a number, or as a whole one."""
        counter, is_whole = self.state.fresh("n"), self.draw.random() < 0.5
        self.scope.body.append(Assign(counter, Number("0"), TypeOf([], "i32") if is_whole else None))
        turn = call("cast", counter, "f32") if is_whole else counter
        inner.body.append(Assign(name, binary("*", name, call("cos", binary("*", turn, 0.3)))))
        inner.body.append(Assign(counter, binary("+", counter, 1)))

    def number_copies(self, inner, name):
        """The value depends on the number of the copy, known at compile time: in turns, or from a copy on."""
        number, size = self.state.fresh("i"), self.draw.choice([1, 2, 2, 3])
        turn = self.draw.choice([binary("==", binary("%", number, size + 1), self.draw.randint(0, size)), binary("<", number, size)])
        value = self.draw.choice([binary("*", name, call("if", turn, 0.9, -0.7)),
                                  call("if", turn, call("tanh", name), binary("*", name, 0.8)),
                                  binary("*", name, call("cos", binary("*", 0.3, binary("%", number, size + 1))))])
        inner.body.append(Assign(name, value))
        for several in [s for s in inner.body if isinstance(s, Assign) and s.more and isinstance(s.value, Call) and s.value.function != "top_k"]:
            if self.draw.random() < 0.5:  # some copies call it under another name, with other parameters
                other = copy.deepcopy(several.value)
                other.instance = self.state.fresh("c")
                several.value = call("if", turn, *self.draw.sample([several.value, other], 2))
        return number

    def enter(self, local):
        """Inside of the turn the value is what the turn before has left."""
        self.scope.locals[local.name] = type(local)(local.name, local.dims, local.kind, local.scale, optional=True)

    def turn(self, names):
        """Assigns each carried name; the last of them takes what nobody has read."""
        order = self.draw.sample(names, len(names))
        if len(names) > 1 and self.draw.random() < 0.3 and self.swap(order):
            order = order[2:] or (order[1:] if self.scope.unread() else [])
        for name in order:
            is_last = name == order[-1]
            old = self.scope.locals[name]
            value = self.next_of(old)
            if is_last:
                value = self.absorb(value, old.dims)
            if value is None:
                return False
            self.scope.assign(name, self.bounded(value))
            self.scope.locals[name].optional = True
        return True

    def swap(self, order):
        a, b = order[0], order[1]
        if self.scope.locals[a].dims != self.scope.locals[b].dims:
            return False
        kept = self.scope.assign(self.state.fresh("v"), self.scope.read(self.scope.locals[a]))
        self.scope.assign(a, self.scope.read(self.scope.locals[b])).optional = True
        self.scope.assign(b, self.scope.read(kept)).optional = True
        return True

    def next_of(self, old):
        """A value of the same type: of the old one, or of others alone."""
        way = self.draw.random()
        if way < 0.25:
            other = self.scope.attempt(self.local_exactly, old.dims)
            if other:
                return other
        if way < 0.45:
            other = self.scope.attempt(self.exactly, old.dims)
            if other:
                return other
        if way < 0.55:
            more = self.scope.pick([x for x in self.scope.all() if x.dims > old.dims and "batch" not in x.dims - old.dims and
                                    self.removable(x.dims - old.dims)])
            if more:
                term = call("sum", self.scope.read(more).expression, *sorted(more.dims - old.dims))
                return Value(binary("+", self.scope.read(old).expression, term), old.dims, "f32", old.scale)
        value = self.scope.read(old)
        for _ in range(self.draw.choice([1, 2])):
            changed = self.scope.attempt(self.draw.choice([self.unary, self.guarded, self.arithmetic, self.choice]), value)
            value = changed or value
        return value

    def absorb(self, value, dims):
        """The value, of these dims, and all that nobody has read added to it; None if that would mix sequences."""
        for local in self.scope.unread():
            part = self.as_float(local)
            if not self.removable(part.dims - dims):
                return None
            part = self.without(part, part.dims - dims)
            value = Value(binary("+", value.expression, part.expression), dims, "f32", value.scale + part.scale)
        return value

    def bounded(self, value):
        """Turns multiply what grows."""
        if isinstance(value.expression, Name) or value.scale < 1.5:
            return value
        if self.draw.random() < 0.5:
            return Value(call("tanh", value.expression), value.dims)
        return Value(binary("*", value.expression, float(f"{1 / value.scale:.2g}")), value.dims)

    # --- Blocks ------------------------------------------------------------------------------------------------------

    def block_call(self):
        """A call of a block that is there, or of a new one; alone, or as a term beside a value."""
        made = None
        known = [block for block in self.state.blocks if block.scanned == self.state.scanned]
        if known and self.draw.random() < 0.5:
            made = self.scope.attempt(self.call_of, self.draw.choice(known))
        made = made or self.new_block()
        if made is None:
            return None
        if self.draw.random() < 0.3:
            other = self.scope.pick([x for x in self.scope.all() if x.dims == made.dims])
            if other:
                made = Value(binary("+", self.scope.read(other).expression, made.expression), made.dims)
        return self.scope.assign(self.state.fresh("v"), self.tamed(made))

    def instance(self, name):
        """The name after `as`, or None where the block's own will do."""
        if name not in self.scope.instances and self.draw.random() < 0.3:
            self.scope.instances.add(name)
            return None
        instance = self.state.fresh("c")
        self.scope.instances.add(instance)
        return instance

    def call_of(self, block):
        """A call with arguments of the types that the block wants."""
        arguments, rest = [], frozenset()
        is_open = any(OPEN in wanted.dims for wanted in block.arguments)
        given = other_dims(self.draw, self.state, block.general, self.forbidden()) if not is_open else \
            {d: d for d in block.general.dims}
        for wanted in block.arguments:
            if OPEN in wanted.dims:
                known = wanted.dims - {OPEN}
                local = self.scope.pick([x for x in self.scope.all() if known <= x.dims and not has_twin(x.dims - known)])
                if local is None:
                    return None
                rest = local.dims - known
                arguments.append(self.scope.read(local).expression)
            else:
                dims = frozenset(given.get(d, d) for d in wanted.dims)
                value = self.scope.attempt(self.exactly, dims) if wanted.kind == "f32" else self.index(dims, 4)
                if value is None:
                    return None
                arguments.append(value.expression)
        if block.general.averages and any(self.is_entropy(e) for e in arguments):  # perhaps of some copies only
            return None
        dims = frozenset(given.get(d, d) for d in with_rest(block.result.dims, rest))
        arguments += other_numbers(self.draw, block.general)
        return self.called(block, list(given.values()), arguments, dims)

    def called(self, block, dims, arguments, result):
        """The value of the call; of several, their sum."""
        expression = Call(block.name, arguments, {}, None, self.instance(block.name), dims)
        if block.is_several:
            names = [self.state.fresh("v"), self.state.fresh("v")]
            self.scope.body.append(Assign(names[0], expression, None, names[1:]))
            expression = binary("+", names[0], binary("*", names[1], 0.5))
        return Value(expression, result, "f32", block.result.scale + block.is_several)

    def new_block(self):
        name = self.state.fresh("block")
        is_open = self.draw.random() < 0.3 and not self.forbidden()
        known = [x for x in self.scope.all() if not self.is_entropy(Name(x.name))]
        chosen = self.draw.sample(known, min(self.draw.choice([1, 1, 2, 3]), len(known)))
        chosen = chosen[:1] if is_open else [x for x in chosen if OPEN not in x.dims]
        if not is_open and self.draw.random() < 0.25:
            chosen += self.draw.sample(self.scope.all("i32"), min(1, len(self.scope.all("i32"))))
        if not any(x.kind == "f32" for x in chosen):
            return None
        if is_open and (not chosen[0].dims - {"batch"} or has_twin(chosen[0].dims)):
            return None
        body = type(self)(Scope(self.state))
        body.scope.depth = self.scope.depth + 1
        arguments = [body.argument(x, is_open) for x in chosen]
        body.draw_statements(self.draw.randint(1, 4))
        result = body.result()
        if result is None:
            return None
        types = [body.types[a.name] for a in arguments]
        also = body.second_result(result)
        returned = Several([result.expression, also.expression]) if also else result.expression
        declared = Block(name, arguments, body.scope.params + body.scope.body + [Return(returned)])
        general = generalise(self.draw, self.state, declared)
        block = DrawnBlock(name, types, result, general, also is not None, list(self.state.scanned))
        self.state.blocks.append(block)
        self.state.declarations.append(declared)
        if self.is_entropy(returned):
            self.state.entropies.add(name)
        values = [self.scope.read(x) for x in chosen]
        rest = chosen[0].dims - block.arguments[0].dims if is_open else frozenset()
        return self.called(block, list(block.general.dims), [v.expression for v in values] + block.general.numbers,
                           with_rest(result.dims, rest))

    def argument(self, local, is_open):
        """Declares an argument like this value; an open one knows only some of its dims."""
        name = self.state.fresh("a")
        dims = local.dims
        if is_open:
            known = self.scope.some(dims - {OPEN, "batch"}, 1, 2)
            dims = frozenset(known) | {OPEN}
        self.types = getattr(self, "types", {})
        declared = self.types[name] = type(local)(name, dims, local.kind, local.scale)
        self.scope.locals[name] = type(local)(name, dims, local.kind, local.scale)
        self.scope.own.add(name)
        order = self.scope.some(dims - {OPEN}, len(dims - {OPEN}))
        return Argument(name, TypeOf(order, None if declared.kind == "f32" else declared.kind, is_open))

    def result(self):
        """What the block returns: its richest unread value, and all others with it."""
        floats = [x for x in self.scope.unread() if x.kind == "f32"] or self.scope.all()
        main = max(floats, key=lambda x: (OPEN in x.dims, "batch" in x.dims, len(x.dims)))
        value = self.scope.read(main)
        return self.absorb(value, main.dims)


    def second_result(self, result):
        """In some blocks, another value that it returns: one that can be added to the first."""
        fitting = [x for x in self.scope.all() if x.dims <= result.dims and not self.is_entropy(Name(x.name))]
        return self.scope.read(self.scope.pick(fitting)) if fitting and self.draw.random() < 0.2 else None


@dataclass
class DrawnBlock:
    """A block that may be called again."""
    name: str
    arguments: list
    result: Value
    general: General
    is_several: bool
    scanned: list  # the dims of the scans in which it is called


def with_rest(dims, rest):
    """The dims of an open block's result, where `rest` are those that the block does not know."""
    return (dims - {OPEN}) | rest if OPEN in dims else dims


def has_twin(dims):
    """Inside of an open block a twin stands for the dim of which it is one."""
    return any(dim.endswith("_t") for dim in dims)
