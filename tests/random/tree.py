"""A model description as Python objects: what the generator makes, the parser reads, the printer writes, the evaluator
computes and the shrinker cuts down.  Nothing here knows what a program means."""
from dataclasses import dataclass, field


# --- Expressions -----------------------------------------------------------------------------------------------------

@dataclass
class Number:
    """As it is written: "3" is a whole number, "3.0" is not."""
    text: str

    @property
    def value(self):
        plain = self.text.replace("_", "")
        return int(plain) if plain.isdigit() else float(plain)


@dataclass
class Flag:
    value: bool


@dataclass
class Name:
    name: str


@dataclass
class Negation:
    operand: object


@dataclass
class Binary:
    sign: str
    left: object
    right: object


@dataclass
class Call:
    """Of a function of the language or of a block; dims among the arguments are Names."""
    function: str
    arguments: list
    keywords: dict = field(default_factory=dict)
    renaming: tuple = None  # of rename: (from, to); of top_k: (number of choices, the dim that it makes)
    instance: str = None    # what `as` says, or what it is a use of
    dims: list = field(default_factory=list)  # those in brackets, of a block over dims
    parts: list = field(default_factory=list)  # of split, merge and conv: (dim, [dims]) for d -> (a, b) or (a, b) -> d
    shared: frozenset = field(default=None, compare=False, repr=False)  # of a drawn attend: dims of queries, keys and values, or of queries alone
    is_use: bool = False    # of an instance that is Named: `function` is its block
    frozen: bool = False    # of a block: without gradients to its weights


@dataclass
class Several:
    """What a block returns, if that is more than one value."""
    values: list


@dataclass
class Index:
    """operand[dim = at]; `at` may be a Range."""
    operand: object
    dim: str
    at: object


@dataclass
class Range:
    """first : end -> part"""
    first: object
    end: object
    part: str


# --- Statements ------------------------------------------------------------------------------------------------------

@dataclass
class TypeOf:
    """dtype[dims]; an open type has `...` before its dims."""
    dims: list
    dtype: str = None
    is_open: bool = False


@dataclass
class Const:
    name: str
    value: object


@dataclass
class Dim:
    name: str
    size: object = None
    padded: object = None


@dataclass
class Argument:
    name: str
    type: TypeOf  # None: a number, `const`


@dataclass
class Block:
    name: str
    arguments: list
    body: list
    dims: list = field(default_factory=list)  # names in brackets


@dataclass
class Model:
    name: str
    body: list


@dataclass
class Param:
    names: list
    type: TypeOf
    init: object
    no_decay: bool = False
    frozen: bool = False
    state: bool = False
    like: str = field(default=None, compare=False)  # in a Mean: the full name of what it begins as


@dataclass
class Input:
    name: str
    type: TypeOf
    source: object = None


@dataclass
class Assign:
    name: str
    value: object
    type: TypeOf = None
    more: list = field(default_factory=list)  # the names after the first, of `p, chosen = top_k(...)`

    @property
    def names(self):
        return [self.name, *self.more]


@dataclass
class Named:
    """An instance of a block, for any number of uses."""
    name: str
    block: str


@dataclass
class Mean:
    """An instance whose weights are running means of those of another one, that is Named."""
    name: str
    of: str
    share: object


@dataclass
class Update:
    """Of a Param that is a state."""
    name: str
    value: object


@dataclass
class Repeat:
    count: object
    body: list
    number: str = None  # what the number of the copy is called


@dataclass
class Scan:
    dim: str
    body: list
    reverse: bool = False


@dataclass
class Yield:
    """At each place of a Scan, whose body it stands in."""
    name: str
    value: object


@dataclass
class Return:
    value: object


@dataclass
class Loss:
    value: object


@dataclass
class Output:
    """Of the model: the value of that name; or of an expression, which gets the name, with its dims in the order of the type."""
    name: str
    type: TypeOf
    value: object


@dataclass
class Optimizer:
    """`defaults` of its arguments; the body has Slot, Assign and, last, Updated."""
    name: str
    defaults: dict
    body: list


@dataclass
class Slot:
    """Of an optimizer: its state; without a type it has the dims of the parameter."""
    names: list
    type: TypeOf = None


@dataclass
class Updated:
    """Of an optimizer: the parameter after the step."""
    value: object


# --- Layout ----------------------------------------------------------------------------------------------------------

@dataclass
class Mesh:
    axes: dict


@dataclass
class Shard:
    dims: list  # a name, or a pair of names
    axis: str
    otherwise: str = None
    options: dict = field(default_factory=dict)


@dataclass
class Zero:
    stage: int
    axes: list
    options: dict = field(default_factory=dict)


@dataclass
class Recompute:
    policy: object


@dataclass
class Text:
    """A setting in quotes."""
    text: str


@dataclass
class Table:
    """A schedule as a file: for each stage its actions, as "F0.3"."""
    name: str
    cells: list


@dataclass
class Pipeline:
    names: list  # of the repeats, in order
    axis: str
    options: dict = field(default_factory=dict)


@dataclass
class Program:
    """`declarations` are consts, dims, blocks and the model, in the order of the text; `train` maps settings to
    expressions, a group of parameters under its head: 'group "*.gain"', and `parallel` lists the lines of a layout.  What is drawn as `whole` may not be cut into micro-batches."""
    declarations: list
    train: dict
    parallel: list
    whole: bool = field(default=False, compare=False)

    @property
    def model(self):
        return next(d for d in self.declarations if isinstance(d, Model))

    @property
    def blocks(self):
        return {d.name: d for d in self.declarations if isinstance(d, Block)}

    @property
    def dims(self):
        return {d.name: d for d in self.declarations if isinstance(d, Dim)}

    @property
    def batch_dim(self):
        return next((name for name, dim in self.dims.items() if dim.size is None), None)


def children(expression):
    """The expressions directly inside of one."""
    if isinstance(expression, Negation):
        return [expression.operand]
    if isinstance(expression, Binary):
        return [expression.left, expression.right]
    if isinstance(expression, Call):
        return list(expression.arguments)
    if isinstance(expression, Index):
        return [expression.operand, expression.at]
    if isinstance(expression, Several):
        return list(expression.values)
    if isinstance(expression, Range):
        return [expression.first, expression.end]
    return []


def walk(expression):
    """An expression and all inside of it."""
    yield expression
    for child in children(expression) + list(expression.keywords.values() if isinstance(expression, Call) else []):
        yield from walk(child)


def statements_of(body):
    """The statements of a body, with those of its repeats and scans."""
    for statement in body:
        yield statement
        if isinstance(statement, (Repeat, Scan)):
            yield from statements_of(statement.body)


def value_of(statement):
    """The expression that a statement computes, or None."""
    return statement.value if isinstance(statement, (Assign, Update, Yield, Return, Loss, Output)) else None
