"""Are a trainer's numbers PyTorch's?  Tolerances come from the rounded runs of the reference, which take longer than all
else, and are made only for numbers that are not nearly the exact ones, one by one until they allow them."""
import functools
from dataclasses import dataclass, replace

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


BOUNDS = {"fp32": Bounds(50, 1e-5, 2e-6, 2e-3), "bf16": Bounds(10, 0.012, 0.002, 0.4), "fp16": Bounds(10, 0.002, 0.0005, 0.3),
          "fp8": Bounds(5, 0.1, 0.02, 2)}  # of all numbers, though mpc rounds operands of some products alone: nothing more is said
SUM_CHUNK = 1024  # of codegen/kernel/kernel.h


def bounds_of(precision, elements):
    """Without vectors a trainer adds up to SUM_CHUNK terms one after the other, and terms that are alike are all rounded in
    the same direction, by up to half of 2**-23 of what there is.  elements: of the largest tensor, of which there are sums."""
    bounds = BOUNDS[precision]
    if precision != "fp32":
        return bounds
    terms = min(elements, SUM_CHUNK)
    return replace(bounds, relative=max(bounds.relative, terms * 2**-24 / 2), absolute=max(bounds.absolute, terms * 2e-8))


FLOOR = {"losses": 0.05, "norms": 0.005}  # what is smaller may be off by as much as this may
LARGEST = 1e4  # above it little can be said
LARGEST_INSIDE = 1e8  # of what the model computes on the way
ILL_CONDITIONED = "ill-conditioned"


class Expectation:
    """The exact run of a program, and the bounds around it."""

    def __init__(self, exact, make_rounded, precision):
        self.exact, self.made, self.to_make = exact, [], make_rounded()
        self.bounds = bounds_of(precision, exact.elements)

    def runs(self):
        """The rounded ones; each is made when it is first asked for."""
        yield from self.made
        for run in self.to_make:
            self.made.append(run)
            yield run

    @functools.cached_property
    def rounded(self):
        return list(self.runs())

    def error_of(self, run, of):
        with np.errstate(invalid="ignore", over="ignore"):
            return float(np.max(np.abs(np.asarray(of(run)) - of(self.exact)), initial=0))

    def error(self, of):
        """The largest difference that rounding makes."""
        return float(np.max([self.error_of(run, of) for run in self.rounded]))

    def nearest(self, of):
        """The tolerance without rounded runs."""
        return self.bounds.relative * float(np.max(np.abs(of(self.exact)), initial=0)) + self.bounds.absolute

    def tolerance(self, of):
        return self.bounds.times * self.error(of) + self.nearest(of)

    def allows(self, difference, of):
        """By as many rounded runs as it takes: one more can only allow more."""
        nearest = self.nearest(of)
        return difference <= nearest or any(difference <= self.bounds.times * self.error_of(run, of) + nearest for run in self.runs())

    def too_large(self):
        """Why the exact run itself says nothing, or None."""
        for name in ("losses", "norms"):
            if any(not np.isfinite(value) or abs(value) > LARGEST for value in getattr(self.exact, name)):
                return f"{name[:-1] if name == 'norms' else 'loss'} too large"
        return None

    def unusable(self):
        """Why a difference from this program says nothing, or None.  A gradient that is 0 since its terms cancel is so only
        nearly, and what a large value makes of it is anything; of an infinite one it may be 0, or no number."""
        if max(run.largest for run in [self.exact, self.rounded[-1]]) > LARGEST_INSIDE:
            return "a value is too large"
        for name in ("losses", "norms"):
            for step, value in enumerate(getattr(self.exact, name)):
                error = self.error(lambda run: getattr(run, name)[step])
                if not np.isfinite(error):
                    return f"{name[:-1] if name == 'norms' else 'loss'} too large"
                if self.bounds.times * error > self.bounds.useless * (abs(value) + FLOOR[name]):
                    return ILL_CONDITIONED
        return None

    def sure(self, found):
        """The outcome, unless rounding alone may make the numbers wrong.  What --verify-passes says holds for numbers that
        rounding changes: its interpreter has f64."""
        if found.status not in ("wrong", "verifier"):
            return found
        unusable = self.unusable()
        if unusable and not (found.status == "verifier" and unusable == ILL_CONDITIONED):
            return Outcome("unusable", unusable)
        return found

    def compare(self, log, saved, first=0, is_whole=True, outputs=None, sampled=None):
        """An outcome for the log of steps from `first` on, for the evaluation of all sequences or of a batch of them, and for
        the parameters, outputs and the sampled token after the last step."""
        return self.sure(self.compare_all(log, saved, first, is_whole, outputs or {}, sampled))

    def compare_all(self, log, saved, first, is_whole, outputs, sampled):
        if [entry["step"] for entry in log] != list(range(first + 1, len(self.exact.losses) + 1)):
            return Outcome("wrong", "the log lacks steps", str(log))
        for entry in log:
            wrong = self.compare_step(entry, entry["step"] - 1)
            if wrong:
                return wrong
        return self.compare_evaluation(log[-1], int(is_whole)) or self.compare_outputs(outputs) or self.compare_sampled(sampled) or self.compare_parameters(saved)

    def compare_outputs(self, found):
        if set(found) != set(self.exact.outputs):
            return Outcome("wrong", "names of outputs", str(sorted(set(found) ^ set(self.exact.outputs))))
        for name, expected in self.exact.outputs.items():
            kind = {"b": "bool", "i": "int32"}.get(expected.dtype.kind, "float32")
            if (found[name].shape, str(found[name].dtype)) != (expected.shape, kind):
                return Outcome("wrong", "an output's shape or type", f"{name}: {found[name].dtype} {found[name].shape}, PyTorch {kind} {expected.shape}")
            of = lambda run: run.outputs[name].astype(float)  # noqa: E731
            if not np.isfinite(of(self.exact)).all() or np.max(np.abs(of(self.exact)), initial=0) > LARGEST:
                continue
            difference = float(np.max(np.abs(found[name].astype(float) - of(self.exact)), initial=0))
            if not self.allows(difference, of):
                return Outcome("wrong", "an output", f"{name} is off by {difference:.3g} (tolerance {self.tolerance(of):.2g})")
        return None

    def compare_sampled(self, token):
        """The most likely one, of those that rounding leaves."""
        logits = self.exact.logits
        if logits is None or not np.isfinite(logits).all() or np.max(np.abs(logits)) > LARGEST:
            return None
        of = lambda run: run.logits  # noqa: E731
        if token is not None and 0 <= token < len(logits) and self.allows(float(np.max(logits) - logits[token]) / 2, of):
            return None
        return Outcome("wrong", "a sampled token", f"{token}, PyTorch {int(np.argmax(logits))} of logits {logits} (tolerance {self.tolerance(of):.2g})")

    def compare_evaluation(self, entry, which):
        expected, found = self.exact.evaluations[which], entry.get("eval_loss", "not there")
        of = lambda run: run.evaluations[which]  # noqa: E731
        if found == "not there":  # without inputs there is nothing to evaluate
            return None
        if found is not None and self.allows(abs(found - expected), of) or not np.isfinite(self.tolerance(of)):
            return None
        detail = f"{found}, PyTorch {expected:.9g} (tolerance {self.tolerance(of):.2g})"
        return Outcome("wrong", "loss of an evaluation", detail)

    def compare_step(self, entry, step):
        for key, name in (("loss", "losses"), ("grad_norm", "norms"), ("lr", "rates")):
            expected, found = getattr(self.exact, name)[step], entry[key]
            if key == "grad_norm" and found is None and (expected == 0 or self.exact.weights == {}):
                continue
            of = lambda run: getattr(run, name)[step]  # noqa: E731
            is_rate = key == "lr"
            rate_tolerance = 1e-6 * abs(expected) + 1e-12
            difference = np.nan if found is None else abs(found - expected)
            if not (difference <= rate_tolerance if is_rate else self.allows(difference, of)):
                tolerance = rate_tolerance if is_rate else self.tolerance(of)
                detail = f"step {step + 1}: {key} {found}, PyTorch {expected:.9g} (tolerance {tolerance:.2g})"
                when = "step 1" if step == 0 else "a later step"
                return Outcome("wrong", f"{key} of {when}", detail)
        return None

    def compare_parameters(self, saved):
        if set(saved) != set(self.exact.weights):
            return Outcome("wrong", "names of parameters", str(sorted(set(saved) ^ set(self.exact.weights))))
        for name, expected in self.exact.weights.items():
            of = lambda run: run.weights[name]  # noqa: E731
            if saved[name].shape != expected.shape:
                return Outcome("wrong", "a parameter's shape", f"{name}: {saved[name].shape}, PyTorch {expected.shape}")
            difference = float(np.max(np.abs(saved[name] - expected), initial=0))
            if not self.allows(difference, of):
                return Outcome("wrong", "a parameter after the last step",
                               f"{name} is off by {difference:.3g} (tolerance {self.tolerance(of):.2g})")
        return Outcome("ok")
