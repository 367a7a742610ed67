"""Draws whole programs: the same number gives the same program."""
import random

import torch

import optimizers
import reference
from added import add_layers, add_many_dims, add_wide_layers
from instances import share_some
from prune import bodies, pruned
from scope import CONFUSABLE_NAMES, DIM_NAMES, LARGEST_IN_BLOCKS, OPEN, Local, Scope, State, TooLarge, Value, binary, call, number
from states import average_some
from statements import Statements
from tensors import Tensor, Wrong
from tree import (Assign, Call, Const, Flag, Index, Input, Loss, Model, Name, Negation, Number, Output, Param, Program, Scan, Text, TypeOf, Update,
                  statements_of, value_of, walk)

BATCHES = [1, 1, 2, 2, 3, 4, 6, 8]
SIZES = [1, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8]

# Of large programs: around the sizes of tiles, warps and blocks, and beyond.  What a kernel does there, such as sharing its work among
# threads, it never does with smaller ones.
LARGE_SIZES = [1, 3, 8, 16, 17, 33, 48, 64, 65, 100, 130, 260]
EVEN_SIZES = [8, 8, 16, 24, 32, 64, 96, 128, 264]  # of all dims: rows in packs of eight, tiles without gaps
BLOCK_SIZES = [1, 2, 4, 16, 128, 200, 256, 256, 384]  # one or several blocks of 8 bits, of 128 or of other sizes
LONG_SIZES = [520, 1100, 2050, 4100, 8200]  # of one dim
LARGE_SHARE = 0.1


class Drawing:
    """One program being drawn."""

    def __init__(self, seed, large_share=LARGE_SHARE):
        self.draw = random.Random(seed)
        self.large = random.Random(f"large {seed}")
        self.batch = self.draw.choice(BATCHES)
        self.microbatch = self.batch if self.draw.random() < 0.6 else \
            self.draw.choice([m for m in range(1, self.batch + 1) if self.batch % m == 0])
        self.state = State(self.draw, self.microbatch == self.batch and self.draw.random() < 0.5,
                           self.large.random() < large_share)

    # --- Dims and inputs ---------------------------------------------------------------------------------------------

    def dims(self):
        state = self.state
        state.add_dim("batch", None, self.batch)
        if self.draw.random() < 0.3:
            state.declarations.append(Const("width", Number(str(self.draw.choice([3, 16, 65] if state.large else [1, 2, 4])))))
        drawn = CONFUSABLE_NAMES if self.draw.random() < 0.03 else DIM_NAMES
        names = ["seq", "vocab"] + self.draw.sample(drawn, self.draw.randint(1, 5))
        long = self.large.choice(names) if state.large and self.large.random() < 0.3 else None
        kind = self.large.random() if state.large else 1
        sizes = SIZES if not state.large else EVEN_SIZES if kind < 0.4 else BLOCK_SIZES if kind < 0.65 else LARGE_SIZES
        if sizes is BLOCK_SIZES:
            state.largest = LARGEST_IN_BLOCKS
        for name in names:
            self.dim(name, LONG_SIZES if name == long else sizes)

    def dim(self, name, sizes):
        """Of a size by itself, or made of another dim or const."""
        known = [d for d in self.state.declarations if isinstance(d, Const)]
        size = self.draw.choice(sizes)
        expression = Number(str(size))
        if known and self.draw.random() < 0.3:
            factor = self.draw.choice([1, 2])
            expression, size = binary("*", factor, "width"), factor * known[0].value.value
        padded = self.draw.choice([2, 3, 4, 8]) if self.draw.random() < 0.1 else None
        self.state.add_dim(name, expression, size, padded)

    def inputs(self, scope):
        """Tokens, and what follows them once or twice."""
        dims = ["batch", "seq"] if self.draw.random() < 0.93 else ["batch"]
        count, before = self.draw.choice([1, 1, 2, 2, 3]), None
        for name in ["tokens", "labels", "further"][:count]:
            source = Call("next", [Name(before)]) if before else None
            self.add_input(scope, name, dims, source)
            before = name
        if len(dims) > 1 and self.draw.random() < 0.03:
            self.add_input(scope, "first", ["batch"], None)
        if len(dims) > 1 and self.draw.random() < 0.12:
            self.records(scope)

    def records(self, scope):
        """Inputs of any type and dims: each, and the tokens too, has an array of its own."""
        draw = self.draw
        for name in draw.sample(["image", "mask", "target", "category"], draw.choice([1, 1, 2, 3])):
            kind = {"mask": "bool", "category": "i32"}.get(name, draw.choice(["f32", None]))
            others = [d for d in self.state.sizes if d != "batch"]
            dims = ["batch", *draw.sample(others, min(len(others), draw.choice([0, 1, 1, 2, 3])))]
            if not self.state.fits(dims):
                continue
            self.add_input(scope, name, dims, None, kind)
            if len(dims) > 1 and draw.random() < 0.15:
                self.add_input(scope, name + "_after", dims, call("next", name), kind)

    def add_input(self, scope, name, dims, source, kind="i32"):
        self.body.append(Input(name, TypeOf(list(dims), kind), source))
        scope.locals[name] = Local(name, frozenset(dims), kind or "f32")
        if kind == "i32":
            self.state.inputs.append(name)

    def embedding(self, scope):
        """Rows of a table, by the tokens of an input."""
        inputs = [name for name in self.state.inputs if set(self.state.sizes) - scope.locals[name].dims]
        fed = scope.read(scope.locals[self.draw.choice(inputs)])
        table = "vocab" if self.draw.random() < 0.8 else self.draw.choice([d for d in self.state.sizes if d not in fed.dims])
        more = scope.some([d for d in self.state.sizes if d not in fed.dims | {table}], 0, 2)
        weight = scope.param([table, *more], 0.8)
        scope.assign(self.state.fresh("v"), Value(Index(weight.expression, table, fed.expression), fed.dims | set(more)))

    # --- The loss ----------------------------------------------------------------------------------------------------

    def scalar(self, statements, value):
        """A mean or sum of it, of its squares, of what a mask leaves."""
        draw, dims = self.draw, sorted(value.dims)
        expression = value.expression
        if draw.random() < 0.25 and not statements.is_entropy(expression):
            mask = statements.mask(value.dims)
            if mask:
                expression = binary("*", expression, mask.expression)
        way = draw.random()
        if way < 0.25:
            expression = call("square", expression)
        elif way < 0.35:
            expression = call("tanh", expression)
        if not dims or (len(dims) > 1 and draw.random() < 0.3 and not statements.is_entropy(expression)):
            inner = draw.sample([d for d in dims if d != "batch"], min(len(dims), 1) if dims != ["batch"] else 0)
            expression = call(draw.choice(["sum", "mean"]), expression, *inner) if inner else expression
            dims = [d for d in dims if d not in inner]
        if not value.dims:
            return expression
        reduced = draw.choice(["mean", "mean", "mean", "sum"])
        weight = statements.mask(frozenset(dims)) if dims and reduced == "mean" and draw.random() < 0.15 else None
        if weight:
            said = weight.expression if draw.random() < 0.5 else binary("+", 0.25, weight.expression)
            expression = call(reduced, expression, weight=said)
        else:
            expression = call(reduced, expression)
        elements = self.state.elements(value.dims)
        if reduced == "sum" and elements > 8:
            expression = binary("*", expression, float(f"{4 / elements:.2g}"))
        return expression

    def entropy_term(self, statements, scope):
        """What language models have: cross-entropy of logits against tokens."""
        labels = self.draw.choice([scope.locals[name] for name in self.state.inputs])
        others = [d for d in self.state.sizes if d not in labels.dims]
        if not others:
            return None
        dim = self.draw.choice(others)
        logits = scope.attempt(statements.exactly, labels.dims | {dim})
        if logits is None:
            return None
        said, keywords = scope.read(labels).expression, {}
        if self.draw.random() < 0.3:
            keywords["ignore"] = Number(str(self.draw.randrange(self.state.sizes[dim])))
        elif self.draw.random() < 0.3:
            condition = statements.condition(labels.dims)
            if condition:
                said = call("where", condition.expression, said, number(-100))
        return call("mean", Call("cross_entropy", [logits.expression, said, Name(dim)], keywords))

    def loss(self, statements, scope):
        terms = []
        if self.draw.random() < 0.4:
            terms += [scope.attempt(self.entropy_term, statements, scope)]
        left = scope.unread()
        if not self.state.mixes:
            left = self.fold_constants(statements, scope, left)
        for local in left:
            if not local.reads:
                terms.append(self.scalar(statements, statements.as_float(local)))
        terms = [term for term in terms if term is not None] or [self.any_term(statements, scope)]
        if self.microbatch == self.batch and self.draw.random() < 0.2 and scope.params:
            name = self.draw.choice(scope.params).names[0]
            terms.append(binary("*", 0.1, call(self.draw.choice(["sum", "mean"]), call("square", name))))
        total = terms[0]
        for term in terms[1:]:
            total = binary(self.draw.choice("++-"), total, self.in_one_loss(term))
        return Loss(total)

    def in_one_loss(self, term):
        """Some terms are those of training only, or of evaluation only."""
        if self.draw.random() < 0.85:
            return term
        return call("training", *((term, number(0)) if self.draw.random() < 0.75 else (number(0), term)))

    def any_term(self, statements, scope):
        value = statements.exactly(frozenset({"batch", "seq"})) or statements.exactly(frozenset({"batch"}))
        return self.scalar(statements, value)

    def fold_constants(self, statements, scope, left):
        """Where micro-batches are added up, what has no batch goes into what has: a term alone would count for each."""
        alone = [x for x in left if "batch" not in x.dims]
        if not alone or self.microbatch == self.batch:
            return left
        value = statements.exactly(frozenset({"batch"})) or statements.exactly(frozenset({"batch", "seq"}))
        if value is None:
            return left
        for local in alone:
            part = statements.without(statements.as_float(local), local.dims)
            value = Value(binary("+", value.expression, part.expression), value.dims)
        scope.assign(self.state.fresh("v"), value)
        return scope.unread()

    # --- Training ----------------------------------------------------------------------------------------------------

    def optimizer(self):
        draw = self.draw
        if draw.random() < 0.45:
            options = {"lr": draw.choice(["0.1", "0.05", "0.02"])}
            options |= {"momentum": "0.9"} if draw.random() < 0.5 else {}
            options |= {"weight_decay": "0.1"} if draw.random() < 0.4 else {}
            words = {name: Number(text) for name, text in options.items()}
            return call("sgd", **words, **({"nesterov": Flag(True)} if "momentum" in words and draw.random() < 0.5 else {}))
        if draw.random() < 0.2:
            options = {"beta2_decay": Negation(Number("0.5")), "eps2": Number("0.05"), "d": Number("0.5"), "weight_decay": Number("0.1")}
            some = {name: options[name] for name in options if draw.random() < 0.2}
            return call("adafactor", lr=Number(draw.choice(["0.1", "0.02"])), eps1=Number("1e-3"), **some)
        if draw.random() < 0.2:
            options = {"lr": draw.choice(["0.002", "0.01"]), "beta1": draw.choice(["0.9", "0.5"])}
            options |= {"weight_decay": "0.1"} if draw.random() < 0.4 else {}
            return call("lion", **{name: Number(text) for name, text in options.items()})
        if draw.random() < 0.3:
            self.state.declarations.append(optimizers.drawn(draw, self.state.large))
            return call("mine", lr=Number(draw.choice(["0.1", "0.03"])))
        options = {"lr": draw.choice(["0.01", "0.003"]), "eps": draw.choice(["1e-2", "1e-3"])}
        options |= {"beta1": draw.choice(["0.8", "0.0"])} if draw.random() < 0.3 else {}
        options |= {"beta2": draw.choice(["0.95", "0.99"])} if draw.random() < 0.5 else {}
        options |= {"weight_decay": draw.choice(["0.1", "0"])} if draw.random() < 0.5 else {}
        return call("adamw", **{name: Number(text) for name, text in options.items()})

    def schedule(self):
        draw, warmup = self.draw, self.draw.choice([0, 1, 2])
        kind = draw.choice(["constant", "linear", "cosine", "wsd"])
        options = {"warmup": warmup} if warmup or draw.random() < 0.3 else {}
        if kind != "constant":
            options["steps"] = warmup + draw.choice([1, 2, 5])
        if kind == "wsd":
            options["decay"] = draw.randint(1, options["steps"] - warmup)
        words = {name: Number(str(value)) for name, value in options.items()}
        if kind != "constant" and draw.random() < 0.5:
            words["min_lr"] = Number("0.001")
        return call(kind, **words)

    def train(self):
        settings = {"batch": Number(str(self.batch)), "microbatch": Number(str(self.microbatch)), "optimizer": self.optimizer()}
        if self.draw.random() < 0.5:
            settings["schedule"] = self.schedule()
        if self.draw.random() < 0.35:
            settings["clip"] = Number(self.draw.choice(["0.1", "0.5", "1.0"]))
        if self.draw.random() < 0.15:
            settings["clip_value"] = Number(self.draw.choice(["0.001", "0.01", "0.1"]))
        if self.draw.random() < 0.15:
            settings["ema"] = Number("0.9")
        if self.draw.random() < 0.1:
            settings["skip_spikes"] = Number("3")  # none in so few steps, but all layouts have its state
        if self.draw.random() < 0.3 or self.state.uses_dropout:
            settings["seed"] = Number(str(self.draw.randrange(1000)))
        return settings

    # --- All of it ---------------------------------------------------------------------------------------------------

    def program(self):
        self.dims()
        self.body = []
        scope = Scope(self.state)
        self.inputs(scope)
        statements = Statements(scope)
        for _ in range(self.draw.choice([1, 1, 2])):
            self.embedding(scope)
        statements.draw_statements(self.draw.choice([1, 2, 3, 4, 6, 8, 10]))
        if self.draw.random() < 0.002:
            statements.long_chain(self.draw.randint(60, 150))
        if self.draw.random() < 0.25:
            self.remember(scope)
        loss = self.loss(statements, scope)
        self.state.declarations.append(Model("m", self.body + scope.params + scope.body + [loss]))
        return Program(self.state.declarations, self.train(), [], self.microbatch == self.batch)


    def remember(self, scope):
        """A state: a running mean of a value over the batch, or of a parameter, which moves another."""
        fits = [x for x in scope.all() if "batch" in x.dims and len(x.dims) > 1 and OPEN not in x.dims
                and x.name not in self.state.entropies]
        local = scope.pick(fits)
        if not local:
            return
        dims = scope.some(local.dims - {"batch"}, 1, 2)
        name, rest = self.state.fresh("s"), [d for d in sorted(local.dims) if d not in dims]
        scope.params.append(Param([name], TypeOf(dims), Name(self.draw.choice(["zeros", "ones"])), state=True))
        seen = call(self.draw.choice(["mean", "sum", "max"]), scope.read(local).expression, *rest)
        mover = Name(name)
        if self.draw.random() < 0.25:  # as of a target network
            weight = scope.param(frozenset(dims), 0.5)
            seen = self.draw.choice([weight.expression, binary("*", weight.expression, seen)])
            mover = binary("+", weight.expression, mover)
        elif self.draw.random() < 0.25 and dims:
            product = self.turned(scope, name, dims)
            seen = self.draw.choice([product, binary("*", product, seen)])
            mover = binary("+", product, mover)
        seen = call("tanh", seen) if self.draw.random() < 0.5 else binary("*", seen, 0.25)
        moved = binary(self.draw.choice("+-*"), scope.read(local).expression, mover)
        scope.body.append(Update(name, binary("+", binary("*", Name(name), 0.5), seen)))
        scope.assign(self.state.fresh("v"), Value(moved, local.dims, "f32", local.scale + 1))

    def turned(self, scope, name, dims):
        """The state times a matrix, as in power iteration."""
        along = self.draw.choice(sorted(dims))
        twin = self.state.twin(along)
        product = call("dot", scope.param(frozenset(dims) | {twin}, 0.3).expression, name, along)
        return Call("rename", [product], {}, (twin, along))


def join_some(draw, program):
    """Parameters that are declared alike, in one line."""
    for declaration in bodies(program):
        for first in [s for s in declaration.body if isinstance(s, Param)]:
            alike = [s for s in declaration.body if isinstance(s, Param) and s is not first and s.names and first.names and
                     (s.type, s.init, s.no_decay, s.frozen, s.state) == (first.type, first.init, first.no_decay, first.frozen, first.state)]
            if alike and draw.random() < 0.3:
                first.names += [name for s in alike for name in s.names]
                for s in alike:
                    s.names = []
        declaration.body[:] = [s for s in declaration.body if not isinstance(s, Param) or s.names]


def moving(program, declaration=None, seen=()):
    """The names of parameters that the model, or a block, uses otherwise than by calls that are frozen."""
    declaration = declaration or program.model
    names = {name for s in declaration.body if isinstance(s, Param) and not s.state for name in s.names}
    for statement in statements_of(declaration.body):
        for e in walk(value_of(statement)) if value_of(statement) is not None else ():
            if isinstance(e, Call) and not e.frozen and e.function in program.blocks and e.function not in seen:
                names |= moving(program, program.blocks[e.function], (*seen, e.function))
    return names


def exempt_some(draw, program):
    """From weight decay; and, in some programs, from training, but not all: as declared, or by a setting."""
    params = [param for declaration in bodies(program) for param in declaration.body
              if isinstance(param, Param) and not param.state]
    frozen = draw.choice([0, 0, 0, 0.2, 0.6])
    for param in params:
        param.no_decay = draw.random() < 0.2
        param.frozen = draw.random() < frozen
    moved = moving(program)
    free = [param for param in params if moved & set(param.names)]
    if free and all(param.frozen for param in free):
        draw.choice(free).frozen = False
    names = sorted({name for param in params for name in param.names})
    if not frozen and len(names) > 1 and draw.random() < 0.15:
        some = draw.sample(names, draw.randint(1, len(names) - 1))
        key = draw.choice(["freeze", "trained"])
        left = moving(program) & (set(some) if key == "trained" else set(names) - set(some))
        # As freeze = "*p1" would freeze p11.
        if left and not any(name.endswith(tuple(some)) for name in set(names) - set(some)):
            program.train[key] = Text(", ".join(f"*{name}" for name in some))


def rule_some(draw, program):
    """What follows the optimizer: a parameter is bounded, or brought to a norm, or moved by another tensor of its block."""
    scanned = any(isinstance(e, Call) and e.function in program.blocks for d in bodies(program) for s in statements_of(d.body)
                  if isinstance(s, Scan) for inner in statements_of(s.body) if value_of(inner) is not None for e in walk(value_of(inner)))
    if draw.random() < 0.8 or scanned or "freeze" in program.train or "trained" in program.train:
        return
    for declaration in bodies(program):
        own = [s for s in declaration.body if isinstance(s, Param)]
        params = [s for s in own if not s.state and not s.frozen]
        for param in draw.sample(params, min(len(params), 1)):
            name, dims = param.names[0], set(param.type.dims)
            others = [s for s in own if set(s.type.dims) <= dims and s.names[0] != name]
            ways = [call("maximum", call("minimum", name, 0.4), -0.5), binary("*", name, 0.9)]
            if dims:
                some = draw.sample(sorted(dims), draw.randint(1, len(dims)))
                ways.append(binary("/", name, call("sqrt", binary("+", call("sum", call("square", name), *some), 0.5))))
            ways += [binary("*", name, call("minimum", binary("+", call("square", draw.choice(others).names[0]), 0.5), 1.5))] if others else []
            declaration.body.insert(len(declaration.body) - 1, Update(name, draw.choice(ways)))


def group_some(draw, program):
    """Groups of parameters by the ends of their names, with other arguments or another optimizer."""
    names = [name for declaration in bodies(program) for param in declaration.body if isinstance(param, Param)
             for name in param.names]
    for _ in range(draw.choice([0, 0, 0, 1, 2]) if names else 0):
        pattern = ", ".join("*" + draw.choice(names) for _ in range(draw.choice([1, 1, 2])))
        other = draw.choice([call("", lr=Number("0.03")), call("sgd", lr=Number("0.05"), momentum=Number("0.9"), **({"nesterov": Flag(True)} if draw.random() < 0.3 else {})),
                             call("adamw", lr=Number("0.01"), eps=Number("1e-2")), call("lion", lr=Number("0.003")),
                             call("adafactor", lr=Number("0.05"), eps1=Number("1e-4"))])
        if not other.function and draw.random() < 0.3 and program.train["optimizer"].function != "mine":
            other.keywords["weight_decay"] = Number(draw.choice(["0", "0.2"]))
        program.train[f'group "{pattern}"'] = other
    matrices = reference.start_of(program, 0).matrices if names and draw.random() < 0.15 else {}
    fitting = [n for n in names if all(inner for name, (inner, _) in matrices.items() if name.endswith(n))]
    if matrices and fitting:
        options = {"steps": Number("2"), "lr": Number(draw.choice(["0.02", "0.1"]))}
        options |= {"nesterov": Flag(False)} if draw.random() < 0.3 else {}
        options |= {name: Number("0.5") for name in ("momentum", "weight_decay") if draw.random() < 0.3}
        program.train[f'group "*{draw.choice(fitting)}"'] = call("muon", **options)


def is_of_records(name, together, alone):
    """Is it what each record has, whatever others are computed with it, and not the same for all?"""
    rows = [x[name].ordered(("batch", *(d for d in together[name].dims if d != "batch"))).data.detach() for x in (together, *alone)]
    separate = torch.cat(rows[1:])
    kinds = [x.to(torch.float64) for x in (rows[0], separate)]
    same = rows[0].shape == separate.shape and torch.allclose(*kinds, rtol=1e-9, atol=1e-12, equal_nan=True)
    return same and bool((kinds[0][1:] != kinds[0][:1]).any())


def name_outputs(draw, program):
    """Values of the model that each record has, for the trainer to write, in any order of dims."""
    if draw.random() < 0.6 or not any(isinstance(s, Input) for s in program.model.body):
        return
    try:
        trainer = reference.Trainer(program, reference.start_of(program, 0))
        count = max(2, trainer.settings.batch)
        together, alone = trainer.values(0, count), [trainer.values(n, 1) for n in range(count)]
    except (Wrong, KeyError):  # it is found unusable
        return
    named = {s.name for s in program.model.body if isinstance(s, Assign) and not s.more}
    fitting = [name for name in sorted(named) if isinstance(together.get(name), Tensor) and together[name].dims.count("batch") == 1
               and is_of_records(name, together, alone)]
    for number, name in enumerate(draw.sample(fitting, min(len(fitting), draw.choice([1, 1, 2, 3])))):
        value = together[name]
        dims = ["batch", *draw.sample([d for d in value.dims if d != "batch"], len(value.dims) - 1)]
        program.model.body.insert(-1, Output(f"out{number}", TypeOf(dims, None if value.kind == "f32" else value.kind), Name(name)))


def generate(seed, large_share=LARGE_SHARE):
    drawing = Drawing(seed, large_share)
    try:
        program = pruned(drawing.program())
    except TooLarge:
        program = None
    if not program or not any(isinstance(s, Param) and not s.state for body in bodies(program) for s in body.body):  # nothing to train
        return generate(f"{seed} again", large_share)
    if drawing.state.largest == LARGEST_IN_BLOCKS:
        add_layers(drawing.large, program)
    elif random.Random(f"added {seed}").random() < 0.1:
        random.Random(f"which is added {seed}").choice([add_many_dims, add_wide_layers])(program)
    exempt_some(drawing.draw, program)
    share_some(drawing.draw, program)
    average_some(drawing.draw, program)
    rule_some(drawing.draw, program)
    group_some(drawing.draw, program)
    join_some(drawing.draw, program)
    if not any(isinstance(s, Input) for s in program.model.body):  # no batch, so nothing to cut
        program.train["microbatch"], program.whole = program.train["batch"], True
    name_outputs(random.Random(f"outputs {seed}"), program)
    return program
