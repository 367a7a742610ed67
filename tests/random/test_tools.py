#!/usr/bin/python3
"""Tests of the generator's own parts: the printer and the parser are inverse, PyTorch computes each program that is drawn,
the numbers of Philox are those of its authors, pruning leaves what leads to the loss, and each program that once failed has a kind."""
import ast
import random
import unittest

import numpy as np
import torch

import decays
import found
import generate
import kinds
import philox
import reference
import tables
import tensors
from parser import parse
from printer import program_text
from prune import pruned


def can_be_done(cells, stages):
    """Each rank in its order, as far as possible."""
    done, left, before = set(), [list(line) for line in cells], None
    while before != len(done):
        before = len(done)
        for line in left:
            while line and all(action in done or "-" in action for action in reads(line[0], stages)):
                done.add(line.pop(0))
    return not any(left)


def reads(cell, stages):
    stage, micro = map(int, cell[1:].split("."))
    if cell[0] == "F":
        return [f"F{stage - 1}.{micro}"]
    if cell[0] == "W":
        return [f"B{stage}.{micro}"]
    return [f"F{stage}.{micro}"] + ([f"B{stage + 1}.{micro}"] if stage + 1 < stages else [])


class Tools(unittest.TestCase):
    def test_printer_and_parser_are_inverse(self):
        for seed in range(60):
            program = generate.generate(seed)
            self.assertEqual(parse(program_text(program)), program, f"program {seed}")

    def test_outputs_as_one_may_write_them(self):
        lines = ["output y", "output z = y * 2.0", "output t : [batch, d] = y"]
        text = "dim batch\ndim d = 2\nmodel m {\n" + "".join(f"    {line}\n" for line in ["y = x", *lines, "loss mean(z)"]) + "}\n"
        self.assertEqual([line.strip() for line in program_text(parse(text)).splitlines() if "output" in line], lines)

    def test_tables(self):
        """They come back from the text; each action is once there, and after what it reads; many orders are drawn."""
        draw = random.Random(1)
        for number in range(200):
            ranks, micros, chunks = draw.randint(1, 4), draw.randint(1, 5), draw.randint(1, 3)
            cells = tables.random_cells(draw, ranks, micros, chunks)
            kinds = sorted({cell[0] for line in cells for cell in line})
            self.assertIn(kinds, (["B", "F"], ["B", "F", "W"]))
            expected = [f"{kind}{stage}.{micro}" for kind in kinds for micro in range(micros) for stage in range(ranks * chunks)]
            self.assertEqual(sorted(cell for line in cells for cell in line), sorted(expected))
            self.assertTrue(can_be_done(cells, ranks * chunks), cells)
            text = ("".join(f"# file a.csv: {','.join(line)}\n" for line in cells) +
                    f'parallel {{\n    mesh pp = {ranks}\n    pipeline h over pp, schedule = "a.csv"\n}}\n')
            self.assertEqual(parse(text).parallel[1].options["schedule"].cells, cells)
            self.assertEqual(program_text(parse(text)), text)
        self.assertGreater(len({str(tables.random_cells(draw, 2, 3)) for _ in range(200)}), 50)

    def test_programs_are_right(self):
        for seed in range(60):
            program = generate.generate(seed)
            reference.train(program, reference.start_of(program, seed))

    def test_philox(self):
        """The known answers of Random123."""
        ones = 0xFFFFFFFF
        for key, counter, answer in [((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
                                     ((ones, ones), (ones,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD))]:
            self.assertEqual(tuple(int(word) for word in philox.philox(key, counter)), answer)

    def test_pruning(self):
        text = ("dim batch\ndim seq = 2\nmodel m {\n    input tokens : i32[batch, seq]\n    param w : [seq] = ones\nBODY"
                "    loss mean(cast(tokens, f32) * w)\n}\n")
        dead = "    v1 = w + 1.0\n    repeat 2 {\n        v1 = v1 * 0.5\n    }\n"
        self.assertEqual(program_text(pruned(parse(text.replace("BODY", dead)))), text.replace("BODY", ""))

    def test_rounding_is_no_more_than_half_a_step(self):
        from tensors import Rounding
        x = torch.from_numpy(np.random.default_rng(1).normal(size=1000))
        for bits in (8, 11, 24):
            error = ((Rounding(bits)(x) - x) / x).abs().max()
            self.assertLessEqual(float(error), 2.0**-bits)

    def test_what_attention_sums_over_is_gone(self):
        """Heads of the bias are not those of a later product: it does not decay."""
        text = ("dim batch\ndim seq = 2\ndim place = 2\ndim heads = 3\ndim embed = 2\nmodel m {\n    input tokens : i32[batch, seq]\n"
                "    param q : [place, embed] = ones\n    param k : [heads, embed] = ones\n    param b : [place, heads] = ones\n"
                "    param w : [heads] = ones\n    y = attend(q, k, k, place -> heads, embed, bias = b)\n"
                "    loss mean(dot(broadcast(y, heads), w, heads))\n}\n")
        self.assertEqual(decays.decaying(parse(text), {}), {"q", "k", "w"})

    def test_partial_sums_of_gradients_are_rounded(self):
        """Of 2, -2 and 0.005 the sum is not known to 0.004; that of a parameter's own uses, which are added up in f32, is."""
        text = ("dim batch\ndim seq = 2\nmodel m {\n    input tokens : i32[batch, seq]\n    param w : [seq] = ones\nBODY}\n"
                "train {\n    batch = 1\n    microbatch = 1\n    optimizer = sgd(lr = 0.1)\n}\n")
        for uses, least, most in (("    x = w * 1.0\n    loss mean(x * 0.01) + mean(x * 4.0) - mean(x * 4.0)\n", 1e-3, 2e-2),
                                  ("    loss mean(w * 0.01) + mean(w * 4.0) - mean(w * 4.0)\n", 0, 1e-4)):
            program = parse(text.replace("BODY", uses))
            start = reference.start_of(program, 1)
            norms = [float(run.norms[0]) for run in reference.rounded_runs(program, start, "bf16")]
            self.assertTrue(least <= max(norms) - min(norms) <= most, norms)

    def test_a_clipped_gradient_may_be_1(self):
        """5 clipped to 1 is less by 2e-7, which f32 may round away: an optimizer may ask for that."""
        text = ("dim batch\ndim seq = 2\nmodel m {\n    input tokens : i32[batch, seq]\n    param w : [] = zeros\n    loss w * 5.0\n}\n"
                "train {\n    batch = 1\n    microbatch = 1\n    clip = 1.0\n    optimizer = sgd(lr = 1.0)\n}\n")
        program = parse(text)
        start = reference.start_of(program, 1)
        moved = [float(start.weights["w"] - run.weights["w"]) for run in reference.rounded_runs(program, start, "fp32")]
        self.assertGreater(max(moved) - min(moved), 4e-7, moved)
        clipped = tensors.Rounding(bits=24, seed=1).of_clipped(torch.full((100,), 1 - 2e-7, dtype=torch.float64))
        self.assertTrue(clipped.min() < 1 <= clipped.max())


class Found(unittest.TestCase):
    def test_each_kind_stands_once_and_each_later_one_has_a_program(self):
        table = next(node.value for node in ast.parse(open(kinds.__file__).read()).body
                     if isinstance(node, ast.Assign) and node.targets[0].id == "KINDS")
        names = [key.value for key in table.keys]
        self.assertEqual(len(names), len(set(names)))
        shown = {kind for _, kind in found.fixtures(False)}
        self.assertEqual(shown - set(names), set())
        self.assertEqual({name for name in names if kinds.KINDS[name].later} - shown, set())


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=0)
