"""Random numbers, order, schedules, conversions: against published vectors, formulas and NumPy."""
import math
import subprocess

import numpy as np
import pytest
from conftest import RUNTIME, compile_program, philox


def show(numbers, *arguments, **more):
    return subprocess.run([numbers, *map(str, arguments)], check=True, capture_output=True, **more).stdout


# Known answers of Philox4x32-10: Random123, tests/kat_vectors.
@pytest.mark.parametrize("counter, key, answer", [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
])
def test_philox_known_answers(numbers, counter, key, answer):
    assert show(numbers, "philox", *key.split(), *counter.split()).decode().split() == answer.split()
    words = philox([int(w, 16) for w in key.split()], [int(w, 16) for w in counter.split()])
    assert words == [int(w, 16) for w in answer.split()]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 1000, 4097])
def test_order_is_a_permutation(numbers, count):
    order = [int(line) for line in show(numbers, "permute", count, 7, 0).split()]
    assert sorted(order) == list(range(count))


def test_order_depends_on_seed_and_epoch(numbers):
    orders = [show(numbers, "permute", 1000, seed, epoch) for seed, epoch in [(7, 0), (7, 1), (8, 0), (7, 1 << 32)]]
    assert len(set(orders)) == 4


def test_order_looks_random(numbers):
    order = np.array(show(numbers, "permute", 4000, 3, 5).split(), int)
    # Of a random permutation: correlation with the identity has deviation 1/sqrt(n); fixed points are Poisson(1);
    # a step to the neighbour happens about twice.
    assert abs(np.corrcoef(order, np.arange(4000))[0, 1]) < 5 / math.sqrt(4000)
    assert (order == np.arange(4000)).sum() < 9
    assert (np.abs(np.diff(order)) == 1).sum() < 13


def lr_by_formula(kind, lr, least, warmup, steps, decay, t):
    if t < warmup:
        return lr * (t + 1) / warmup
    if kind == "constant":
        return lr
    if t >= steps:
        return least
    u = (t - warmup) / (steps - warmup)
    return {"linear": lr + u * (least - lr),
            "cosine": least + (lr - least) * (1 + math.cos(math.pi * u)) / 2,
            "wsd": lr if t < steps - decay else lr + (t - steps + decay) / decay * (least - lr)}[kind]


@pytest.mark.parametrize("warmup, steps, decay", [(0, 10, 4), (3, 20, 5), (5, 6, 1), (0, 1, 0), (4, 4, 0)])
@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "wsd"])
def test_schedule(numbers, kind, warmup, steps, decay):
    index = ["constant", "linear", "cosine", "wsd"].index(kind)
    shown = [float(x) for x in show(numbers, "lr", index, 6e-4, 6e-5, warmup, steps, decay, steps + 3).split()]
    wanted = [lr_by_formula(kind, 6e-4, 6e-5, warmup, steps, decay, t) for t in range(steps + 3)]
    np.testing.assert_allclose(shown, wanted, rtol=1e-14)


def test_conversions_to_f32_are_exact(numbers):
    shown = np.frombuffer(show(numbers, "widen"), np.uint32)
    bits = np.arange(1 << 16, dtype=np.uint16)
    half = bits.view(np.float16).astype(np.float32)
    finite = ~np.isnan(half)
    np.testing.assert_array_equal(shown[:1 << 16][finite], half.view(np.uint32)[finite])
    assert np.isnan(shown[:1 << 16].view(np.float32)[~finite]).all()
    np.testing.assert_array_equal(shown[1 << 16:], bits.astype(np.uint32) << 16)


def test_conversions_from_f32_round_to_nearest_even(numbers):
    rng = np.random.default_rng(3)
    halves = np.arange(0x7BFF, dtype=np.uint16)
    between = (halves.view(np.float16).astype(np.float64) + (halves + 1).astype(np.uint16).view(np.float16)) / 2
    values = np.concatenate([
        rng.integers(0, 1 << 32, 20000).astype(np.uint32).view(np.float32),       # any bits
        between.astype(np.float32), np.nextafter(between.astype(np.float32), np.float32(0)),  # ties, and just not
        np.float32([0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 1e-8, 2**-25, 2**-24, 2**-14]),
        (rng.integers(0, 1 << 16, 2000).astype(np.uint32) << 16 | 0x8000).view(np.float32)])  # ties of bf16
    shown = np.frombuffer(show(numbers, "narrow", input=values.tobytes()), np.uint16).reshape(-1, 2)
    nan = np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(shown[~nan, 0], values.astype(np.float16).view(np.uint16)[~nan])
    bits = values.view(np.uint32).astype(np.uint64)
    brain = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(shown[~nan, 1], brain[~nan])
    assert np.isnan((shown[nan, 1].astype(np.uint32) << 16).view(np.float32)).all()
    assert np.isnan(shown[nan, 0].view(np.float16)).all()


def test_checksums(tmp_path):
    """By vectors or not, of any alignment, with several threads: as the formula says."""
    subprocess.run([compile_program(tmp_path, "checksum", [RUNTIME / "processor_has.c"])], check=True)
