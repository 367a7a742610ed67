"""Computes the loss of a program in PyTorch, from the tree: whole batches, parameters under their full names."""
import functools
import math
from dataclasses import dataclass, replace

import torch

import philox
import routing
import tensors
from constants import chosen_of, flag_of, fold, names_in, number_of
from tensors import Tensor, Wrong
from prune import assigned_in
from tree import (Assign, Binary, Index, Input, Loss, Mean, Name, Named, Negation, Output, Param, Range, Repeat, Return, Scan, Several, Update,
                  Yield)

REDUCTIONS = {"sum": tensors.summed, "mean": tensors.mean,
              "max": lambda x, dims: tensors.extreme(x, dims, 1), "min": lambda x, dims: tensors.extreme(x, dims, -1)}


@dataclass
class Place:
    """Where in the model a statement is computed: the path of its instance, the copies of the repeats around it within
    that instance, the key of dropout, of the scans around it: dim and number of the place, and of the innermost repeat: the
    number of the copy, and how many there are; whether its weights are constants; in an instance of means: its name,
    that of the other one, and the share of the old mean."""
    path: str
    copies: tuple
    key: int
    scanned: tuple = ()
    turn: tuple = (0, 1)
    frozen: bool = False
    mean: tuple = None


class Evaluation:
    """One computation of the loss.  `parameter(name, param, sizes)` gives the tensor of a full name; inputs maps names to
    their tokens, batch is their number of sequences."""

    def __init__(self, program, known, batch, inputs, parameter, key=0, rounding=tensors.EXACT, dtype=torch.float64,
                 drops=True):
        self.program, self.known, self.blocks = program, dict(known), program.blocks
        self.batch_dim, self.inputs, self.parameter = program.batch_dim, inputs, parameter
        self.rounding, self.dtype, self.key, self.drops = rounding, dtype, key, drops
        self.sizes = {d: known.get(d, batch) for d in program.dims}
        self.updated = {}  # the states after the step, of updates over the whole batch
        self.means = {}  # full name: (that of which it is a running mean, the share of the old mean)
        self.states, self.last = set(), []  # full names; updates of parameters, which follow the optimizer
        self.instances, self.next_dropout, self.slots = {}, 0, set()
        self.first_slots = {}  # of the present round, of a dim of slots
        self.shared = {}  # a dot and the instance of its block: the dims of both of its operands
        self.largest = 0.0  # of all values; infinite also where one is no number
        self.elements = 0  # of the largest tensor
        self.outputs = {}  # name: what the records have
        self.predicted = []  # (labels, logits, dim) where the labels are an input, outside of repeats and scans
        self.fits = {}  # input: the smallest dim that its tokens index

    def loss(self, values=None):
        """`values` gets those of the model."""
        place = Place("", (), self.key)
        result = self.body(self.program.model.body, {} if values is None else values, place)
        if not isinstance(result, Tensor) or result.dims:
            raise Wrong("the loss is no number")
        return result.data

    # --- Statements --------------------------------------------------------------------------------------------------

    def body(self, body, values, place):
        """Runs statements in the scope `values`; gives what a return or a loss says."""
        result = None
        for statement in body:
            if isinstance(statement, Assign) and statement.more:
                values.update(zip(statement.names, self.several(statement.value, values, place)))
            elif isinstance(statement, Assign):
                values[statement.name] = self.assigned(statement, values, place)
            elif isinstance(statement, Named):
                values[f"instance {statement.name}"] = place
            elif isinstance(statement, Mean):
                paths = [self.path_of(name, place) for name in (statement.name, statement.of)]
                values[f"instance {statement.name}"] = replace(place, mean=(*paths, number_of(statement.share, self.known)))
            elif isinstance(statement, Update) and not place.frozen:
                full, before = values[f"full {statement.name}"], values[statement.name]
                if full in self.states:
                    self.updated[full] = self.tensor(statement.value, values, place).ordered(before.dims).data.detach()
                else:
                    self.last.append((full, statement.value, dict(values), place, before.dims))
            elif isinstance(statement, Param):
                self.parameters(statement, values, place)
            elif isinstance(statement, Repeat):
                self.repeat(statement, values, place)
            elif isinstance(statement, Scan):
                self.scan(statement, values, place)
            elif isinstance(statement, Yield):
                values["yield", statement.name] = self.tensor(statement.value, values, place)
            elif isinstance(statement, Input):
                data = self.inputs[statement.name]
                values[statement.name] = Tensor(data.to(self.dtype) if data.dtype.is_floating_point else data,
                                                tuple(statement.type.dims), frozenset([statement.name]))
            elif isinstance(statement, Output):
                value = values[statement.name] = self.as_tensor(self.assigned(statement, values, place))
                self.outputs[statement.name] = value.ordered((self.batch_dim, *(d for d in value.dims if d != self.batch_dim))).data.detach()
            elif isinstance(statement, Return) and isinstance(statement.value, Several):
                result = [self.tensor(e, values, place) for e in statement.value.values]
            elif isinstance(statement, (Return, Loss)):
                result = self.tensor(statement.value, values, place)
        return result

    def several(self, e, values, place):
        """What a block returns; or the elements that top_k takes, and where they are."""
        if e.function == "if":
            return self.several(chosen_of(e, self.known), values, place)
        if e.function in self.blocks:
            return self.instance(e, values, place)
        x, chosen = [self.tensor(part, values, place) for part in (e.arguments[0], e)]
        return self.rounded(tensors.pick(x, e.arguments[1].name, chosen, self.batch_dim)), chosen

    def assigned(self, statement, values, place):
        value = self.expression(statement.value, values, place)
        if statement.type is None:
            return value
        if not isinstance(value, Tensor):  # in all elements
            data = self.as_tensor(value, statement.type.dtype).data
            return Tensor(data.expand([self.sizes[d] for d in statement.type.dims]), tuple(statement.type.dims))
        value = self.as_tensor(value, statement.type.dtype)
        if set(value.dims) != set(statement.type.dims):
            raise Wrong(f"{statement.name} is declared as {statement.type.dims}, but it is {value.dims}")
        return value.ordered(tuple(statement.type.dims))

    def parameters(self, statement, values, place):
        for name in statement.names:
            full = self.full_name(name, place)
            sizes = [self.sizes[d] for d in statement.type.dims]
            like = None
            if place.mean:
                own, other, share = place.mean
                like = other + full[len(own):]
                self.means[full] = like, share
            declared = replace(statement, frozen=statement.frozen or place.frozen, like=like)
            data = self.parameter(full, declared, sizes).to(self.dtype)
            data = data.detach() if statement.state or place.frozen else self.rounding(data)
            data.is_parameter = True
            values[name], values[f"full {name}"] = Tensor(data, tuple(statement.type.dims)), full
            self.states |= {full} if statement.state and not like else set()
            for dim, at in place.scanned:
                values[name] = self.at_place(values[name], dim, at)

    def ruled(self, weights):
        """What the updates of parameters make of them, where `weights` are those that the optimizer leaves, and states
        after the step."""
        made = {}
        for full, value, values, place, dims in self.last:
            known = {name: Tensor(weights[values[f"full {name}"]].detach(), x.dims) for name, x in values.items()
                     if f"full {name}" in values}
            made[full] = self.tensor(value, known, place).ordered(dims).data
        return made

    @staticmethod
    def full_name(name, place):
        return f"{place.path}.{name}" if place.path else name

    def repeat(self, statement, values, place):
        outside = set(values)
        for name in outside & assigned_in(statement.body):  # a number that is carried is a tensor
            values[name] = self.as_tensor(values[name])
        key, first, last = place.key, self.next_dropout, self.next_dropout
        count = int(number_of(statement.count, self.known))
        for copy in range(count):
            self.known[statement.number] = copy
            self.next_dropout = first  # all copies are one instance of dropout: their keys differ
            inner = dict(values)
            self.body(statement.body, inner,
                      replace(place, copies=place.copies + (copy,), key=philox.copy_key(key, copy), turn=(copy, count)))
            last = self.next_dropout
            values.update({name: self.handed_on(inner[name], values[name]) for name in outside})
        self.next_dropout = last

    @staticmethod
    def at_place(value, dim, at):
        if not isinstance(value, Tensor) or dim not in value.dims:
            return value
        ignored = None if value.ignored is None else value.ignored.select(value.dims.index(dim), at)
        return Tensor(value.data.select(value.dims.index(dim), at), tuple(d for d in value.dims if d != dim), value.fed_by, ignored)

    def scan(self, statement, values, place):
        """Place by place along the dim; what it yields has the dim, as the first one."""
        carried = set(values) & assigned_in(statement.body)
        for name in carried:
            values[name] = self.as_tensor(values[name])
            if statement.dim in values[name].dims:
                raise Wrong(f"{name} is carried along {statement.dim}")
        places, found, first = range(self.sizes[statement.dim]), {}, self.next_dropout
        for at in reversed(places) if statement.reverse else places:
            self.next_dropout = first
            inner = {name: self.at_place(value, statement.dim, at) for name, value in values.items()}
            self.body(statement.body, inner, replace(place, key=philox.copy_key(place.key, at),
                                                     scanned=(*place.scanned, (statement.dim, at))))
            values.update({name: self.handed_on(inner[name], values[name]) for name in carried})
            found[at] = {name[1]: value for name, value in inner.items() if isinstance(name, tuple)}
        for name in found[0]:
            pieces = [found[at][name] for at in places]
            values[name] = Tensor(torch.stack([p.ordered(pieces[0].dims).data for p in pieces]), (statement.dim, *pieces[0].dims))

    @staticmethod
    def handed_on(value, before):
        """What a turn leaves, in the order of dims of what it got: dropout counts by it."""
        if value is before:
            return value
        both = isinstance(value, Tensor) and isinstance(before, Tensor)
        return value.ordered(before.dims) if both and set(value.dims) == set(before.dims) else value

    # --- Expressions -------------------------------------------------------------------------------------------------

    def as_tensor(self, value, dtype=None):
        """A number as a tensor without dims."""
        if isinstance(value, Tensor):
            return value
        if dtype == "i32" and value != int(value):
            raise Wrong(f"{value} is no whole number")
        kinds = {"i32": torch.int64, "bool": torch.bool}
        return Tensor(torch.tensor(value, dtype=kinds.get(dtype, self.dtype)), ())

    def tensor(self, expression, values, place):
        return self.as_tensor(self.expression(expression, values, place))

    def expression(self, e, values, place):
        if not self.shadows(e, values):
            number = number_of(e, self.known)
            if number is not None:
                return number
        if isinstance(e, Name):
            if e.name not in values:
                raise Wrong(f"nothing is named {e.name}")
            return self.used(values[e.name])
        if isinstance(e, Negation):
            operand = self.expression(e.operand, values, place)
            return tensors.wrapped(Tensor(-operand.data, operand.dims)) if isinstance(operand, Tensor) else -operand
        if isinstance(e, Binary):
            operands = [self.expression(x, values, place) for x in (e.left, e.right)]
            return self.rounded(self.combine(e.sign, *operands))
        if isinstance(e, Index):
            return self.rounded(self.index(e, values, place))
        if e.function == "if":
            return self.expression(chosen_of(e, self.known), values, place)
        return self.call(e, values, place)

    def used(self, x):
        """Gradients of a parameter, of which all uses are added up in f32, are as they are."""
        if not isinstance(x, Tensor) or getattr(x.data, "is_parameter", False):
            return x
        if getattr(x.data, "is_used", False):
            return replace(x, data=self.rounding.of_later_use(x.data))
        x.data.is_used = True
        return x

    def shadows(self, e, values):
        return isinstance(e, Name) and e.name in values

    def rounded(self, x):
        """Results of the same type keep what they are known as."""
        if isinstance(x, Tensor) and x.kind == "f32":
            if x.data.numel():
                self.largest = max(self.largest, float(x.data.detach().abs().nan_to_num(math.inf).max()))
                self.elements = max(self.elements, x.data.numel())
            return Tensor(self.rounding(x.data), x.dims, x.fed_by, x.ignored)
        return x

    def combine(self, sign, a, b):
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return fold(sign, a, b)
        a, b = self.unified(a, b)
        table = tensors.LOGICAL if a.kind == "bool" and b.kind == "bool" else tensors.BINARY
        return tensors.wrapped(tensors.pointwise(table[sign], a, b))

    def unified(self, a, b):
        """Numbers take the type of what they meet, and bools become 0 and 1 beside numbers."""
        kinds = [x.kind if isinstance(x, Tensor) else None for x in (a, b)]
        if None in kinds:
            other = kinds[1 - kinds.index(None)]
            number = a if kinds[0] is None else b
            common = ("f32" if isinstance(number, float) else "i32") if other == "bool" else other or "f32"
        else:
            common = kinds[0] if kinds[0] == kinds[1] else "f32" if "f32" in kinds else "i32"
            if set(kinds) == {"f32", "i32"}:
                raise Wrong("i32 and floating-point tensors do not mix")
        return self.cast(self.as_tensor(a, common), common), self.cast(self.as_tensor(b, common), common)

    def cast(self, x, kind):
        if x.kind == kind:
            return x
        if kind == "bool":
            return Tensor(x.data != 0, x.dims)
        if kind == "i32":
            whole = x.data.detach().nan_to_num(0).clamp(-(2**31), 2**31 - 1).trunc() if x.kind == "f32" else x.data
            return Tensor(whole.long(), x.dims)
        return Tensor(x.data.to(self.dtype), x.dims)

    def index(self, e, values, place):
        operand = self.expression(e.operand, values, place)
        if isinstance(e.at, Range):
            return tensors.part_of(operand, e.dim, *[number_of(x, self.known) for x in (e.at.first, e.at.end)], e.at.part)
        at = self.expression(e.at, values, place)
        if not isinstance(at, Tensor):
            result = tensors.slice_of(operand, e.dim, at)
        else:
            self.note_fit(at, operand.size(e.dim))
            shared = self.note_shared(e, place, at, operand) - {e.dim}
            result = tensors.pick(operand, e.dim, at, self.batch_dim) if shared else tensors.take(operand, e.dim, at)
        result.fed_by = operand.fed_by
        return result

    def note_shared(self, e, place, a, b):
        path = ".".join(part for part in place.path.split(".") if not part.isdigit())
        self.shared[id(e), path] = set(a.dims) & set(b.dims)
        return self.shared[id(e), path]

    def note_fit(self, at, size):
        for name in at.fed_by:
            self.fits[name] = min(size, self.fits.get(name, size))

    # --- Calls -------------------------------------------------------------------------------------------------------

    def call(self, e, values, place):
        if e.function in self.blocks:
            return self.instance(e, values, place)
        method = getattr(self, f"call_{e.function}", None)
        if method:
            return self.rounded(method(e, values, place))
        if e.function in tensors.UNARY:
            x = self.expression(e.arguments[0], values, place)
            if not isinstance(x, Tensor):
                return float(tensors.unary(e.function, torch.tensor(float(x), dtype=torch.float64), tensors.EXACT))
            return self.rounded(Tensor(tensors.unary(e.function, x.data, self.rounding), x.dims))
        if e.function in REDUCTIONS:
            x = self.tensor(e.arguments[0], values, place)
            dims = [d.name for d in e.arguments[1:]] or list(x.dims)
            if "weight" in e.keywords:
                return self.weighted(x, self.as_tensor(self.expression(e.keywords["weight"], values, place), "f32"), dims)
            return self.rounded(self.summed_in_f32(e.function, tensors.wrapped(REDUCTIONS[e.function](x, dims)), x, dims))
        if e.function in ("maximum", "minimum"):
            return self.rounded(self.combine(e.function, *[self.expression(x, values, place) for x in e.arguments]))
        raise Wrong(f"no function is named {e.function}")

    def summed_in_f32(self, function, result, x, dims):
        if function not in ("sum", "mean") or x.kind != "f32" or self.rounding.draw is None:
            return result
        size = REDUCTIONS[function](Tensor(x.data.detach().abs(), x.dims, ignored=x.ignored), dims)
        return Tensor(self.rounding.of_sum(result.data, size.data), result.dims, result.fed_by, result.ignored)

    def weighted(self, x, weight, dims):
        x, weight = Tensor(x.data, x.dims), Tensor(weight.data.to(x.data.dtype), weight.dims)
        mean = tensors.weighted_mean(x, weight, dims)
        if self.rounding.draw is None:
            return mean
        size = tensors.weighted_mean(Tensor(x.data.detach().abs(), x.dims), weight, dims)
        return self.rounded(Tensor(self.rounding.of_sum(mean.data, size.data), mean.dims))

    def instance(self, e, values, place):
        block, name = self.blocks[e.function], e.instance or e.function
        inside = {a.name: self.as_tensor(self.expression(x, values, place), a.type.dtype)
                  for a, x in zip(block.arguments, e.arguments)}
        named = values[f"instance {name}"] if e.is_use else place
        mean = place.mean or named.mean
        inner = replace(place, path=self.path_of(name, named), copies=(), frozen=place.frozen or e.frozen or bool(mean), mean=mean)
        return self.body(block.body, inside, inner)

    @staticmethod
    def path_of(name, place):
        return ".".join([place.path] * bool(place.path) + [name] + [str(copy) for copy in place.copies])

    def arguments(self, e, values, place, count):
        return [self.tensor(a, values, place) for a in e.arguments[:count]]

    def dims(self, e, first):
        return [a.name for a in e.arguments[first:]]

    def keyword(self, e, name, otherwise):
        return number_of(e.keywords[name], self.known) if name in e.keywords else otherwise

    def tensor_keyword(self, e, name, values, place):
        return self.tensor(e.keywords[name], values, place) if name in e.keywords else None

    def call_where(self, e, values, place):
        condition = self.tensor(e.arguments[0], values, place)
        a, b = [self.expression(x, values, place) for x in e.arguments[1:]]
        fed_by = frozenset().union(*[x.fed_by for x in (a, b) if isinstance(x, Tensor)])
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            kind = "f32" if isinstance(a, float) or isinstance(b, float) else "i32"
            a, b = self.as_tensor(a, kind), self.as_tensor(b, kind)
        a, b = self.unified(a, b)
        result = tensors.pointwise(lambda c, x, y: torch.where(c, x, y), condition, a, b)
        return Tensor(result.data, result.dims, fed_by)

    def call_cast(self, e, values, place):
        return self.cast(self.tensor(e.arguments[0], values, place), e.arguments[1].name)

    def call_training(self, e, values, place):
        a, b = [self.expression(x, values, place) for x in e.arguments]
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            a = self.as_tensor(a, "f32" if isinstance(a, float) or isinstance(b, float) else "i32")
        a, b = self.unified(a, b)
        chosen = a if self.drops else b
        return Tensor(chosen.data, chosen.dims, chosen.fed_by)

    def call_stop_gradient(self, e, values, place):
        x = self.tensor(e.arguments[0], values, place)
        return Tensor(x.data.detach(), x.dims)

    def call_dot(self, e, values, place):
        a, b = self.arguments(e, values, place, 2)
        self.note_shared(e, place, a, b)
        return tensors.dot(a, b, self.dims(e, 2))

    def call_softmax(self, e, values, place):
        return tensors.along(torch.softmax, self.arguments(e, values, place, 1)[0], *self.dims(e, 1))

    def call_log_softmax(self, e, values, place):
        return tensors.along(torch.log_softmax, self.arguments(e, values, place, 1)[0], *self.dims(e, 1))

    def normalised(self, function, e, values, place):
        eps = self.keyword(e, "eps", 1e-5)
        x = self.arguments(e, values, place, 1)[0]
        return tensors.along(lambda data, at: function(data, at, eps), x, *self.dims(e, 1))

    def call_layernorm(self, e, values, place):
        return self.normalised(functools.partial(tensors.layernorm, rounding=self.rounding), e, values, place)

    def call_rmsnorm(self, e, values, place):
        return self.normalised(tensors.rmsnorm, e, values, place)

    def call_cross_entropy(self, e, values, place):
        logits, labels = self.tensor(e.arguments[0], values, place), self.as_tensor(self.expression(e.arguments[1], values, place), "i32")
        dim = e.arguments[2].name
        self.note_fit(labels, logits.size(dim))
        if place.key == self.key and any(labels.data is data for data in self.inputs.values()):
            self.predicted.append((labels, logits, dim))
        return tensors.cross_entropy(logits, labels, dim, self.keyword(e, "ignore", -100))

    def call_attend(self, e, values, place):
        q, k, v = self.arguments(e, values, place, 3)
        seq, feature = self.dims(e, 3)
        return tensors.attend(q, k, v, seq, feature, flag_of(e.keywords.get("causal")), self.keyword(e, "window", 0),
                              self.keyword(e, "scale", 1 / math.sqrt(q.size(feature))), self.rounding,
                              self.tensor_keyword(e, "segment", values, place), self.keyword(e, "softcap", 0),
                              e.renaming[1] if e.renaming and e.renaming[1] != seq else None,
                              *[self.logits(e, name, values, place) for name in ("bias", "mask", "sinks")])

    def logits(self, e, name, values, place):
        """A number is a tensor without dims."""
        value = self.expression(e.keywords[name], values, place) if name in e.keywords else None
        return Tensor(torch.tensor(float(value), dtype=torch.float64), ()) if isinstance(value, (int, float)) else value

    def call_rope(self, e, values, place):
        style = e.keywords.get("style", Name("half")).name
        return tensors.rope(self.tensor(e.arguments[0], values, place), *self.dims(e, 1),
                            self.keyword(e, "base", 10000), style == "interleaved",
                            self.tensor_keyword(e, "position", values, place), self.keyword(e, "stretch", 1))

    def cumulative(self, e, values, place, is_max):
        flags = [flag_of(e.keywords.get(name)) for name in ("exclusive", "reverse")]
        return tensors.cumulative(self.tensor(e.arguments[0], values, place), e.arguments[1].name, is_max, *flags)

    def call_cumsum(self, e, values, place):
        return self.cumulative(e, values, place, False)

    def call_cummax(self, e, values, place):
        return self.cumulative(e, values, place, True)

    def call_argsort(self, e, values, place):
        x, dim = self.tensor(e.arguments[0], values, place), e.arguments[1].name
        largest_first = bool(flag_of(e.keywords.get("reverse")))
        order = x.data.sort(dim=x.dims.index(dim), stable=True, descending=largest_first).indices
        return Tensor(order, x.dims)

    def call_add_rows(self, e, values, place):
        x, at = self.tensor(e.arguments[0], values, place), self.as_tensor(self.expression(e.arguments[1], values, place), "i32")
        rows, to = e.renaming
        self.note_fit(at, self.sizes[to])
        return tensors.add_rows(x, at, rows, to, self.sizes[to])

    def call_solve(self, e, values, place):
        return tensors.solve(*self.arguments(e, values, place, 2), *e.renaming)

    def call_dropout(self, e, values, place):
        x, rate = self.tensor(e.arguments[0], values, place), number_of(e.arguments[1], self.known)
        if rate == 0 or not self.drops:
            return Tensor(x.data, x.dims, x.fed_by)  # no longer a cross_entropy
        self.next_dropout += 1
        return tensors.dropout(x, rate, place.key, self.next_dropout - 1, self.batch_dim)

    def call_random(self, e, values, place):
        """Evaluation has the key 0, with which copies of a repeat draw the same, and sequences too."""
        dims = tuple(self.dims(e, 0))
        self.next_dropout += 1
        sizes = [self.sizes[d] if self.drops or d != self.batch_dim else 1 for d in dims]
        numbers = torch.as_tensor(philox.random(place.key if self.drops else 0, self.next_dropout - 1, sizes))
        return Tensor(numbers.to(self.dtype).expand([self.sizes[d] for d in dims]), dims)

    def call_rename(self, e, values, place):
        x = self.tensor(e.arguments[0], values, place)
        return Tensor(x.data, tuple(e.renaming[1] if d == e.renaming[0] else d for d in x.dims), x.fed_by)

    call_others = call_rename

    def call_logsumexp(self, e, values, place):
        return tensors.reduce(torch.logsumexp, self.arguments(e, values, place, 1)[0], self.dims(e, 1))

    def call_one_hot(self, e, values, place):
        index, dim = self.tensor(e.arguments[0], values, place), e.arguments[1].name
        self.note_fit(index, self.sizes[dim])
        data = torch.nn.functional.one_hot(index.data.long(), self.sizes[dim])
        return Tensor(data.to(self.dtype), index.dims + (dim,))

    def call_split(self, e, values, place):
        dim, parts = e.parts[0]
        return tensors.split(self.tensor(e.arguments[0], values, place), dim, [(d, self.sizes[d]) for d in parts])

    def call_merge(self, e, values, place):
        dim, parts = e.parts[0]
        return tensors.merge(self.tensor(e.arguments[0], values, place), parts, dim)

    def call_conv(self, e, values, place):
        x, w = self.arguments(e, values, place, 2)
        steps = [self.keyword(e, name, otherwise) for name, otherwise in (("stride", 1), ("padding", 0), ("dilation", 1))]
        causal = flag_of(e.keywords.get("causal"))
        for dim, (to, tap) in e.parts:
            x = tensors.windows(x, dim, to, tap, w.size(tap), *steps, causal)
        over = [tap for _, (_, tap) in e.parts] + self.dims(e, 2)
        self.note_shared(e, place, x, w)
        return tensors.dot(x, w, over)

    def call_broadcast(self, e, values, place):
        x, more = self.tensor(e.arguments[0], values, place), self.dims(e, 1)
        return Tensor(x.data.expand(*[self.sizes[d] for d in more], *x.data.shape), tuple(more) + x.dims)

    def call_shift(self, e, values, place):
        x = self.tensor(e.arguments[0], values, place)
        return tensors.shift(x, e.arguments[1].name, int(number_of(e.arguments[2], self.known)))

    def call_concat(self, e, values, place):
        to = e.arguments[0].name
        pieces = [self.tensor(a, values, place) for a in e.arguments[1:]]
        declared = {e.keywords["along"].name} if "along" in e.keywords else names_in(self.program.dims[to].size)
        return tensors.concat((to, self.sizes[to]), pieces, declared)

    def call_top_k(self, e, values, place):
        x = self.tensor(e.arguments[0], values, place)
        if e.renaming:
            count, choice = e.renaming
            self.sizes[choice] = self.known[count] if count in self.known else int(count)
        else:
            choice = e.arguments[2].name
        return routing.top_k(x, e.arguments[1].name, choice, self.sizes[choice])

    def call_dispatch(self, e, values, place):
        x, chosen = self.arguments(e, values, place, 2)
        experts, slots = self.dims(e, 2)
        self.slots.add((experts, slots))
        said, within = e.keywords.get("capacity"), e.keywords.get("within")
        capacity = None if said is None or getattr(said, "name", "") == "none" else number_of(said, self.known)
        turn = place.turn if flag_of(e.keywords.get("rounds")) else (0, 1)
        rows, self.first_slots[slots] = routing.dispatch(x, chosen, experts, slots, self.sizes[experts], capacity,
                                                         within and within.name, self.batch_dim, turn)
        return rows

    def call_combine(self, e, values, place):
        y, chosen = self.arguments(e, values, place, 2)
        experts, slots = self.dims(e, 2) or self.rows_of(y)
        return routing.combine(y, chosen, experts, slots, self.batch_dim, self.first_slots[slots])

    def rows_of(self, y):
        """The experts and slots of what is combined without naming them."""
        return next((experts, slots) for experts, slots in self.slots if {experts, slots} <= {*y.dims})

    def call_balance(self, e, values, place):
        gate, chosen = self.arguments(e, values, place, 2)
        return routing.balance(gate, chosen, e.arguments[2].name, self.dims(e, 3))

    def call_iota(self, e, values, place):
        dim = e.arguments[0].name
        if dim in dict(place.scanned):
            return Tensor(torch.tensor(dict(place.scanned)[dim]), ())
        return Tensor(torch.arange(self.sizes[dim if dim in self.sizes else self.batch_dim]), (dim,))  # which others() makes is as the batch
