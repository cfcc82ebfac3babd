"""Shares of a whole tree: from the root down each pool divides its share among its children, by its policy.

    drf   every resource separately
    fair  memory only; the children get nothing of the other resources
    fifo  the child that started first gets everything

Source: section 3 of the specification of YARN's FairScheduler.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.resources import RESOURCE_NAMES
from headrace_fair_share.hdrf.arrays import RESOURCES, Bools, Floats, Ints
from headrace_fair_share.hdrf.input_arrays import Layout
from headrace_fair_share.yarn.division import divided

_MEMORY = RESOURCE_NAMES.index("memory")


class Sharers(NamedTuple):
    """Attributes of all elements that the division reads. Arrays have the shape (5, elements) if per resource, else (elements,)."""

    weight: Floats
    #: Minimum in whole units of YARN. If it is above the maximum, the minimum counts as the maximum, too.
    least: Ints
    #: Maximum in whole units of YARN.
    most: Ints
    #: True for operations that take part, and for pools with such an operation below them.
    active: Bools
    #: True for pools whose policy is fifo.
    fifo: Bools
    #: True for pools that divide only memory among their children.
    memory_only: Bools
    #: Start of operations, in milliseconds of Unix time.
    began_ms: Ints


def tree_division(layout: Layout, total: Ints, sharers: Sharers) -> Ints:
    """Divide a total of shape (5,) over the whole tree. Return the share of every element."""
    shares = np.zeros((RESOURCES, layout.size), np.int64)
    shares[:, 0] = total
    most = np.maximum(sharers.least, sharers.most)
    for family in layout.families:
        first_only = sharers.fifo[family.parents]
        by_weight = family.only(~first_only)
        children, owner = by_weight.children, by_weight.owner
        weight, active = sharers.weight[children], sharers.active[children]
        for resource in range(RESOURCES):
            amounts = shares[resource, by_weight.parents]
            least, cap = sharers.least[resource, children], most[resource, children]
            found = divided(amounts, owner, weight, least, cap, active)
            if resource != _MEMORY:
                found[by_weight.spread(sharers.memory_only[by_weight.parents])] = 0
            shares[resource, children] = found
        to_first = family.only(first_only)
        first = _first_active(to_first.owner, to_first.children, sharers)
        shares[:, first] = shares[:, layout.parent[first]]
    return shares


def active_elements(layout: Layout, taking_part: Bools) -> Bools:
    """Return True for the operations that take part, and for every pool above such an operation. `taking_part` is by element."""
    active = taking_part.copy()
    for family in reversed(layout.families):
        active[family.parents] |= np.bincount(family.owner, active[family.children], len(family.parents)) > 0
    return active


def _first_active(owner: Ints, children: Ints, sharers: Sharers) -> Ints:
    """Return, for each parent, the active child that started first. Of two that started at the same time, the lower index counts."""
    here = sharers.active[children]
    owner, children = owner[here], children[here]
    order = np.lexsort((children, sharers.began_ms[children], owner))
    _, first = np.unique(owner[order], return_index=True)
    return np.asarray(children[order][first], np.int64)
