"""The ways to compile and run one program, each with its own options and bounds."""
import copy

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
    if not (tools.device / "lib64").exists():
        tools.prepare_device()


def sanitized(case, tools):
    case.how.sanitize = True
    if not (tools.shared / "runtime").exists():
        tools.prepare_sanitized()


CHANGES = {
    "base": with_options(),
    "own-weights": own_weights,
    "none": with_options("--recompute=none"),
    "full": with_options("--recompute=full"),
    "selective": with_options("--recompute=selective"),
    "verify": with_options("--verify-passes"),
    "exact": with_options("--verify-passes=exact"),
    "bf16": with_precision("bf16"),
    "fp16": with_precision("fp16"),
    "cuda": cuda,
    "sanitize": sanitized,
}


def apply(name, case, tools):
    """The case in this variant; names are joined by `+`: bf16+full."""
    case = copy.deepcopy(case)
    for part in name.split("+"):
        CHANGES[part](case, tools)
    return case
