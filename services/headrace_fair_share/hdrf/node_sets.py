"""Limits the shares of operations that can run only on some nodes: together they get no more than these nodes have.

The limit of a single operation bounds what that operation gets of the nodes on which it can run. It does not bound what several operations
together get of the same nodes. Therefore the shares of all operations rise together, in three stages, until nodes are full:

    guarantees of pools that can use only the nodes of one set; then all guarantees; then shares by weight, at a growing fit factor

By the first stage, a pool whose filters keep it on the nodes of a set comes before a pool that can use other nodes too. When the operations
of a set would exceed a resource of its nodes, the operations of the set that want this resource stop with the shares they have. The shares
of all other operations rise further, also into what the pools of the stopped operations have left.

    one node of 4 cores matches `ssd`; pools h (guaranteed nothing) and g (2 cores) want 8 and 2 cores there: h 2 cores, g 2 cores

The resources of a set fill up one after another, so the work is bounded by five times the number of sets. Trees without sets do not use
this module.

Section: docs/reference/fair-share-algorithm.md#16-operations-on-some-nodes-only
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from headrace.resources import EPS
from headrace_fair_share.hdrf.arrays import Bools, Floats, Ints, amounts_of, between, shares_of, sums_by
from headrace_fair_share.hdrf.input_arrays import Layout
from headrace_fair_share.hdrf.model import TreeInput

#: Distance below which two levels count as adjacent, as a fraction of the highest level.
_NARROW: Final = 1e-10
#: Free share below which a resource counts as full.
_FULL: Final = 1e-12


class Levels(NamedTuple):
    """The shares of all elements as a function of the root's level."""

    #: The root's level in this update.
    top: float
    #: Function that returns the shares at a level from 0 to `top`. At level 0, elements get only their guarantees. The second argument may
    #: mark children of the root; then shares below unmarked children may be left at 0.
    at: Callable[[float, Bools | None], Floats]
    #: Function that returns the shares that the given pools and everything below them have if these pools get only their guarantees,
    #: whatever the pools above them get. The shares of all other elements are 0.
    guaranteed: Callable[[Ints], Floats]
    #: Function that returns the levels at which shares bend or jump, unordered.
    bends: Callable[[], Floats]


class _Step(NamedTuple):
    """The shares before and after a rise in which some set becomes full. The rise is a stage of guarantees, a range of levels, or a
    jump.
    """

    left: Floats
    right: Floats


@dataclass(frozen=True, slots=True)
class NodeSets:
    """The sets of nodes of a tree. Elements are given by their numbers."""

    #: Total resources of each set's nodes, as shares.
    capacity: Floats
    #: Element numbers of the operations of all classes, ascending. Operations of one class can run on the same nodes.
    operations: Ints
    #: Class of each operation in `operations`.
    class_of: Ints
    #: Shape (classes, sets): 1 if operations of the class can run only on nodes of the set.
    within: Floats
    #: Pools that can use only nodes of the set, for each set.
    pools: Sequence[Ints]
    #: True for children of the root that contain an operation of any class, or are such an operation.
    tops: Bools = field(repr=False)

    @staticmethod
    def of(tree: TreeInput, layout: Layout, total: Ints) -> NodeSets:
        """Read the sets of an input."""
        sets, counts = tree.node_sets, list(map(len, tree.node_classes))
        operations = layout.of_operation[np.fromiter(chain.from_iterable(tree.node_classes), np.int64)]
        class_of = np.repeat(np.arange(len(counts)), counts)
        order = np.argsort(operations)
        within = np.zeros((len(counts), len(sets)))
        for number, each in enumerate(sets):
            within[list(each.classes), number] = 1.0
        tops = np.zeros(layout.size, np.bool_)
        above = operations
        while len(above):
            parent = layout.parent[above]
            tops[above[parent == 0]] = True
            above = np.unique(parent[parent > 0])
        return NodeSets(
            shares_of(amounts_of((each.resources for each in sets), len(sets)), total),
            operations[order],
            class_of[order],
            within,
            [layout.of_pool[list(each.pools)] for each in sets],
            tops,
        )

    def members(self, number: int) -> Ints:
        """Return the operations that can run only on nodes of a set."""
        members: Ints = self.operations[self.within[self.class_of, number] > 0.0]
        return members

    def have_all(self, demand: Floats) -> bool:
        """Return True if each set has more of each resource than its operations demand, by more than a rounding error, or if they demand
        nothing of it.
        """
        wanted = self.sums(demand)
        return bool(((wanted < self.capacity - EPS) | (wanted == 0.0)).all())

    def sums(self, shares: Floats) -> Floats:
        """Return the sum of shares of each set's operations."""
        return sums_by(self.class_of, shares[:, self.operations], len(self.within)) @ self.within


@dataclass(slots=True)
class StopFinder:
    """Finds the operations that stop next, and the shares at which they stop.

    The caller then computes all shares again, with the found shares as limits of the found operations, and calls again until no set is
    exceeded.
    """

    sets: NodeSets
    demand: Floats
    #: True for operations that take either all of their demand or nothing.
    steps: Bools
    #: The limit of each element, which never rises.
    limits: Floats
    #: Index of the resource that stopped each operation; -1 if it did not stop.
    short_of: Ints = field(init=False)
    #: True for each resource of a set that may still become full.
    _open: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.limits = self.limits.copy()
        self.short_of = np.full(self.limits.shape[1], -1, np.int64)
        self._open = np.ones_like(self.sets.capacity, np.bool_)

    def stop(self, shares: Floats, levels: Callable[[], Levels]) -> bool:
        """Lower the limits of the operations that stop first. Return False if no set is exceeded."""
        over = (self.sets.sums(shares) > self.sets.capacity + EPS) & self._open
        if not over.any():
            return False
        number, resource, step = self._first(over, levels(), shares)
        members = self.sets.members(number)
        wanting = self.demand[resource, members] > 0.0
        others, members = members[~wanting], members[wanting]
        room = self.sets.capacity[:, number] - step.left[:, others].sum(axis=1)
        held = self._filled(room, members, step)
        fresh = members[self.short_of[members] < 0]
        self.short_of[fresh] = resource
        self.limits[:, members] = np.minimum(self.limits[:, members], held)
        self._open[resource, number] = False
        return True

    def _first(self, over: Bools, levels: Levels, shares: Floats) -> tuple[int, int, _Step]:
        """Return the set that becomes full first, its resource that becomes full, and the step of shares in which this happens."""
        tops = self.sets.tops
        by_guarantees = levels.at(0.0, tops)
        stages: dict[int, tuple[Floats, Floats]] = {}
        for number in np.flatnonzero(over.any(axis=0)).tolist():
            own = np.minimum(levels.guaranteed(self.sets.pools[number]), by_guarantees)
            stages[number] = (own, by_guarantees)
        zero = np.zeros_like(by_guarantees)
        for steps in (
            {number: _Step(zero, own) for number, (own, _) in stages.items()},
            {number: _Step(own, all_) for number, (own, all_) in stages.items()},
        ):
            found = self._full_within(over, steps)
            if found is not None:
                return found
        step = self._level(over, levels, by_guarantees, shares)
        found = self._full_within(over, dict.fromkeys(stages, step))
        assert found is not None
        return found

    def _level(self, over: Bools, levels: Levels, by_guarantees: Floats, shares: Floats) -> _Step:
        """Return the shares at two adjacent levels. At the lower level no set is exceeded, and at the upper level at least one set is.

        Shares are linear between bends and may jump right after a bend. So the search first finds the last bend at which no set is
        exceeded. Then it looks for a jump right after this bend, and at last it searches the line after the bend.
        """

        def room(shares: Floats) -> float:
            return float((self.sets.capacity - self.sets.sums(shares))[over].min())

        low, high, left, right = 0.0, levels.top, by_guarantees, shares
        left_room, right_room = room(left), room(right)
        bends, is_behind, is_near = np.unique(levels.bends()), False, True
        while high - low > _NARROW * levels.top and left_room > _FULL:
            between_them = bends[(bends > low) & (bends < high)]
            width = high - low
            if len(between_them):
                level = float(between_them[len(between_them) // 2])
            elif not is_behind:
                level, is_behind = low + 0.5 * _NARROW * levels.top, True
            else:
                part = left_room / (left_room - right_room) if is_near else 0.5
                level = low + width * min(max(part, _NARROW), 1.0 - _NARROW)
            there = levels.at(level, self.sets.tops)
            its_room = room(there)
            if its_room >= 0.0:
                low, left, left_room = level, there, its_room
            else:
                high, right, right_room = level, there, its_room
            is_near = not is_near or high - low < 0.5 * width
        return _Step(left, right)

    def _full_within(self, over: Bools, steps: dict[int, _Step]) -> tuple[int, int, _Step] | None:
        """Return the set and the resource that become full first within the steps of the sets, and the step of this set; None if no set
        becomes full.
        """
        found: tuple[float, int, int] | None = None
        for number, step in steps.items():
            capacity = self.sets.capacity[:, number]
            left, right = (self.sets.sums(shares)[:, number] for shares in step)
            for resource in np.flatnonzero(over[:, number] & (right > capacity)).tolist():
                way = right[resource] - left[resource]
                part = max(0.0, (capacity[resource] - left[resource]) / way) if way > 0.0 else 0.0
                found = min((part, number, resource), (2.0, 0, 0) if found is None else found)
        return None if found is None else (found[1], found[2], steps[found[1]])

    def _filled(self, room: Floats, members: Ints, step: _Step) -> Floats:
        """Return the shares that these operations have when their set is full. All of them go the same fraction of the way from the left to
        the right end of the step.

        Operations that take all or nothing are settled before: one after another goes the whole way if it fits, or else none of it.
        """
        left, right = step.left[:, members], step.right[:, members]
        taken = left.sum(axis=1)
        for place in np.flatnonzero(self.steps[members]).tolist():
            more = right[:, place] - left[:, place]
            if (taken + more <= room).all():
                left[:, place] = right[:, place]
                taken = taken + more
            else:
                right[:, place] = left[:, place]
        way = right.sum(axis=1) - taken
        there = way > 0.0
        part = np.clip(((room - taken)[there] / way[there]).min(initial=1.0), 0.0, 1.0)
        return between(left, right, part)
