"""YARN's division for many parents at once is what it is for each alone, written down step by step."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace_fair_share.yarn.division import divided

#: Weight, minimum, maximum, and whether it is active.
Child = tuple[float, int, int, bool]

WEIGHTS = st.sampled_from([0.0, 0.1, 0.25, 1.0, 2.0, 7.5]) | st.floats(2**-20, 1e6, width=32)
AMOUNTS = st.integers(0, 50) | st.integers(0, 2**40)
CHILDREN = st.lists(st.tuples(WEIGHTS, AMOUNTS, AMOUNTS | st.just(2**62), st.booleans()), max_size=6)


def one_by_one(total: int, children: list[Child]) -> list[int]:
    """Section 3.2 and 3.3 of the specification, for one parent."""
    shares = [0] * len(children)
    rest = []
    for place, (weight, least, most, active) in enumerate(children):
        if most > 0 and active and weight <= 0:
            shares[place] = least
        elif most > 0 and active:
            rest.append(place)
    left = max(0, total - sum(shares))

    def at(ratio: float) -> list[int]:
        return [
            math.trunc(min(max(children[place][0] * ratio, children[place][1]), children[place][2])) for place in rest
        ]

    wanted = min(left, sum(children[place][2] for place in rest))
    upper, lower = 1.0, 0.0
    while sum(at(upper)) < wanted:
        upper *= 2
    for _ in range(25):
        middle = (lower + upper) / 2
        if sum(at(middle)) == wanted:
            upper = middle
            break
        if sum(at(middle)) < wanted:
            lower = middle
        else:
            upper = middle
    for place, share in zip(rest, at(upper), strict=True):
        shares[place] = share
    return shares


@given(st.lists(st.tuples(AMOUNTS, CHILDREN), min_size=1, max_size=5))
def test_each_parent_divides_as_if_it_were_alone(parents: list[tuple[int, list[Child]]]) -> None:
    children = [child for _, each in parents for child in each]
    owner = np.array([place for place, (_, each) in enumerate(parents) for _ in each], np.int64)
    weight = np.array([child[0] for child in children], np.float64)
    least = np.array([child[1] for child in children], np.int64)
    most = np.array([child[2] for child in children], np.int64)
    active = np.array([child[3] for child in children], np.bool_)

    found = divided(np.array([total for total, _ in parents]), owner, weight, least, most, active)

    assert found.tolist() == [share for total, each in parents for share in one_by_one(total, each)]
