"""Mixtures of experts: what top_k, dispatch, combine and balance mean, token by token."""
import itertools
import math

import torch

import tensors
from tensors import Tensor


def top_k(x, dim, choice, count):
    """Places of the largest elements, of equal ones the first, behind all other dims."""
    others = tuple(d for d in x.dims if d != dim)
    order = torch.sort(x.aligned(others + (dim,)).detach(), dim=-1, descending=True, stable=True).indices
    return Tensor(order[..., :count], others + (choice,), choice=choice)


def queue_of(chosen, kept, batch):
    """The dims along which tokens queue, the batch outermost."""
    return tuple(sorted((d for d in chosen.dims if d not in kept), key=lambda d: d != batch))


def routes(chosen, kept, batch):
    """(index of the kept dims, index along the queue, expert, place), in the order of the queue."""
    queue = queue_of(chosen, kept, batch)
    experts = chosen.aligned(tuple(kept) + queue)
    for group in itertools.product(*[range(chosen.size(d)) for d in kept]):
        taken = {}
        for at in itertools.product(*[range(chosen.size(d)) for d in queue]):
            expert = int(experts[group + at])
            yield group, at, expert, taken.get(expert, 0)
            taken[expert] = taken.get(expert, 0) + 1


def dispatch(x, chosen, experts, slots, count, capacity, within, batch, turn):
    """The rows, and the place in the queue of the first one.  Without a capacity there are as many slots as a queue is long: more
    are only more zeros.  Copy `turn` of several has its share of as many as the longest queue can have."""
    kept = (within,) if within else ()
    queue = queue_of(chosen, kept, batch)
    length = math.prod(chosen.size(d) for d in queue)
    round_, rounds = turn
    longest = length // (chosen.size(chosen.choice) if chosen.choice in queue else 1)
    most = math.ceil(longest / rounds) if rounds > 1 else length
    room = most if capacity is None else min(most, math.ceil(capacity * length / count))
    first = round_ * room
    rest = tuple(d for d in x.dims if d not in chosen.dims)
    rows = x.aligned(kept + queue + rest).expand(*[chosen.size(d) for d in kept + queue], *[x.size(d) for d in rest])
    result = torch.zeros([chosen.size(d) for d in kept] + [count, room] + [x.size(d) for d in rest], dtype=x.data.dtype)
    found = [(group + (expert, place - first), group + at) for group, at, expert, place in routes(chosen, kept, batch)
             if first <= place < first + room]
    if found:
        to, start = [torch.tensor(index) for index in zip(*[pair[0] for pair in found])], \
            [torch.tensor(index) for index in zip(*[pair[1] for pair in found])]
        result = result.index_put(to, rows[tuple(start)])
    return Tensor(result, kept + (experts, slots) + rest), first


def combine(y, chosen, experts, slots, batch, first):
    kept = tuple(d for d in chosen.dims if d in y.dims)
    queue = queue_of(chosen, kept, batch)
    rest = tuple(d for d in y.dims if d not in kept + (experts, slots))
    rows, room = y.aligned(kept + (experts, slots) + rest), y.size(slots)
    zero = torch.zeros([y.size(d) for d in rest], dtype=y.data.dtype)
    found = {group + at: rows[group + (expert, place - first)] if first <= place < first + room else zero
             for group, at, expert, place in routes(chosen, kept, batch)}
    sizes = [chosen.size(d) for d in kept + queue]
    data = torch.stack([found[at] for at in itertools.product(*map(range, sizes))])
    return Tensor(data.reshape(sizes + list(zero.shape)), kept + queue + rest).ordered(chosen.dims + rest)


def balance(gate, chosen, experts, dims):
    tokens = [d for d in gate.dims if d != experts and (not dims or d in dims)]
    is_chosen = Tensor((chosen.data.unsqueeze(-1) == torch.arange(gate.size(experts))).to(gate.data.dtype),
                       chosen.dims + (experts,))
    share = tensors.mean(tensors.summed(is_chosen, [d for d in chosen.dims if d not in gate.dims]), tokens)
    product = tensors.pointwise(torch.mul, share, tensors.mean(gate, tokens))
    result = tensors.summed(product, [experts])
    return Tensor(gate.size(experts) * result.data, result.dims)
