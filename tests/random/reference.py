"""Trains a program in PyTorch for a few steps: losses, gradient norms and the parameters after, each in double
precision, and how far rounding alone may move them.

The rounding is found by doing the same again with every result rounded as the precision has it, to the nearest and at
random: a program on which that alone makes a large difference is of no use."""
import math
from dataclasses import dataclass, field

import numpy as np
import torch

import optimizers
import philox
import tensors
from constants import called, known_numbers, number_of, setting
from decays import decaying as decaying_of, matrices
from evaluate import Evaluation
from tree import Input, Mesh, Name, Shard

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
        self.seed = setting(program, "seed", 0, known)
        self.groups = optimizers.chosen(program, known)
        self.schedule, self.rates = called(program.train.get("schedule", Name("constant")), known)
        self.precision = program.train["precision"].name if "precision" in program.train else "fp32"


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


def inputs_of(program, stream, first, batch, sizes):
    """The tokens of `batch` sequences from number `first` on: sequence n begins at n times its length."""
    fed = {}
    shifts = input_shifts(program)
    length = max([sizes[s.type.dims[-1]] for s in program.model.body if isinstance(s, Input) and len(s.type.dims) > 1] or [1])
    for statement in program.model.body:
        if isinstance(statement, Input):
            own = length if len(statement.type.dims) > 1 else 1
            starts = [(first + n) * length + shifts[statement.name] for n in range(batch)]
            rows = np.stack([stream[at:at + own] for at in starts]).astype(np.int64)
            fed[statement.name] = torch.from_numpy(rows if len(statement.type.dims) > 1 else rows[:, 0])
    return fed, length


@dataclass
class Start:
    """What a run begins with: tokens, and the parameters with how they are declared."""
    stream: np.ndarray
    weights: dict
    decays: dict
    frozen: set
    matrices: dict  # of each: the positions of its dims in `in`, and of those in `out`


def start_of(program, seed, own_weights=False, defined=()):
    """Draws tokens and weights that fit the program; own_weights: as the trainer initialises them itself."""
    settings = Settings(program, defined)
    draw = np.random.default_rng(seed)
    weights, decays, frozen = {}, {}, set()
    decaying = decaying_of(program, settings.known)

    def parameter(name, param, sizes):
        if name not in weights:
            weights[name] = drawn(param, name, sizes, draw, settings, own_weights)
            decays[name] = plain_name(name) in decaying and not param.no_decay
            if param.frozen:
                frozen.add(name)
        return torch.from_numpy(weights[name])

    sizes = {d: settings.known.get(d, settings.batch) for d in program.dims}
    zeros = np.zeros(100000, np.int64)
    fed, length = inputs_of(program, zeros, 0, settings.batch, sizes)
    evaluation = Evaluation(program, settings.known, settings.batch, fed, parameter)
    evaluation.loss()
    of_plain = matrices(program, settings.known, evaluation.shared)
    largest = min([16, *evaluation.fits.values()])
    count = (STEPS * settings.batch + 2) * length + max([1, *input_shifts(program).values()]) + 1
    return Start(draw.integers(0, largest, count).astype(np.uint16), weights, decays, frozen,
                 {name: of_plain[plain_name(name)] for name in weights})


def plain_name(name):
    return ".".join(part for part in name.split(".") if not part.isdigit())


def drawn(param, name, sizes, draw, settings, own):
    kind, numbers = (param.init.name, []) if not hasattr(param.init, "function") else \
        (param.init.function, [number_of(a, settings.known) for a in param.init.arguments])
    count = math.prod(sizes)
    if own:
        return philox.initial(name, count, settings.seed, kind, numbers).reshape(sizes)
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
    weights: dict = field(default_factory=dict)


class Trainer:
    def __init__(self, program, start, rounding=tensors.EXACT, defined=(), dtype=torch.float64):
        self.program, self.start, self.rounding, self.dtype = program, start, rounding, dtype
        self.settings = Settings(program, defined)
        self.weights = {name: torch.tensor(value, dtype=torch.float64, requires_grad=name not in start.frozen)
                        for name, value in start.weights.items()}
        self.groups = {name: optimizers.chosen_of(self.settings.groups, name) for name in self.weights}
        self.state = {name: {} for name in self.weights}
        self.updates = 0

    def gradient(self, step):
        s = self.settings
        sizes = {d: s.known.get(d, s.batch) for d in self.program.dims}
        fed, _ = inputs_of(self.program, self.start.stream, step * s.batch, s.batch, sizes)
        key = philox.step_key(s.seed, step)
        evaluation = Evaluation(self.program, s.known, s.batch, fed, lambda name, *_: self.weights[name], key,
                                self.rounding, self.dtype)
        loss = evaluation.loss()
        names = [name for name in self.weights if name not in self.start.frozen]
        if not loss.requires_grad:
            return float(loss), {name: torch.zeros_like(self.weights[name]) for name in names}
        found = torch.autograd.grad(loss, [self.weights[name] for name in names], allow_unused=True)
        return float(loss), {name: torch.zeros_like(self.weights[name]) if g is None else g
                             for name, g in zip(names, found)}

    def step(self, step, run, updates=True):
        s = self.settings
        loss, gradient = self.gradient(step)
        norm = math.sqrt(sum(float((g * g).sum()) for g in gradient.values()))
        rate = learning_rate(s.schedule, s.rates, s.groups[0][1].options["lr"], step)
        run.losses.append(loss)
        run.norms.append(norm)
        run.rates.append(rate)
        if updates:
            scale = min(1.0, s.clip / (norm + 1e-6)) if s.clip else 1.0
            self.updates += 1
            for name, g in gradient.items():
                g = (self.rounding.with_noise(g, norm) * scale).clamp(-s.clip_value, s.clip_value)
                self.update(name, g, rate)

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
    run.weights = {name: w.detach().numpy() for name, w in trainer.weights.items()}
    return run


def rounded_runs(program, start, precision, skipped=(), defined=()):
    """The same in a narrower precision: rounded to the nearest, and at random, of halves more often; and in PyTorch's
    own f32, which rounds inside of what is one operation here."""
    how = tensors.PRECISIONS[precision]
    seeds = (None, 1, 2, 3) if precision == "fp32" else (None, *range(1, 16))
    runs = [train(program, start, tensors.Rounding(**how, seed=seed), skipped, defined) for seed in seeds]
    return runs + [train(program, start, skipped=skipped, defined=defined, dtype=torch.float32)]
