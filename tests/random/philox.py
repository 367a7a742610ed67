"""Philox4x32-10 and what trainers draw with it, written from docs/trainer.md and the paper (Salmon et al., SC 2011)."""
import numpy as np

MASK = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
DROPOUT_STREAM = 0x64726F70
COPY_STREAM = 0x6B657973


def philox(key, counter):
    """Four words for each element: key is two words, counter four; each a number or an array."""
    key = [np.asarray(word, np.uint64) for word in key]
    x0, x1, x2, x3 = np.broadcast_arrays(*[np.asarray(word, np.uint64) for word in counter])
    for _ in range(10):
        product0, product2 = np.uint64(0xD2511F53) * x0, np.uint64(0xCD9E8D57) * x2
        x0, x1, x2, x3 = ((product2 >> HALF) ^ x1 ^ key[0], product2 & MASK,
                          (product0 >> HALF) ^ x3 ^ key[1], product0 & MASK)
        key = [(key[0] + np.uint64(0x9E3779B9)) & MASK, (key[1] + np.uint64(0xBB67AE85)) & MASK]
    return x0, x1, x2, x3


def step_key(seed, step):
    """The key of all dropout of a step."""
    return int(philox((seed, DROPOUT_STREAM), (step, 0, 0, 0))[0])


def folded(key, number):
    """A key made of a key and a number; both may be arrays."""
    return philox((key, COPY_STREAM), (number, 0, 1, 0))[0]


def copy_key(key, copy):
    """The key inside of copy number `copy` of a repeat."""
    return int(folded(key, copy))


def random(key, instance, sizes):
    """Numbers from 0 to 1: 24 bits of a hash of the places along each dim, the first one first."""
    word = folded(key, (1 << 20) + instance)
    for size in sizes:
        word = folded(np.asarray(word)[..., None], np.arange(size, dtype=np.uint64))
    return (word & np.uint64(0xFFFFFF)).astype(np.float64) * 2.0**-24


def kept(key, instance, index, rate):
    """Which elements dropout keeps, by their index in the whole tensor."""
    word = philox((key, instance), (index & MASK, index >> HALF, 0, 0))[0]
    return (word >> np.uint64(8)).astype(np.float64) * 2.0**-24 >= np.float32(rate)


def hash_of(name):
    """FNV-1a of 32 bits."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def initial(name, count, seed, kind, numbers):
    """Elements of the parameter `name`, by its initialiser."""
    if kind in ("zeros", "ones", "constant"):
        return np.full(count, {"zeros": 0.0, "ones": 1.0}.get(kind, numbers[0] if numbers else 0), np.float32)
    index = np.arange(count, dtype=np.uint64)
    x = philox((seed & 0xFFFFFFFF, hash_of(name)), (index & MASK, index >> HALF, 0, 0))
    u = [(word.astype(np.float64) + 0.5) / 2.0**32 for word in x[:2]]
    if kind == "normal":
        return (numbers[0] * np.sqrt(-2 * np.log(u[0])) * np.cos(2 * np.pi * u[1])).astype(np.float32)
    return (numbers[0] + (numbers[1] - numbers[0]) * u[0]).astype(np.float32)
