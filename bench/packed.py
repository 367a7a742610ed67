#!/usr/bin/env python3
"""How evenly attention over packed documents is dealt to the ranks of context parallelism: a simulation, nothing is timed.

A query sees the keys of its own document up to itself, and blocks without a common document cost nothing.  The sequence
is cut into `blocks` for each rank, dealt forth and back: 1 is straight, 2 is zig-zag, more is finer.  Printed are the
work of the busiest rank over the mean, under `attend = gather`, where each rank sees all keys at once; and the time of a
ring, whose every step takes as long as its busiest rank, over that of ranks that are always busy.  Lengths of documents
are drawn from a log-normal distribution (sigma 1.5); figures are means over sequences.

    bench/packed.py                          the table of docs/sharding.md: half a minute
    bench/packed.py --seq 4096 --draws 2     a quick look
"""
import argparse

import numpy as np


def documents(draw, mean, seq):
    """The first place of the document of each place; mean 0: one document."""
    first, at = np.zeros(seq, int), 0
    while mean and at < seq:
        length = max(1, int(draw.lognormal(np.log(mean) - 1.5 ** 2 / 2, 1.5)))
        first[at:at + length] = at
        at += length
    return first


def work(first, blocks):
    """[blocks, blocks]: the pairs of a query in one block and a key that it sees in another."""
    seq = len(first)
    ends = np.arange(blocks + 1) * (seq // blocks)
    seen = np.arange(seq) + 1 - first
    below = np.clip(ends - first[:, None], 0, seen[:, None])  # keys before each end
    return np.diff(below, axis=1).reshape(blocks, -1, blocks).sum(axis=1)


def owners(ranks, blocks):
    """The rank of each block."""
    number = np.arange(ranks * blocks)
    return np.where(number // ranks % 2, ranks - 1 - number % ranks, number % ranks)


def imbalance(pairs, ranks, blocks):
    """(of gathered keys, of a ring)."""
    own = owners(ranks, blocks)[:, None] == np.arange(ranks)
    met = own.T.astype(float) @ pairs @ own  # of each rank's queries and keys
    step = (np.arange(ranks)[:, None] + np.arange(ranks)) % ranks
    ring = np.take_along_axis(met, step, axis=1).max(axis=0).sum()
    return met.sum(axis=1).max() / met.sum() * ranks, ring / met.sum() * ranks


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seq", type=int, default=32768)
    arguments.add_argument("--draws", type=int, default=8, help="sequences for each row")
    arguments.add_argument("--documents", type=int, nargs="*", default=[0, 512, 2048, 8192], help="mean lengths; 0: one document")
    arguments.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8, 16])
    arguments.add_argument("--blocks", type=int, nargs="*", default=[1, 2, 4, 8, 16], help="of each rank")
    said = arguments.parse_args()
    print(f"documents  cp  {'  '.join(f'{blocks:>4} blocks' for blocks in said.blocks)}     (gathered, ring)")
    for mean in said.documents:
        firsts = [documents(np.random.default_rng(i), mean, said.seq) for i in range(said.draws if mean else 1)]
        for ranks in said.ranks:
            cells = [np.mean([imbalance(work(first, ranks * blocks), ranks, blocks) for first in firsts], axis=0)
                     for blocks in said.blocks]
            print(f"{mean or 'one':>9}  {ranks:>2}  {'  '.join('%5.2f %5.2f' % tuple(cell) for cell in cells)}")


if __name__ == "__main__":
    main()
