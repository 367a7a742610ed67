#!/usr/bin/python3
"""Judges programs: compiles and runs each, and compares loss, gradient norm and parameters of three steps with PyTorch.

    judge.py FILE.mdl... [--variants NAME,...] [--seed N] [--mpc PATH] [--keep] [-- OPTION OF MPC...]

Each variant is one way to compile and run the same program (variants.py lists them; default: what the first lines of the
file say, as fuzz.py writes them, else base); the same for the seed of data and weights.  Options behind `--`
go to the compiler, such as `--recompute full`; those that change the program itself (-D, --set, --mesh) belong into the
file, since PyTorch reads only that."""
import argparse
import functools
import os
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import outcome
import reference
from compare import Expectation
from constants import known_numbers, number_of
from machine import ROOT, How, Tools, Workplace
from outcome import Outcome
from parser import parse
from printer import program_text
from tensors import Wrong
from tree import Mesh, Name, Pipeline, Program, Shard

# What --verify-passes says of a value that is infinite for its weights and that the loss does not depend on: the zero
# gradient that it gets makes no number of those before it, where PyTorch gives none.
UNUSED_INFINITY = re.compile(r"though the loss has a slope: .* is infinite or NaN, as %\S+ is \(")


@dataclass
class Case:
    """A program, and how it is compiled and run.  `then`: the layout under which a checkpoint of it goes on."""
    program: Program
    how: How = field(default_factory=How)
    seed: int = 1
    then: list = None

    def text(self):
        return program_text(self.program)


def ranks_of(program):
    known = known_numbers(program)
    meshes = [line for line in program.parallel if isinstance(line, Mesh)]
    return int(np.prod([number_of(size, known) for mesh in meshes for size in mesh.axes.values()])) if meshes else 1


def lacks_schedule(program, done):
    """Does mpc say that it can run the stages only one after the other?"""
    pipelines = [line for line in program.parallel if isinstance(line, Pipeline)]
    is_naive = any(line.options.get("schedule") == Name("naive") for line in pipelines)
    return pipelines and not is_naive and "= help: schedule = naive" in done.output


def lacks_heads(program, done):
    """Does mpc say that attention has no heads to exchange a sequence for, by any of its errors?"""
    exchanges = [line for line in program.parallel if isinstance(line, Shard) and line.options.get("attend") == Name("all_to_all")]
    errors = done.output.count(": error: ")
    return exchanges and errors and errors == done.output.count(": error: attention cannot exchange ")


def lacks_layers(program, done):
    """Does mpc say that no product is one of fp8, or that none can be divided into blocks?"""
    said = any(f"error: precision = fp8 {words}" in done.output for words in ("is for products", "changes nothing"))
    return reference.Settings(program).precision == "fp8" and said


def lacks_chunks(program, done):
    """Does mpc say that the loss cannot be computed in chunks?"""
    errors = done.output.count(": error: ")
    return errors and errors == done.output.count(": error: train.loss_chunks: ")


def lacks_dims(program, done):
    """Does mpc say that an optimizer's products would have too many dims, by any of its errors?"""
    errors = done.output.count(": error: ")
    return errors and errors == done.output.count("by itself, and the product would have more than 8 dims")


def lacks_forwards(program, done):
    """Does mpc say that there are not so many forward passes to run together, no loop for them, or no updates in it?"""
    errors = done.output.count(": error: ")
    said = [f"offload [^\\n]*just_in_time {number}[^\\n]*: (a step has {few}|the model has no repeat)" for number, few in ((2, 1), (3, "[12]"))]
    said.append(r"offload [^\n]*just_in_time [2-9][^\n]*: no weights of a repeat are trained")
    return errors == 1 and any(re.search(words, done.output) for words in said)


def lacks_repeat(program, done):
    """Does mpc say that it offloads nothing of what is asked for, since that is of repeats?"""
    errors = done.output.count(": error: ")
    return errors == 1 and re.search(r"offload [^\n]*(params|activations)[^\n]*: the model has no (repeat|weights in a repeat), and other", done.output)


def lacks_records(program, done):
    """Does mpc say that no output may be written of a value, by any of its errors?  What generate.py looks at in numbers is not
    all that may be."""
    errors = done.output.count(": error: ")
    return errors and errors == len(re.findall(r": error: the output '\w+' (of a record depends|reads)", done.output))


def refusal(program, done):
    reasons = {"unstaged": lacks_schedule, "headless": lacks_heads, "unlayered": lacks_layers,
               "unchunked": lacks_chunks, "wide": lacks_dims, "untogether": lacks_forwards, "unrepeated": lacks_repeat, "unwritten": lacks_records}
    return next((status for status, is_reason in reasons.items() if is_reason(program, done)), "refused")


def is_verification(how):
    return any(word.startswith("--verify-passes") for word in how.options)


def is_whole(done):
    """Was all evaluated?  Of a loss that mixes the sequences of a batch only whole batches are."""
    return "note: evaluation leaves out the last " not in done.output


class Judge:
    """Judges cases in one folder; what PyTorch says of a program is kept for its next variant."""

    def __init__(self, tools, folder):
        self.workplace, self.known = Workplace(tools, folder), {}

    # --- PyTorch -----------------------------------------------------------------------------------------------------

    def start(self, case):
        return reference.start_of(case.program, case.seed, case.how.own_weights)

    def expectation(self, case, start, skipped=()):
        """Of all layouts alike."""
        precision = reference.Settings(case.program).precision
        alone = Program(case.program.declarations, case.program.train, [])
        batch = reference.Settings(case.program).batch
        key = (program_text(alone), case.seed, case.how.own_weights, batch, precision, skipped)
        if key not in self.known:
            self.known = {} if len(self.known) > 20 else self.known
            exact = reference.train(case.program, start, skipped=skipped)
            rounded = functools.partial(reference.rounded_runs, case.program, start, precision, skipped)
            self.known[key] = Expectation(exact, rounded, precision)
        return self.known[key]

    # --- mpc ---------------------------------------------------------------------------------------------------------

    def judge(self, case):
        try:
            start = self.start(case)
            expected = self.expectation(case, start)
        except (Wrong, KeyError) as problem:
            return Outcome("unusable", f"PyTorch: {problem}")
        if expected.too_large():
            return Outcome("unusable", expected.too_large())
        self.workplace.write(case.text(), start)
        refused = self.compiled(case)
        if refused:
            return expected.sure(refused)
        if is_verification(case.how):
            return Outcome("ok")
        return self.continued(case, expected) if case.then else self.trained(case, start, expected)

    def compiled(self, case, out="out"):
        """Checks and compiles; None if that went well."""
        how = self.workplace.with_budget(case.how)
        done = self.workplace.check(how)
        if done.status != 0:
            return outcome.failure(done, "check", refusal(case.program, done))
        done = self.workplace.compile(how, ranks_of(case.program), out, with_cc=not is_verification(how))
        if done.status != 0 and UNUSED_INFINITY.search(done.output):
            return Outcome("unusable", "an infinite value that nothing reads")
        if done.status != 0:
            return outcome.failure(done, "compile", "late")
        never_awaited = self.workplace.never_awaited(out)
        return Outcome("wrong", "never waited for", ", ".join(never_awaited)) if never_awaited else None

    def trained(self, case, start, expected):
        load = None if case.how.own_weights else "start.safetensors"
        done = self.workplace.train(case.how, ranks_of(case.program), reference.STEPS, load)
        if done.status != 0:
            return self.unfinished(done, expected)
        log = self.workplace.log()
        skipped = tuple(entry["step"] - 1 for entry in log if entry["grad_norm"] is None)
        if skipped and reference.Settings(case.program).precision == "fp16":
            expected = self.expectation(case, start, skipped)
            if expected.too_large():
                return Outcome("unusable", expected.too_large())
            log = [{**entry, "grad_norm": expected.exact.norms[entry["step"] - 1]} if entry["grad_norm"] is None else entry
                   for entry in log]
        return expected.compare(log, self.workplace.saved(), 0, is_whole(done), self.workplace.outputs(), self.workplace.sampled(done))

    def unfinished(self, done, expected):
        """A trainer that did not end well; status 3 says that its numbers are none."""
        if done.status == 3:
            return expected.sure(Outcome("wrong", "not a number", done.output))
        return outcome.failure(done, "trainer", "crash")

    def continued(self, case, expected):
        """Two steps under one layout, the third under another."""
        done = self.workplace.train(case.how, ranks_of(case.program), reference.STEPS - 1)
        if done.status != 0:
            return self.unfinished(done, expected)
        os.replace(self.workplace.folder / "end.safetensors", self.workplace.folder / "half.safetensors")
        other = Program(case.program.declarations, case.program.train, case.then)
        self.workplace.write(program_text(other))
        refused = self.compiled(Case(other, case.how), "then")
        if refused:
            return refused
        done = self.workplace.train(case.how, ranks_of(other), reference.STEPS, "half.safetensors", "then")
        if done.status != 0:
            return self.unfinished(done, expected)
        log = self.workplace.log()[-1:]
        return expected.compare(log, self.workplace.saved(), reference.STEPS - 1, is_whole(done), self.workplace.outputs(), self.workplace.sampled(done))


def read_case(path, seed=None, options=()):
    """(the case, the name of the variant that the first lines of the file say)"""
    text = Path(path).read_text()
    said = dict(re.findall(r"(seed|variant) ([^\s,]+)", "".join(re.findall(r"^#.*\n", text, re.M))))
    case = Case(parse(text), How(options=tuple(options)), seed if seed is not None else int(said.get("seed", 1)))
    then = "".join(f"{line}\n" for line in re.findall(r"^# then (.*)", text, re.M))
    files = "".join(re.findall(r"^# file .*\n", text, re.M))
    case.then = parse(f"{files}parallel {{\n{then}}}\n").parallel if then else None
    return case, said.get("variant", "base")


def main():
    import variants
    arguments = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    arguments.add_argument("files", nargs="+")
    arguments.add_argument("--variants", default="")
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--mpc", default=ROOT / os.environ.get("BUILD", "build") / "mpc")
    arguments.add_argument("--keep", help="work in this folder, and leave it")
    words = sys.argv[1:]
    behind = words.index("--") if "--" in words else len(words)
    said, options = arguments.parse_args(words[:behind]), words[behind + 1:]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(said.mpc, Path(folder) / "shared")
        judge = Judge(tools, said.keep or Path(folder) / "work")
        failed = False
        for path in said.files:
            case, own = read_case(path, said.seed, options)
            for name in said.variants.split(",") if said.variants else [own]:
                variants.prepare([name], tools)
                found = judge.judge(variants.apply(name, case, tools))
                failed |= found.is_failure
                print(f"{path}: {name}: {found.signature}")
                if found.is_failure or found.status == "unusable":
                    print("    " + "\n    ".join(found.detail.splitlines()[-30:]))
    sys.exit(failed)


if __name__ == "__main__":
    main()
