"""The ways to compile and run one program, each with its own options and bounds."""
import copy
import random

from machine import How
from tree import Name


def with_options(*options):
    def change(case, tools):
        case.how.options += options
    return change


def with_precision(precision):
    def change(case, tools):
        case.program.train["precision"] = Name(precision)
    return change


def own_weights(case, tools):
    case.how.own_weights = True


def cuda(case, tools):
    case.how.target = "cuda"


def sanitized(case, tools):
    case.how.sanitize = True


# name: (what it changes, how often it is drawn)
CHANGES = {
    "base": (with_options(), 0),
    "own-weights": (own_weights, 1),
    "none": (with_options("--recompute=none"), 0.5),
    "full": (with_options("--recompute=full"), 2),
    "selective": (with_options("--recompute=selective"), 2),
    "verify": (with_options("--verify-passes"), 2),
    "exact": (with_options("--verify-passes=exact"), 2),
    "bf16": (with_precision("bf16"), 2),
    "fp16": (with_precision("fp16"), 1.5),
    "cuda": (cuda, 1.5),
    "sanitize": (sanitized, 0.7),
}


def apply(name, case, tools):
    """The case in this variant; names are joined by `+`: bf16+full."""
    case = copy.deepcopy(case)
    for part in name.split("+"):
        CHANGES[part][0](case, tools)
    return case


def drawn(seed, names, count):
    """Which variants of program number `seed` are tried: base, and some of the others, or of those that are named."""
    draw = random.Random(f"variants {seed}")
    if names:
        return names if len(names) <= count + 1 else draw.sample(names, count)
    weights = {name: weight for name, (_, weight) in CHANGES.items() if weight}
    chosen = set(draw.choices(list(weights), list(weights.values()), k=count))
    return ["base", *sorted(chosen)]


def prepare(names, tools):
    """Builds what these variants need, once."""
    if names is None or any("cuda" in name for name in names):
        tools.prepare_device()
    if names is None or any("sanitize" in name for name in names):
        tools.prepare_sanitized()
