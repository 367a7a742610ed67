"""cover.py -- what `make check` has of long lists of cases, of which `make check-all` (ALL) has all: some, or combinations of
choices in which every pair of choices is, and which show what one choice, or two together, do wrong."""
import itertools
import os
import random

ALL = os.environ.get("ALL") == "1"
TRIES = 30  # combinations of which the one with most new pairs is taken


def some(cases, *numbers, every=ALL):
    """The cases of these numbers; with ALL every one."""
    cases = list(cases)
    return cases if every else [cases[number] for number in numbers]


def pairs_of(case):
    return set(itertools.combinations(case.items(), 2))


def pairs_to_cover(choices, is_allowed):
    return {pair for a, b in itertools.combinations(choices, 2) for pair in itertools.product(
        [(a, value) for value in choices[a]], [(b, value) for value in choices[b]]) if is_allowed(dict(pair))}


def filled(begin, choices, is_allowed, missing, draw, cost):
    """The pair of choices, and of each other one the value that covers most, and costs least; None if none is allowed."""
    case = dict(begin)
    for name in draw.sample(list(choices), len(choices)):
        values = [value for value in draw.sample(choices[name], len(choices[name])) if is_allowed({**case, name: value})]
        if name not in case and not values:
            return None
        if name not in case:
            case[name] = max(values, key=lambda value: (sum(
                ((a, x), (name, value)) in missing or ((name, value), (a, x)) in missing for a, x in case.items()),
                -cost({**case, name: value})))
    return {name: case[name] for name in choices}


def covering(choices, is_allowed=lambda case: True, cost=lambda case: 1):
    """choices: {name: values}.  is_allowed(case) and cost(case) are asked of parts of a case, too: each pair that it allows must be a part of
    a case that it allows.  Cases are the same each time, and rather of low cost."""
    missing, draw = pairs_to_cover(choices, is_allowed), random.Random(1)
    while missing:
        begins = draw.choices(sorted(missing, key=str), k=TRIES)
        cases = [case for begin in begins if (case := filled(begin, choices, is_allowed, missing, draw, cost))]
        best = max(cases, key=lambda case: len(pairs_of(case) & missing) / cost(case))
        missing -= pairs_of(best)
        yield best


def product(**choices):
    """All combinations of the choices as lists of values; without ALL some in which every pair is."""
    return list(itertools.product(*choices.values())) if ALL else [list(case.values()) for case in covering(choices)]
