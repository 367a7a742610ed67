"""Tensors with named dims in PyTorch, and the operations of the language on them, from their definitions.

A Tensor's dims are in the order that the language gives them; only dropout looks at it.  Every floating-point result
goes through `Rounding`, which leaves it alone, or rounds it as a narrower type would, forward and backward."""
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

import philox


@dataclass
class Tensor:
    data: torch.Tensor
    dims: tuple
    fed_by: frozenset = frozenset()  # the inputs that this is, unchanged: their tokens have to fit what they index
    ignored: torch.Tensor = None     # of a cross_entropy: where its labels are ignored
    choice: str = None               # of what top_k gives: the dim along which no place is there twice

    @property
    def kind(self):
        if self.data.dtype == torch.bool:
            return "bool"
        return "f32" if self.data.dtype.is_floating_point else "i32"

    def size(self, dim):
        return self.data.shape[self.dims.index(dim)]

    def aligned(self, dims):
        """Its data with these dims, in this order; those that it lacks are 1."""
        own = [d for d in dims if d in self.dims]
        data = self.data.permute([self.dims.index(d) for d in own])
        return data.reshape([self.size(d) if d in self.dims else 1 for d in dims])

    def ordered(self, dims):
        """The same with its dims in this order."""
        ignored = None if self.ignored is None else Tensor(self.ignored, self.dims).aligned(dims)
        return Tensor(self.aligned(dims), dims, self.fed_by, ignored)


class Wrong(Exception):
    """The program is not right, or is of no use for a comparison."""


# --- Rounding --------------------------------------------------------------------------------------------------------

class Passed(torch.autograd.Function):
    """What `there` makes of a value, and `back` of its gradient."""
    @staticmethod
    def forward(context, x, there, back):
        context.back = back
        return there(x)

    @staticmethod
    def backward(context, gradient):
        return context.back(gradient), None, None


class Rounding:
    """To `bits` of mantissa: to the nearest, or (with a seed) up or down at random."""

    def __init__(self, bits=None, seed=None, least=None, largest=None, draw=None):
        self.bits, self.least, self.largest = bits, least, largest
        self.draw = draw if seed is None else torch.Generator().manual_seed(seed)

    def apply(self, x):
        mantissa, exponent = torch.frexp(x)
        if self.least is not None:  # below it numbers are evenly spaced
            exponent = exponent.clamp(min=self.least)
            mantissa = x / torch.ldexp(torch.ones_like(x), exponent)
        scaled = mantissa * 2.0**self.bits
        noise = 0.5 if self.draw is None else torch.rand(x.shape, generator=self.draw, dtype=torch.float64)
        rounded = torch.round(scaled) if self.draw is None else torch.floor(scaled + noise)
        result = torch.ldexp(rounded / 2.0**self.bits, exponent)
        if self.largest is not None:
            result = torch.where(result.abs() > self.largest, result * math.inf, result)
        return torch.where(torch.isfinite(x), result, x)

    def disturb(self, x):
        """By at most as much as rounding to the nearest does, also where `bits` are enough for x."""
        exponent = torch.frexp(x)[1].to(torch.float64)
        noise = torch.rand(x.shape, generator=self.draw, dtype=torch.float64) - 0.5
        return x + noise * torch.exp2(exponent - self.bits) * (x != 0)

    def of_later_use(self, x):
        """Of a value that has been used before: gradients of all uses are added up, and partial sums are rounded.  Of 4, -4 and
        something small, which need no rounding themselves, nothing of the small one may be left."""
        is_disturbed = self.bits and self.draw is not None and x.requires_grad and x.dtype == torch.float64
        return Passed.apply(x, lambda x: x.view_as(x), self.disturb) if is_disturbed else x

    def with_noise(self, gradient, norm):
        """Where terms cancel, nothing of a gradient is left but f32's rounding of them; AdamW makes a step of it, and Muon,
        which normalises the whole, and Lion, which takes its sign, also where all of them cancel exactly.  Where that is so of
        all gradients together, their terms are not known: about 1."""
        if self.draw is None:
            return gradient
        noise = torch.randn(gradient.shape, generator=self.draw, dtype=torch.float64)
        cancels = (gradient != 0) | (gradient.norm() <= 1e-12 * norm)
        terms = 1 if 0 < norm < 1e-12 else norm + 1e-9
        return gradient + 2.0**-24 * terms * noise * cancels

    def of_clipped(self, gradient):
        """By clipping, a gradient alone becomes 1 but for f32's rounding of its square, the norm, the divisor, the quotient and the
        product: some eight halves of its last bit.  An optimizer may ask whether it is less than 1."""
        return gradient if self.draw is None else Rounding(bits=21, draw=self.draw).apply(gradient)

    def of_sum(self, total, size):
        """Partial sums are rounded to f32, also where the whole is a number of few bits: five times the same, divided by five, is
        nearly that.  size: the same sum of absolute values."""
        if self.draw is None or total.dtype != torch.float64:
            return total
        return total + 2.0**-24 * size.detach() * torch.randn(total.shape, generator=self.draw, dtype=torch.float64)

    def __call__(self, x):
        return Passed.apply(x, self.apply, self.apply) if self.bits and x.dtype == torch.float64 else x


EXACT = Rounding()
PRECISIONS = {"fp32": dict(bits=24), "bf16": dict(bits=8), "fp16": dict(bits=11, least=-13, largest=65504.0),
              "fp8": dict(bits=4)}


# --- Elementwise -----------------------------------------------------------------------------------------------------

def relu(x):
    return torch.where(x > 0, x, torch.zeros_like(x))


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Saturating(torch.autograd.Function):
    """tanh, or sigmoid: their slopes are found from their values, and near the ends from what rounding has left of them."""
    @staticmethod
    def forward(context, x, function, rounding):
        y = function(x)
        kept = rounding.apply(y) if rounding.bits and x.dtype == torch.float64 else y
        context.save_for_backward(1 - kept * kept if function is torch.tanh else kept * (1 - kept))
        return y

    @staticmethod
    def backward(context, gradient):
        return gradient * context.saved_tensors[0], None, None


def unary(name, x, rounding):
    return Saturating.apply(x, UNARY[name], rounding) if name in ("tanh", "sigmoid") else UNARY[name](x)


def magnitude(x):
    return x * torch.sign(x).detach()


UNARY = {"exp": torch.exp, "expm1": torch.expm1, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
         "abs": magnitude, "sign": torch.sign,
         "square": lambda x: x * x, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "sin": torch.sin, "cos": torch.cos,
         "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)), "relu": relu, "gelu": F.gelu, "gelu_tanh": gelu_tanh, "silu": lambda x: x * torch.sigmoid(x)}


def divide(a, b):
    if a.dtype.is_floating_point:
        return a / b
    return torch.where(b == 0, 0, torch.div(a, torch.where(b == 0, 1, b), rounding_mode="trunc"))


def remainder(a, b):
    if a.dtype.is_floating_point:
        raise Wrong("% of floating-point numbers")
    return torch.where(b == 0, a, torch.fmod(a, torch.where(b == 0, 1, b)))


def larger(a, b):
    """Equal operands share the gradient."""
    if not a.dtype.is_floating_point:
        return torch.maximum(a, b)
    return torch.where(a > b, a, torch.where(b > a, b, 0.5 * (a + b)))


def smaller(a, b):
    if not a.dtype.is_floating_point:
        return torch.minimum(a, b)
    return torch.where(a < b, a, torch.where(b < a, b, 0.5 * (a + b)))


BINARY = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": divide, "%": remainder, "^": torch.pow,
          "maximum": larger, "minimum": smaller,
          "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
          "==": lambda a, b: a == b, "!=": lambda a, b: a != b}
LOGICAL = {"*": torch.logical_and, "minimum": torch.logical_and, "maximum": torch.logical_or,
           "==": lambda a, b: a == b, "!=": lambda a, b: a != b}


def wrapped(x):
    """What leaves 32 bits comes in again at the other end."""
    return Tensor((x.data + 2**31) % 2**32 - 2**31, x.dims, x.fed_by) if x.kind == "i32" else x


def union(*tensors):
    """The dims of the first that has the most, then what others have besides."""
    largest = max(tensors, key=lambda t: len(t.dims))
    if any(set(t.dims) - set(largest.dims) for t in tensors):
        if any(t.kind == "f32" for t in tensors):
            raise Wrong(f"dims do not fit: {[t.dims for t in tensors]}")
        largest = tensors[0]
    dims = list(largest.dims)
    for t in tensors:
        dims += [d for d in t.dims if d not in dims]
    return tuple(dims)


def pick(table, dim, at, batch):
    """table[dim = at], for each element of the dims that both have: these stand behind those of the table before `dim`,
    then those of the index alone.  An index that has no other dims only picks from what has the batch: the dims of the table, or, of
    as many, those of the index."""
    if at.data.numel() and (at.data.min() < 0 or at.data.max() >= table.size(dim)):
        raise Wrong("an index is out of range")
    rows = "a row of " + dim  # the index may be along a dim of that name
    table = Tensor(table.data, tuple(rows if d == dim else d for d in table.dims))
    dim, own = rows, tuple(d for d in table.dims if d != rows)
    first, then = (at.dims, own) if len(at.dims) >= len(own) else (own, at.dims)
    dims = first + tuple(d for d in then if d not in first)
    if set(at.dims) - set(own) or batch not in own:
        before = table.dims[:table.dims.index(rows)]
        dims = (*[d for d in before if d not in at.dims], *[d for d in own if d in at.dims],
                *[d for d in at.dims if d not in own], *[d for d in own if d not in at.dims and d not in before])
    sizes = [(at if d in at.dims else table).size(d) for d in dims]
    rows = table.aligned(dims + (dim,)).expand(sizes + [table.size(dim)])
    return Tensor(rows.gather(-1, at.aligned(dims).expand(sizes).unsqueeze(-1)).squeeze(-1), dims)


def pointwise(function, *tensors):
    """function of tensors whose dims meet by name, as one tensor of all their dims."""
    dims = union(*tensors)
    sizes = {d: t.size(d) for t in tensors for d in t.dims}
    data = function(*[t.aligned(dims) for t in tensors])
    return Tensor(data.expand([sizes[d] for d in dims]) if dims else data, dims)


# --- Along dims ------------------------------------------------------------------------------------------------------

def reduce(function, x, dims):
    at = [x.dims.index(d) for d in dims]
    return Tensor(function(x.data, at) if at else x.data, tuple(d for d in x.dims if d not in dims))


def summed(x, dims):
    return reduce(lambda data, at: data.sum(at), x, dims)


def mean(x, dims):
    if x.ignored is None:
        return reduce(lambda data, at: data.mean(at), x, dims)
    at = [x.dims.index(d) for d in dims]
    count = (~x.ignored).sum(at).clamp(min=1)
    return Tensor(x.data.sum(at) / count, tuple(d for d in x.dims if d not in dims))


def weighted_mean(x, weight, dims):
    """The sum of weight times x over the sum of weights, each for all elements of x."""
    each = Tensor(weight.aligned(x.dims).detach().expand_as(x.data), x.dims)
    total = summed(each, dims).data
    mean = summed(Tensor(x.data * each.data, x.dims), dims)
    return Tensor(mean.data / torch.where(total != 0, total, torch.ones_like(total)), mean.dims)


def solve(triangle, x, row, column):
    """Of a what is below its diagonal, which is 1."""
    if triangle.size(row) != triangle.size(column):
        raise Wrong(f"a triangle is square, but {row} and {column} are not alike")
    shared = tuple(d for d in dict.fromkeys(triangle.dims + x.dims) if d not in (row, column) and d in triangle.dims)
    others = tuple(d for d in x.dims if d not in shared and d != row)
    a, b = triangle.aligned(shared + (row, column)).tril(-1), x.aligned(shared + (row,) + others)
    sizes = [max(a.shape[i], b.shape[i]) for i in range(len(shared))]
    a = a.expand(sizes + list(a.shape[len(shared):]))
    b = b.expand(sizes + list(b.shape[len(shared):])).reshape(sizes + [x.size(row), -1])
    y = torch.linalg.solve_triangular(a + torch.eye(x.size(row), dtype=a.dtype), b, upper=False, unitriangular=True)
    return Tensor(y.reshape(sizes + [x.size(row)] + [x.size(d) for d in others]), shared + (row,) + others)


def add_rows(x, at, rows, to, size):
    """`to` is where `rows` was: the order of dims numbers the elements for dropout."""
    at_rows = x.dims.index(rows)
    dims = x.dims[:at_rows] + (rows, to) + x.dims[at_rows + 1:]
    places = Tensor(torch.nn.functional.one_hot(at.data.long(), size), at.dims + (to,)).aligned(dims)
    return summed(Tensor(x.aligned(dims) * places, dims), [rows])


def extreme(x, dims, sign):
    """The largest (sign 1) or smallest (-1); equal elements share the gradient."""
    def function(data, at):
        if data.dtype.is_floating_point:
            return sign * torch.amax(sign * data, at)
        return sign * torch.amax(sign * data, at)
    return reduce(function, x, dims)


def dot(a, b, over):
    kept = list(a.dims) + [d for d in b.dims if d not in a.dims]
    letter = {d: chr(ord("a") + i) for i, d in enumerate(kept)}
    kept = tuple(d for d in kept if d not in over)
    word = ["".join(letter[d] for d in dims) for dims in (a.dims, b.dims, kept)]
    return Tensor(torch.einsum(f"{word[0]},{word[1]}->{word[2]}", a.data, b.data), kept)


def along(function, x, *dims):
    """Over all elements of the dims together."""
    others = tuple(d for d in x.dims if d not in dims)
    moved = x.aligned(others + dims)
    together = function(moved.reshape([*moved.shape[:len(others)], -1]), -1)
    return Tensor(Tensor(together.reshape(moved.shape), others + dims).aligned(x.dims), x.dims)


def rmsnorm(data, at, eps):
    return data * torch.rsqrt((data * data).mean(at, keepdim=True) + eps)


def layernorm(data, at, eps, rounding):
    mean = rounding.of_sum(data.mean(at, keepdim=True), data.abs().mean(at, keepdim=True))
    return rmsnorm(data - mean, at, eps)


def cross_entropy(logits, labels, dim, ignore):
    rest = tuple(d for d in logits.dims if d != dim)
    spread = torch.log_softmax(logits.aligned(rest + (dim,)), -1)
    at = labels.aligned(rest)
    ignored = at == ignore
    if ((at < 0) | (at >= logits.size(dim)))[~ignored].any():
        raise Wrong("a label is out of range")
    picked = -spread.gather(-1, at.clamp(0, logits.size(dim) - 1).unsqueeze(-1)).squeeze(-1)
    return Tensor(torch.where(ignored, torch.zeros_like(picked), picked), rest, ignored=ignored)


# --- Positions -------------------------------------------------------------------------------------------------------

def take(table, dim, index):
    """The dims of index in the place of `dim`."""
    at = table.dims.index(dim)
    if index.data.numel() and (index.data.min() < 0 or index.data.max() >= table.size(dim)):
        raise Wrong(f"an index of {dim} is out of range")
    flat = table.data.index_select(at, index.data.reshape(-1).long())
    sizes = list(table.data.shape[:at]) + list(index.data.shape) + list(table.data.shape[at + 1:])
    dims = table.dims[:at] + index.dims + table.dims[at + 1:]
    if len(set(dims)) < len(dims):
        raise Wrong(f"a dim would be there twice: {dims}")
    return Tensor(flat.reshape(sizes), dims)


def slice_of(x, dim, at):
    return Tensor(x.data.select(x.dims.index(dim), at), tuple(d for d in x.dims if d != dim))


def part_of(x, dim, first, end, part):
    return Tensor(x.data.narrow(x.dims.index(dim), first, end - first), tuple(part if d == dim else d for d in x.dims))


def split(x, dim, parts):
    """parts: (name, size) of each."""
    at = x.dims.index(dim)
    if math.prod(size for _, size in parts) != x.size(dim):
        raise Wrong(f"{dim} is not {parts}")
    data = x.data.reshape([*x.data.shape[:at], *[size for _, size in parts], *x.data.shape[at + 1:]])
    return Tensor(data, x.dims[:at] + tuple(name for name, _ in parts) + x.dims[at + 1:], x.fed_by)


def merge(x, parts, dim):
    """The dim is where the last part was."""
    order = [d for name in x.dims for d in (parts if name == parts[-1] else [] if name in parts else [name])]
    data, at = x.aligned(order), order.index(parts[0])
    sizes = [*data.shape[:at], -1, *data.shape[at + len(parts):]]
    return Tensor(data.reshape(sizes), (*order[:at], dim, *order[at + len(parts):]), x.fed_by)


def windows(x, dim, to, tap, size, stride, padding, dilation, causal):
    """`size` elements, `dilation` apart, at every place `stride` apart of x between zeros, or behind them."""
    at = x.dims.index(dim)
    around = ((size - 1) * dilation, 0) if causal else (padding, padding)
    data = F.pad(x.data.movedim(at, -1), around).unfold(-1, (size - 1) * dilation + 1, stride)[..., ::dilation]
    return Tensor(data.movedim(-2, at).movedim(-1, at + 1), x.dims[:at] + (to, tap) + x.dims[at + 1:])


def shift(x, dim, by):
    data = x.data.movedim(x.dims.index(dim), -1)
    return Tensor(F.pad(data, (by, -by)).movedim(-1, x.dims.index(dim)), x.dims)


def cumulative(x, dim, is_max, exclusive, reverse):
    """Of each element, the sum or the largest of those up to it, or before it."""
    data = x.data.movedim(x.dims.index(dim), -1)
    data = data.flip(-1) if reverse else data
    result = torch.cummax(data, -1).values if is_max else torch.cumsum(data, -1)
    if exclusive:
        none = torch.full_like(result[..., :1], -2**31 if is_max else 0)
        result = torch.cat([none, result[..., :-1]], -1)
    result = result.flip(-1) if reverse else result
    return Tensor(result.movedim(-1, x.dims.index(dim)).to(x.data.dtype), x.dims)


def attend(q, k, v, seq, feature, causal, window, scale, rounding, segment=None, softcap=0, other=None,
           bias=None, mask=None, sinks=None):
    row = other if other in k.dims else seq  # of keys and values
    rest = tuple(d for d in q.dims if d not in (seq, feature))
    order = rest + (seq, feature)
    own = next((d for d in v.dims if d not in (*q.dims, row)), feature) if feature not in v.dims else feature
    query, key, value = q.aligned(order), k.aligned(rest + (row, feature)), v.aligned(rest + (row, own))
    scores = rounding(scale * query @ key.transpose(-1, -2))
    scores = rounding(softcap * torch.tanh(scores / softcap)) if softcap else scores
    plane = rest + (seq, other or row)
    scores = scores if bias is None else rounding(scores + bias.aligned(plane))
    i, j = torch.arange(q.size(seq))[:, None], torch.arange(k.size(row))[None, :]
    seen = (j <= i) if causal else torch.ones_like(i == j)
    if window:
        seen = seen & ((j > i - window) & (j < i + window))
    if segment is not None:
        ids = segment.aligned(rest + (seq,))
        seen = seen & (ids[..., :, None] == ids[..., None, :])
    seen = (seen if mask is None else seen & mask.aligned(plane).bool()).expand(scores.shape)
    sink = torch.tensor(-1e30, dtype=scores.dtype) if sinks is None else sinks.aligned(rest + (seq, row))
    more = torch.cat([scores.masked_fill(~seen, -1e30), sink.to(scores.dtype).expand(*scores.shape[:-1], 1)], -1)
    weights = rounding(torch.softmax(more, -1)[..., :-1] * seen)  # a sink is one more key, of value 0
    result = weights @ value
    if rounding.draw is not None:
        again = computed_again(weights, scale * query.abs() @ key.abs().transpose(-1, -2), rounding)
        result = weights @ value.detach() + again @ (value - value.detach())
    if rounding.draw is not None and scores.requires_grad:
        disturb_slopes(scores, weights, result, rounding)
    dims = tuple(own if d == feature else d for d in q.dims)
    return Tensor(Tensor(result, rest + (seq, own)).aligned(dims), dims)


def computed_again(weights, size, rounding):
    """Weights as the gradient of values has them: of scores that are computed again, in another order, and the row's stored sum.
    size: the scores' terms' absolute values, added up."""
    noise = torch.randn(weights.shape, generator=rounding.draw, dtype=torch.float64)
    return (weights * (1 + 2.0**-23 * size * noise)).detach()


def disturb_slopes(scores, weights, result, rounding):
    """The slope of a score is weight (a - b), where b is the weighted mean of all a.  Attention in tiles adds up a and b in
    different orders, so that they differ where they are equal in truth; and it finds b as the product of its result, as
    it is stored, with the slope of that."""
    seen, stored = [], []
    weights.register_hook(seen.append)
    result.register_hook(stored.append)

    def disturbed(slope):
        size = (weights.detach() * seen[-1].abs().amax(-1, keepdim=True)).abs()
        slope = slope + 2.0**-23 * size * torch.randn(slope.shape, generator=rounding.draw, dtype=torch.float64)
        lost = (stored[-1] * (result - rounding.apply(result.detach()))).sum(-1, keepdim=True)
        return slope + weights.detach() * lost.detach()
    scores.register_hook(disturbed)


def rope(x, seq, feature, base, interleaved, position=None, stretch=1):
    rest = tuple(d for d in x.dims if d not in (seq, feature))
    data, half = x.aligned(rest + (seq, feature)), x.size(feature) // 2
    speed = base ** (-torch.arange(half, dtype=torch.float64) / half)
    place = torch.arange(x.size(seq)) if position is None else position.aligned(rest + (seq,))
    angle = (place.to(torch.float64)[..., None] / stretch * speed).to(data.dtype)
    first, second = (data[..., ::2], data[..., 1::2]) if interleaved else (data[..., :half], data[..., half:])
    turned = [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()]
    result = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return Tensor(Tensor(result, rest + (seq, feature)).aligned(x.dims), x.dims)


def own_dim(pieces, i, to, declared):
    """The dim of piece i that is its part of `to`: the one that the others lack."""
    others = pieces[1 if i == 0 else 0]
    own = [d for d in pieces[i].dims if d not in others.dims]
    if not own:
        own = [d for d in pieces[i].dims if d in declared] or \
            [d for d in pieces[i].dims if pieces[i].size(d) * len(pieces) == to[1]]
    if len(own) != 1:
        raise Wrong(f"concat: which dim of {pieces[i].dims} is its part of {to[0]}?")
    return own[0]


def concat(to, pieces, declared):
    """to = (dim, size); declared: the dims of which its declaration is the sum, if it is one."""
    renamed = []
    for i, piece in enumerate(pieces):
        own = own_dim(pieces, i, to, declared)
        renamed.append(Tensor(piece.data, tuple(to[0] if d == own else d for d in piece.dims)))
    dims = renamed[0].dims
    data = torch.cat([piece.aligned(dims) for piece in renamed], dims.index(to[0]))
    if data.shape[dims.index(to[0])] != to[1]:
        raise Wrong(f"concat: the pieces do not add up to {to}")
    return Tensor(data, dims)


def dropout(x, rate, key, instance, batch):
    """Elements count row by row, with the batch outermost."""
    order = ((batch,) if batch in x.dims else ()) + tuple(d for d in x.dims if d != batch)
    sizes = [x.size(d) for d in order]
    index = np.arange(math.prod(sizes), dtype=np.uint64)
    mask = torch.from_numpy(philox.kept(key, instance, index, rate).reshape(sizes))
    kept = Tensor(mask, order).aligned(x.dims)
    return Tensor(torch.where(kept, x.data / (1 - rate), torch.zeros_like(x.data)), x.dims)
