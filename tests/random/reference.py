"""Trains a program in PyTorch for a few steps: losses, gradient norms and the parameters after, each in double
precision, and how far rounding alone may move them.

The rounding is found by doing the same again with every result rounded as the precision has it, to the nearest and at
random: a program on which that alone makes a large difference is of no use."""
import collections
import math
import re
from dataclasses import dataclass, field

import numpy as np
import torch

import optimizers
import philox
import sampling
import tensors
from blocks import expanded
from constants import called, known_numbers, number_of, setting
from decays import decaying as decaying_of, matrices
from evaluate import Evaluation
from machine import MEAN
from prune import expressions
from tree import Call, Input, Mesh, Name, Shard, walk

STEPS = 3


def learning_rate(schedule, given, lr, step):
    warmup, steps = given.get("warmup", 0), given.get("steps", 0)
    low = given.get("min_lr", 0)
    if step < warmup:
        return lr * (step + 1) / warmup
    if schedule == "constant":
        return lr
    if step >= steps:
        return low
    share = (step - warmup) / (steps - warmup)
    if schedule == "linear":
        return lr + share * (low - lr)
    if schedule == "cosine":
        return low + 0.5 * (lr - low) * (1 + math.cos(math.pi * share))
    decay = given["decay"]
    return lr if step < steps - decay else lr + (step - (steps - decay)) / decay * (low - lr)


class Settings:
    """What train { } and the mesh say, in numbers."""

    def __init__(self, program, defined=()):
        self.known = known_numbers(program, defined)
        known = self.known
        self.ranks_of_data = ranks_over(program, program.batch_dim, known)
        microbatch = setting(program, "microbatch", None, known)
        self.batch = setting(program, "batch", (microbatch or 1) * self.ranks_of_data, known)
        self.clip = setting(program, "clip", 0, known)
        self.clip_value = setting(program, "clip_value", math.inf, known)
        self.ema = setting(program, "ema", 0, known)
        self.seed = setting(program, "seed", 0, known)
        self.groups = optimizers.chosen(program, known)
        self.schedule, self.rates = called(program.train.get("schedule", Name("constant")), known)
        self.freeze, self.trained = (patterns_of(program.train.get(key)) for key in ("freeze", "trained"))
        self.precision = program.train["precision"].name if "precision" in program.train else "fp32"


    def freezes(self, name):
        """By a setting: a parameter that it names, or one that is not among those to train."""
        def named(patterns):
            return any(re.fullmatch(pattern, name) for pattern in patterns)
        return named(self.freeze) or (self.trained and not named(self.trained))


def patterns_of(text):
    """Names with commas, in which * is any text."""
    words = text.text.split(",") if text else []
    return [".*".join(map(re.escape, word.strip().split("*"))) for word in words]


def ranks_over(program, dim, known):
    """Over how many ranks `shard` splits a dim."""
    mesh = {axis: number_of(size, known) for line in program.parallel if isinstance(line, Mesh)
            for axis, size in line.axes.items()}
    axes = [line.axis for line in program.parallel if isinstance(line, Shard) and dim in line.dims]
    return math.prod(mesh.get(axis, 1) for axis in axes)


# --- Data and weights ------------------------------------------------------------------------------------------------

def input_shifts(program):
    """How many tokens further each input begins: 0, or one more than what its next() names."""
    shifts = {}
    for statement in program.model.body:
        if isinstance(statement, Input):
            shifts[statement.name] = shifts[statement.source.arguments[0].name] + 1 if statement.source else 0
    return shifts


def takes_records(program):
    """Does each input have an array of its own?  Tokens alone are one stream."""
    fed = [s.type for s in program.model.body if isinstance(s, Input)]
    rows = [kind.dims for kind in fed if len(kind.dims) > 1]
    return any(kind.dtype != "i32" for kind in fed) or any(len(dims) > 2 or dims != rows[0] for dims in rows)


def sources(program):
    """Of each input the one whose data it gets."""
    found = {}
    for statement in program.model.body:
        if isinstance(statement, Input):
            found[statement.name] = found[statement.source.arguments[0].name] if statement.source else statement.name
    return found


def inputs_of(program, data, first, batch, sizes):
    """What the inputs get: `batch` sequences or records from number `first` on."""
    return (records_of if isinstance(data, dict) else tokens_of)(program, data, first, batch, sizes)


def records_of(program, arrays, first, batch, sizes):
    fed, shifts, source = {}, input_shifts(program), sources(program)
    for statement in program.model.body:
        if isinstance(statement, Input):
            rows = arrays[source[statement.name]][first:first + batch]
            if len(statement.type.dims) > 1:
                shift = shifts[statement.name]
                rows = rows[..., shift:shift + sizes[statement.type.dims[-1]]]
            wide = {"i32": np.int64, "bool": np.bool_}.get(statement.type.dtype, np.float64)
            fed[statement.name] = torch.from_numpy(rows.astype(wide))
    return fed


def length_of(program, sizes):
    """The tokens of a sequence."""
    return max([sizes[s.type.dims[-1]] for s in program.model.body if isinstance(s, Input) and len(s.type.dims) > 1] or [1])


def tokens_of(program, stream, first, batch, sizes):
    """Sequence n begins at n times its length."""
    fed, shifts, length = {}, input_shifts(program), length_of(program, sizes)
    for statement in program.model.body:
        if isinstance(statement, Input):
            own = length if len(statement.type.dims) > 1 else 1
            starts = [(first + n) * length + shifts[statement.name] for n in range(batch)]
            rows = np.stack([stream[at:at + own] for at in starts]).astype(np.int64)
            fed[statement.name] = torch.from_numpy(rows if len(statement.type.dims) > 1 else rows[:, 0])
    return fed


def empty_data(program, settings, sizes):
    """Zeros, of the shape that a run needs: a stream, or the array of each input with data of its own."""
    further = max([0, *input_shifts(program).values()])
    if not takes_records(program):
        return np.zeros((STEPS * settings.batch + 2) * length_of(program, sizes) + max(1, further) + 1, np.int64)
    source, shifts, arrays = sources(program), input_shifts(program), {}
    for statement in program.model.body:
        if isinstance(statement, Input) and not statement.source:
            shape = [STEPS * settings.batch + 2, *(sizes[d] for d in statement.type.dims[1:])]
            if len(shape) > 1:
                shape[-1] += max(shifts[name] for name in source if source[name] == statement.name)
            arrays[statement.name] = np.zeros(shape, {"i32": np.int64, "bool": np.bool_}.get(statement.type.dtype, np.float32))
    return arrays


def first_of(program, data, count, sizes):
    """The data of the first sequences or records."""
    if isinstance(data, dict):
        return {name: array[:count] for name, array in data.items()}
    return data[:count * length_of(program, sizes) + max([1, *input_shifts(program).values()])]


def only_labels(program):
    """Inputs that the program reads as labels of a cross_entropy only, where -100 is ignored."""
    read, labelled = collections.Counter(), collections.Counter()
    for expression in expressions(program):
        for e in walk(expression):
            if isinstance(e, Name):
                read[e.name] += 1
            if isinstance(e, Call) and e.function == "cross_entropy" and "ignore" not in e.keywords and isinstance(e.arguments[1], Name):
                labelled[e.arguments[1].name] += 1
    return {name for name in labelled if labelled[name] == read[name]}


def drawn_data(program, empty, fits, draw):
    """Tokens that fit what they index; in files of several types."""
    if not isinstance(empty, dict):
        return draw.integers(0, min([16, *fits.values()]), len(empty)).astype(np.uint16)
    source, arrays = sources(program), {}
    for name, zeros in empty.items():
        if zeros.dtype == np.float32:
            arrays[name] = draw.normal(0, 1, zeros.shape).astype(draw.choice([np.float32, np.float16, np.float64]))
            arrays[name] = arrays[name].astype(np.float16).astype(arrays[name].dtype)  # exact in all of them
        elif zeros.dtype == np.bool_:
            arrays[name] = draw.random(zeros.shape) < 0.6
        else:
            largest = min([16, *(fits[other] for other in fits if source[other] == name)])
            arrays[name] = draw.integers(0, largest, zeros.shape).astype(draw.choice([np.uint8, np.int16, np.int32, np.int64]))
            if {other for other in source if source[other] == name} <= only_labels(program):
                some = draw.random(zeros.shape) < 0.2
                arrays[name] = np.where(some, -100, arrays[name].astype(np.int16))
    return arrays


@dataclass
class Start:
    """What a run begins with: tokens or records, and the parameters with how they are declared."""
    data: object
    weights: dict
    decays: dict
    frozen: set
    matrices: dict  # of each: the positions of its dims in `in`, and of those in `out`
    evaluated: int  # sequences or records to evaluate: a batch, and a part of another
    evaluation: object  # the data that have just these
    prompt: list  # of what is sampled; empty: nothing is


def start_of(program, seed, own_weights=False, defined=()):
    """Draws tokens and weights that fit the program; own_weights: as the trainer initialises them itself."""
    program, settings = expanded(program), Settings(program, defined)
    draw = np.random.default_rng(seed)
    weights, decays, trained = {}, {}, set()
    decaying = decaying_of(program, settings.known)

    def parameter(name, param, sizes):
        if name not in weights:
            weights[name] = drawn(param, name, sizes, draw, settings, own_weights)
            decays[name] = plain_name(name) in decaying and not param.no_decay
        if not (param.frozen or param.state or settings.freezes(name)):
            trained.add(name)  # by one use at least
        return torch.from_numpy(weights[name])

    sizes = {d: settings.known.get(d, settings.batch) for d in program.dims}
    zeros = empty_data(program, settings, sizes)
    fed = inputs_of(program, zeros, 0, settings.batch, sizes)
    evaluation = Evaluation(program, settings.known, settings.batch, fed, parameter)
    evaluation.loss()
    of_plain = matrices(program, settings.known, evaluation.shared)
    data = drawn_data(program, zeros, evaluation.fits, draw)
    evaluated = settings.batch + int(np.random.default_rng([seed, 1]).integers(min(settings.batch - 1, 1), settings.batch))
    is_sampled = sampling.predicts(program, evaluation, takes_records(program))
    prompt = sampling.drawn_prompt(data, length_of(program, sizes), np.random.default_rng([seed, 2])) if is_sampled else []
    return Start(data, weights, decays, set(weights) - trained, {name: of_plain[plain_name(name)] for name in weights}, evaluated,
                 first_of(program, data, evaluated, sizes), prompt)


def plain_name(name):
    return ".".join(part for part in name.split(".") if not part.isdigit())


def drawn(param, name, sizes, draw, settings, own):
    kind, numbers = (param.init.name, []) if not hasattr(param.init, "function") else \
        (param.init.function, [number_of(a, settings.known) for a in param.init.arguments])
    count = math.prod(sizes)
    if own:
        return philox.initial(param.like or name, count, settings.seed, kind, numbers).reshape(sizes)
    if kind == "normal":
        values = draw.normal(0, numbers[0], count)
    elif kind == "uniform":
        values = draw.uniform(numbers[0], numbers[1], count)
    else:  # near what is said, and no two alike
        values = {"zeros": 0.0, "ones": 1.0}.get(kind, numbers[0] if numbers else 0) + draw.normal(0, 0.2, count)
    return values.astype(np.float32).reshape(sizes)


# --- Training --------------------------------------------------------------------------------------------------------

@dataclass
class Run:
    losses: list = field(default_factory=list)
    norms: list = field(default_factory=list)
    rates: list = field(default_factory=list)
    weights: dict = field(default_factory=dict)  # and their means
    evaluations: list = field(default_factory=list)  # of the first batch, and of all to evaluate, after the last step
    outputs: dict = field(default_factory=dict)      # of all to evaluate, after the last step
    logits: object = None                            # of the token after the prompt, after the last step
    largest: float = 0.0                             # of all values of the model
    elements: int = 0                                # of its largest tensor


class Trainer:
    def __init__(self, program, start, rounding=tensors.EXACT, defined=(), dtype=torch.float64):
        self.program, self.start, self.rounding, self.dtype = expanded(program), start, rounding, dtype
        self.settings = Settings(program, defined)
        self.weights = {name: torch.tensor(value, dtype=torch.float64, requires_grad=name not in start.frozen)
                        for name, value in start.weights.items()}
        self.groups = {name: optimizers.chosen_of(self.settings.groups, name) for name in self.weights}
        self.state = {name: {} for name in self.weights}
        self.means = {name: w.detach().clone() for name, w in self.weights.items() if self.settings.ema and name not in start.frozen}
        self.updates = 0
        self.largest, self.elements = 0.0, 0

    def evaluation_of(self, first, count, times=1, key=0, drops=False):
        """Of `count` sequences from number `first` on, each of them so many times."""
        s = self.settings
        sizes = {d: s.known.get(d, count) for d in self.program.dims}
        fed = inputs_of(self.program, self.start.data, first, count, sizes)
        fed = {name: torch.cat([x] * times) for name, x in fed.items()}
        return Evaluation(self.program, s.known, count * times, fed, lambda name, *_: self.weights[name], key, self.rounding, self.dtype, drops)

    def loss(self, step, drops=True, count=None, times=1):
        """Of the batch of the step, or of `count` sequences."""
        s = self.settings
        evaluation = self.evaluation_of(step * s.batch, count or s.batch, times, philox.step_key(s.seed, step), drops)
        loss = evaluation.loss()
        self.largest = max(self.largest, evaluation.largest)
        self.elements = max(self.elements, evaluation.elements)
        self.updated, self.ruled, self.running = evaluation.updated, evaluation.ruled, evaluation.means
        self.outputs = evaluation.outputs
        return loss

    def values(self, first, count):
        """All values of the model, in evaluation."""
        values = {}
        self.evaluation_of(first, count).loss(values)
        return values

    def evaluation(self):
        """Of all sequences to evaluate, as the mean over batches: means are those over all of them, while a sum, which
        doubles with the sequences, is that of a batch.  Of a loss that is no sum over sequences it means nothing."""
        count = self.start.evaluated
        once, twice = (float(self.loss(0, False, count, times).detach()) for times in (1, 2))
        return once - (twice - once) * (1 - self.settings.batch / count)

    def logits(self):
        """Of the token after the prompt."""
        s, prompt = self.settings, self.start.prompt
        length = length_of(self.program, s.known)
        fed = sampling.prompted(self.program, input_shifts(self.program), prompt, length)
        evaluation = Evaluation(self.program, s.known, 1, fed, lambda name, *_: self.weights[name], 0, self.rounding, self.dtype, drops=False)
        evaluation.loss()
        return sampling.next_logits(evaluation, prompt, length)

    def gradient(self, step):
        """The loss, and the gradient of each trained weight: None where the loss does not depend on it."""
        loss = self.loss(step)
        names = [name for name in self.weights if name not in self.start.frozen]
        if not loss.requires_grad:
            return float(loss), {name: None for name in names}
        return float(loss), dict(zip(names, torch.autograd.grad(loss, [self.weights[name] for name in names], allow_unused=True)))

    def step(self, step, run, updates=True):
        s = self.settings
        loss, gradient = self.gradient(step)
        norm = math.sqrt(sum(float((g * g).sum()) for g in gradient.values() if g is not None))
        rate = learning_rate(s.schedule, s.rates, s.groups[0][1].options["lr"], step)
        run.losses.append(loss)
        run.norms.append(norm)
        run.rates.append(rate)
        if updates:
            scale = min(1.0, s.clip / (norm + 1e-6)) if s.clip else 1.0
            self.updates += 1
            for name, after in self.updated.items():
                self.weights[name].data = after.to(torch.float64)
            for name, g in gradient.items():
                g = torch.zeros_like(self.weights[name]) if g is None else self.rounding.with_noise(g, norm)
                g = (self.rounding.of_clipped(g * scale) if scale < 1 else g).clamp(-s.clip_value, s.clip_value)
                self.update(name, g, rate)
                self.weights[name].data = self.stored(self.weights[name].data)
            for name, mean in self.means.items():
                mean.lerp_(self.weights[name].detach(), 1 - s.ema)
            for name, after in self.ruled(self.weights).items():
                self.weights[name].data = self.stored(after.to(torch.float64))
            for name, (other, share) in self.running.items():
                mean = share * self.weights[name].detach() + (1 - share) * self.weights[other].detach()
                self.weights[name].data = self.stored(mean)

    def stored(self, weight):
        """Weights are f32: those that are equal in truth may differ in their last bit."""
        draw = self.rounding.draw
        return weight if draw is None else tensors.Rounding(bits=24, draw=draw).apply(weight)

    def update(self, name, gradient, rate):
        """The rates of groups keep their ratio."""
        group, base = self.groups[name], self.settings.groups[0][1]
        optimizers.update(group, self.weights[name].data, gradient, self.state[name], self.updates,
                          rate * group.options["lr"] / base.options["lr"], self.start.decays[name],
                          self.start.matrices[name])


def train(program, start, rounding=tensors.EXACT, skipped=(), defined=(), dtype=torch.float64):
    """skipped: the steps that change nothing, as overflows of fp16 do."""
    trainer, run = Trainer(program, start, rounding, defined, dtype), Run()
    for step in range(STEPS):
        trainer.step(step, run, step not in skipped)
    run.evaluations = [float(trainer.loss(0, drops=False)), trainer.evaluation()]
    if trainer.outputs:
        trainer.loss(0, False, start.evaluated)
        run.outputs = {name: value.numpy() for name, value in trainer.outputs.items()}
    run.logits = trainer.logits() if start.prompt else None
    run.largest, run.elements = trainer.largest, trainer.elements
    run.weights = {name: w.detach().numpy() for name, w in trainer.weights.items()}
    begun = trainer.updates > 0  # else the trainer's means have no values yet
    run.weights |= {MEAN + name: mean.numpy() * begun for name, mean in trainer.means.items()}
    return run


def rounded_runs(program, start, precision, skipped=(), defined=()):
    """The same in a narrower precision: rounded to the nearest, and at random, of halves more often; and in PyTorch's
    own f32, which rounds inside of what is one operation here."""
    how = tensors.PRECISIONS[precision]
    seeds = (None, 1, 2, 3) if precision == "fp32" else (None, *range(1, 16))
    for seed in seeds:
        yield train(program, start, tensors.Rounding(**how, seed=seed), skipped, defined)
    yield train(program, start, skipped=skipped, defined=defined, dtype=torch.float32)
