"""What a program that is being drawn has so far: its dims with their sizes, and in each scope the values that may be
read, with how often they have been."""
import math
from dataclasses import dataclass

from tree import Assign, Binary, Call, Dim, Name, Negation, Number, Param, TypeOf

OPEN = "..."  # among the dims of a value: those that an open block does not know
LARGEST = 3000  # elements of a value
LARGEST_OF_LARGE = 40_000  # the same, in a large program: threads share it
LARGEST_IN_BLOCKS = 100_000  # the same, of dims of several blocks of 8 bits
MOST_DIMS = 5
DIM_NAMES = ["embed", "heads", "head", "ff", "tap", "lat", "group", "state"]
# A compiler makes names of these, some of which it has to shorten, or has made already.
CONFUSABLE_NAMES = ["seq_key", "seq_from", "lat_2_over_dp", "for", "i", "x", "micro",
                    *("one_of_several_dims_with_a_name_that_is_longer_than_most_and_ends_in_" + end for end in "abc")]

# Words of the training step, of what the compiler adds to a name, and of the languages that it writes.
STEP_NAMES = ["key", "origin", "step", "lr", "loss_scale", "good_steps", "applied_steps", "v", "momentum", "total",
              "grad", "grad_norm", "d", "fwd", "bwd", "eval", "predict",
              "new", "half", "this", "template", "memcpy", "NULL", "M_PI", "expf", "size_t", "errno", "__x", "threadIdx", "lane",
              "T", "_", "_Bool", "_Atomic", "rt"]


@dataclass(eq=False)
class Local:
    """A named value.  One that is `optional` may be left unread."""
    name: str
    dims: frozenset
    kind: str = "f32"
    scale: float = 1.0
    reads: int = 0
    optional: bool = False


@dataclass
class Value:
    """An expression with its type, and about how large its elements are."""
    expression: object
    dims: frozenset
    kind: str = "f32"
    scale: float = 1.0


def number(value):
    """A literal, with parentheses by the printer where it is negative."""
    text = str(abs(value)) if isinstance(value, int) else f"{abs(value):g}"
    is_whole = text.isdigit() and not isinstance(value, int)
    literal = Number(text + ".0" if is_whole else text)
    return Negation(literal) if value < 0 else literal


def call(function, *arguments, **keywords):
    """Strings among the arguments are names, numbers literals."""
    words = [Name(a) if isinstance(a, str) else number(a) if isinstance(a, (int, float)) else a for a in arguments]
    return Call(function, words, keywords)


def binary(sign, left, right):
    sides = [Name(a) if isinstance(a, str) else number(a) if isinstance(a, (int, float)) else a for a in (left, right)]
    return Binary(sign, *sides)


class TooLarge(Exception):
    """A parameter would have too many elements: another program is drawn."""


class State:
    """Of the whole program."""

    def __init__(self, draw, mixes, large=False):
        self.draw, self.mixes, self.large = draw, mixes, large  # mixes: may values depend on several sequences?
        self.declarations, self.sizes, self.padded, self.blocks = [], {}, {}, []
        self.counts, self.inputs, self.entropies = {}, [], set()
        self.scanned = []  # dims of the scans around
        self.largest = LARGEST_OF_LARGE if large else LARGEST
        self.uses_dropout = False

    def is_entropy(self, expression):
        return isinstance(expression, Call) and expression.function in {"cross_entropy", *self.entropies} or \
            isinstance(expression, Name) and expression.name in self.entropies

    def fresh(self, letter):
        if letter in "pvc" and self.draw.random() < 0.03:
            name = self.draw.choice(STEP_NAMES + ["m"] * (letter == "c"))  # m: the model
            if name not in self.counts:
                self.counts[name] = 1
                return name
        self.counts[letter] = self.counts.get(letter, 0) + 1
        return f"{letter}{self.counts[letter]}"

    def add_dim(self, name, size, number_of_it, padded=None):
        """Declares a dim; size is an expression, or None for the batch."""
        self.declarations.append(Dim(name, size, None if padded is None else Number(str(padded))))
        self.sizes[name], self.padded[name] = number_of_it, padded
        return name

    def derived(self, name, size, number_of_it, padded=None):
        """A dim that is declared when it is first needed; in a scan along it, another one."""
        while name in self.scanned:
            name += "_t"
        return name if name in self.sizes else self.add_dim(name, size, number_of_it, padded)

    def slots(self):
        """A dim that only dispatch gives a size."""
        name = self.fresh("slots")
        self.declarations.append(Dim(name, None, None))
        return name

    def twin(self, dim):
        return self.derived(f"{dim}_t", Name(dim), self.sizes[dim], self.padded[dim])

    def elements(self, dims):
        return math.prod(self.sizes.get(d, 1) for d in dims)

    def fits(self, dims):
        return len(dims) <= MOST_DIMS and self.elements(dims) <= self.largest


class Scope:
    """Of the model or of a block, or of a repeat in one of these: `body` takes statements, `params` declarations of
    parameters, which stand outside of repeats."""

    def __init__(self, state, outer=None):
        self.state, self.draw, self.outer = state, state.draw, outer
        self.body = []
        self.locals = dict(outer.locals) if outer else {}  # name: Local
        self.params = outer.params if outer else []
        self.param_locals = outer.param_locals if outer else []
        self.instances = outer.instances if outer else set()
        self.own = set()  # names that this scope has assigned
        self.depth = outer.depth + 1 if outer else 0

    # --- Reading -----------------------------------------------------------------------------------------------------

    def read(self, local):
        local.reads += 1
        return Value(Name(local.name), local.dims, local.kind, local.scale)

    def attempt(self, function, *arguments):
        """What function gives; if that is nothing, nobody has read anything."""
        before = [(local, local.reads) for local in self.locals.values()]
        value = function(*arguments)
        if value is None:
            for local, reads in before:
                local.reads = reads
        return value

    def all(self, kind="f32"):
        return [local for local in self.locals.values() if local.kind == kind]

    def unread(self):
        return [local for name, local in self.locals.items() if name in self.own and not local.reads and not local.optional]

    def pick(self, candidates):
        """One of the locals: rather one that nobody has read, rather a late one."""
        if not candidates:
            return None
        weights = [(3 if not local.reads else 1) * (1 + i / len(candidates)) for i, local in enumerate(candidates)]
        return self.draw.choices(candidates, weights)[0]

    def some(self, items, least=0, most=None):
        """A random part of them, in random order."""
        items = sorted(items)
        count = self.draw.randint(min(least, len(items)), min(most if most is not None else len(items), len(items)))
        return self.draw.sample(items, count)

    def known_dims(self, dims):
        """Those that may be named in an operation over them."""
        return sorted(d for d in dims if d != OPEN and (d != "batch" or self.state.mixes))

    # --- Writing -----------------------------------------------------------------------------------------------------

    def assign(self, name, value, stated=None):
        self.body.append(Assign(name, value.expression, stated))
        entropies = self.state.entropies
        (entropies.add if self.state.is_entropy(value.expression) else entropies.discard)(name)
        self.locals.pop(name, None)  # so that it comes last
        local = self.locals[name] = Local(name, value.dims, value.kind, value.scale)
        self.own.add(name)
        return local

    def param(self, dims, scale=1.0):
        """A parameter of these dims: a new one, or one that is there."""
        if self.state.large and not self.state.fits(dims):
            raise TooLarge
        fitting = [p for p in self.param_locals if p.dims == frozenset(dims)]
        if fitting and self.draw.random() < 0.3:
            return self.read(self.draw.choice(fitting))
        name = self.state.fresh("p")
        order = self.some(dims, len(dims))
        is_gain = len(order) <= 1 and self.draw.random() < 0.4
        init = self.draw.choice([Name("ones"), Name("zeros"), call("constant", 0.5)]) if is_gain else \
            self.draw.choice([call("normal", round(scale, 4)), call("uniform", -round(scale * 1.5, 4), round(scale * 1.5, 4))])
        self.params.append(Param([name], TypeOf(order), init, False))
        local = Local(name, frozenset(dims), "f32", scale, 1)
        self.param_locals.append(local)
        return Value(Name(name), local.dims, "f32", scale)
