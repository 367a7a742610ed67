#!/usr/bin/python3
"""Tests of the generator's own parts: the printer and the parser are inverse, PyTorch computes each program that is drawn,
the numbers of Philox are those of its authors, and pruning leaves what leads to the loss."""
import unittest

import numpy as np
import torch

import generate
import philox
import reference
from parser import parse
from printer import program_text
from prune import pruned


class Tools(unittest.TestCase):
    def test_printer_and_parser_are_inverse(self):
        for seed in range(60):
            program = generate.generate(seed)
            self.assertEqual(parse(program_text(program)), program, f"program {seed}")

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


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(verbosity=0)
