"""Are a trainer's numbers PyTorch's?  Tolerances come from the rounded runs of the reference."""
from dataclasses import dataclass

import numpy as np

from outcome import Outcome


@dataclass
class Bounds:
    """Of a precision: how often the largest error of the rounded runs is allowed, what is allowed of a number itself and
    besides, and above which share of the number a bound would say nothing."""
    times: float
    relative: float
    absolute: float
    useless: float


BOUNDS = {"fp32": Bounds(50, 1e-5, 2e-6, 2e-3), "bf16": Bounds(10, 0.012, 0.002, 0.4), "fp16": Bounds(10, 0.002, 0.0005, 0.3)}
FLOOR = {"losses": 0.05, "norms": 0.005}  # what is smaller may be off by as much as this may
LARGEST = 1e4  # above it little can be said
ILL_CONDITIONED = "ill-conditioned"


class Expectation:
    """The exact run of a program, and the bounds around it."""

    def __init__(self, exact, rounded, precision):
        self.exact, self.rounded, self.bounds = exact, rounded, BOUNDS[precision]

    def error(self, of):
        """The largest difference that rounding makes."""
        with np.errstate(invalid="ignore", over="ignore"):
            return float(np.max([np.max(np.abs(np.asarray(of(run)) - of(self.exact)), initial=0) for run in self.rounded]))

    def tolerance(self, of):
        size = float(np.max(np.abs(of(self.exact)), initial=0))
        return self.bounds.times * self.error(of) + self.bounds.relative * size + self.bounds.absolute

    def unusable(self):
        """Why nothing can be said of this program, or None."""
        for name in ("losses", "norms"):
            for step, value in enumerate(getattr(self.exact, name)):
                error = self.error(lambda run: getattr(run, name)[step])
                if not np.isfinite(value) or abs(value) > LARGEST or not np.isfinite(error):
                    return f"{name[:-1] if name == 'norms' else 'loss'} too large"
                if self.bounds.times * error > self.bounds.useless * (abs(value) + FLOOR[name]):
                    return ILL_CONDITIONED
        return None

    def compare(self, log, saved, first=0):
        """An outcome for the log of steps from `first` on, and for the parameters after the last."""
        if [entry["step"] for entry in log] != list(range(first + 1, len(self.exact.losses) + 1)):
            return Outcome("wrong", "the log lacks steps", str(log))
        for entry in log:
            wrong = self.compare_step(entry, entry["step"] - 1)
            if wrong:
                return wrong
        return self.compare_evaluation(log[-1]) or self.compare_parameters(saved)

    def compare_evaluation(self, entry):
        expected, found = self.exact.evaluations[0], entry.get("eval_loss", "not there")
        tolerance = self.tolerance(lambda run: run.evaluations[0])
        if found == "not there" or not np.isfinite(tolerance):  # without inputs there is nothing to evaluate
            return None
        if found is None or not abs(found - expected) <= tolerance:
            return Outcome("wrong", "loss of an evaluation", f"{found}, PyTorch {expected:.9g} (tolerance {tolerance:.2g})")
        return None

    def compare_step(self, entry, step):
        for key, name in (("loss", "losses"), ("grad_norm", "norms"), ("lr", "rates")):
            expected, found = getattr(self.exact, name)[step], entry[key]
            if key == "grad_norm" and found is None and (expected == 0 or self.exact.weights == {}):
                continue
            tolerance = 1e-6 * abs(expected) + 1e-12 if key == "lr" else self.tolerance(lambda run: getattr(run, name)[step])
            if found is None or not abs(found - expected) <= tolerance:
                detail = f"step {step + 1}: {key} {found}, PyTorch {expected:.9g} (tolerance {tolerance:.2g})"
                when = "step 1" if step == 0 else "a later step"
                return Outcome("wrong", f"{key} of {when}", detail)
        return None

    def compare_parameters(self, saved):
        if set(saved) != set(self.exact.weights):
            return Outcome("wrong", "names of parameters", str(sorted(set(saved) ^ set(self.exact.weights))))
        for name, expected in self.exact.weights.items():
            tolerance = self.tolerance(lambda run: run.weights[name])
            difference = float(np.max(np.abs(saved[name] - expected), initial=0))
            if saved[name].shape != expected.shape or not difference <= tolerance:
                return Outcome("wrong", "a parameter after the last step",
                               f"{name} is off by {difference:.3g} (tolerance {tolerance:.2g})")
        return Outcome("ok")
