"""The three groups of an operation's allocations: who may lose them, and when.

    oldest progress ─────────────────────────────────────────> newest
    non_preemptible │ aggressively_preemptible │ preemptible
                    first border               second border

An allocation is left of a border while all before it together stay below a bound: threshold * fair share, or the usage threshold.
So the one that crosses the bound is protected, however large it is. Borders are compared as shares, never as amounts made before.
Borders move from where they were. Invariant (`check`): cutting from scratch gives the same.
Source: sections 6.1 to 6.7 of the specification of allocation and preemption.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import EPS, ZERO, ZERO_SHARE, Resources, Share
from headrace_allocator.facts.allocations import Allocation

__all__ = ["AllocationGroups", "Group", "Place", "Protection"]

#: Stands for the fair share of an operation that is owed everything: nothing of it is above that.
_UNBOUNDED: Final[Share] = (1e10, 1e10, 1e10, 1e10, 1e10)

#: Sorts the allocations of an operation, the oldest progress first.
Place = tuple[int, int, int]


class Group(enum.IntEnum):
    """How easily an allocation is taken back."""

    NON_PREEMPTIBLE = 0
    AGGRESSIVELY_PREEMPTIBLE = 1
    PREEMPTIBLE = 2


#: Looked up once: the lookup of a member in its enumeration costs as much as ten comparisons.
_NON_PREEMPTIBLE: Final = Group.NON_PREEMPTIBLE
_AGGRESSIVELY_PREEMPTIBLE: Final = Group.AGGRESSIVELY_PREEMPTIBLE
_PREEMPTIBLE: Final = Group.PREEMPTIBLE

#: Before and behind all allocations.
_FIRST: Final[Place] = (-1, 0, 0)
_LAST: Final[Place] = (3, 0, 0)


class Protection(msgspec.Struct, frozen=True):
    """The part of an operation that others may not take, as the last snapshot of shares says."""

    fair_share: Share = ZERO_SHARE
    demand_share: Share = ZERO_SHARE
    #: The cluster that shares are parts of.
    total: Resources = ZERO
    #: So much of its fair share is kept from those that starve aggressively, and so much from those that starve.
    aggressive_threshold: float = 0.5
    threshold: float = 1.0
    #: The oldest allocations below it are kept, whatever the fair share is. What is left out has no bound, and `NOTHING` keeps none.
    usage_threshold: PartialResources = NOTHING
    #: True if the allocation that crosses a bound is beyond it.
    crossing_is_preemptible: bool = False

    @property
    def owed_everything(self) -> bool:
        """True if it is owed all that it wants, and wants anything: then nothing of it is plainly preemptible."""
        return max(self.demand_share) >= EPS and _near(self.fair_share, self.demand_share)

    @property
    def is_nested(self) -> bool:
        """True if nothing is left of the first border and right of the second, whatever is in use."""
        return self.threshold >= self.aggressive_threshold and not self.crossing_is_preemptible

    def bound(self, border: Group) -> Share:
        """The share below which allocations are left of the border before a group."""
        if border is Group.PREEMPTIBLE and self.owed_everything:
            return _UNBOUNDED
        times = self.threshold if border is Group.PREEMPTIBLE else self.aggressive_threshold
        u, c, g, m, n = (times * share for share in self.fair_share)
        return (u, c, g, m, n)

    def covers(self, bound: Share, before: Resources, own: Resources) -> bool:
        """True if an allocation that uses `own`, after others that use `before` together, is left of a border."""
        usage = before + own if self.crossing_is_preemptible else before
        if self._below(bound, usage) or self._below_usage_threshold(usage):
            return True
        return self.crossing_is_preemptible and _near(bound, usage.share_of(self.total))

    def _below(self, bound: Share, usage: Resources) -> bool:
        """True if `bound` is above a usage in every resource of which more would help. If more helps in none, one is enough.

        What is above by no more than `EPS` is so by rounding: else the last bit of a fair share would protect one allocation more.
        """
        helps = any_above = False
        figures = zip(self.fair_share, self.demand_share, bound, usage.as_tuple(), self.total.as_tuple(), strict=True)
        for fair, demand, most, used, whole in figures:
            is_above = most - (used / whole if whole > 0 else 0.0) > EPS
            if fair < demand:
                helps = True
                if not is_above:
                    return False
            any_above |= is_above
        return helps or any_above

    def _below_usage_threshold(self, usage: Resources) -> bool:
        if self.usage_threshold == NOTHING:
            return False
        limits = zip(self.usage_threshold.as_tuple(), usage.as_tuple(), strict=True)
        return all(most is None or most > used for most, used in limits)


def _near(one: Share, other: Share) -> bool:
    return all(abs(a - b) < EPS for a, b in zip(one, other, strict=True))


class _Border:
    """A border, by the place at which it stands and what the allocations left of it use together."""

    __slots__ = ("before", "bound", "place", "settled", "used")

    def __init__(self, before: Group) -> None:
        self.before = before
        self.place: Place = _FIRST
        self.used = ZERO
        self.bound: Share | None = None
        #: True if nothing changed since it was moved to where it belongs.
        self.settled = True


class AllocationGroups:
    """The allocations of one operation, by progress and cut into groups. Borders move when somebody asks for a group."""

    def __init__(self) -> None:
        self._protection = Protection()
        self._places: dict[Allocation, Place] = {}
        self._by_place: dict[Place, Allocation] = {}
        #: The places in their order.
        self._order: list[Place] = []
        self._first, self._second = _Border(Group.AGGRESSIVELY_PREEMPTIBLE), _Border(Group.PREEMPTIBLE)

    def publish(self, protection: Protection) -> None:
        """Cuts by what a snapshot of shares says from now on."""
        self._protection = protection
        for border in (self._first, self._second):
            border.bound, border.settled = None, False

    def add(self, allocation: Allocation, place: Place) -> None:
        """Enters an allocation."""
        self._places[allocation] = place
        self._by_place[place] = allocation
        insort(self._order, place)
        self._count(place, allocation.usage)

    def remove(self, allocation: Allocation) -> None:
        """Takes an allocation out."""
        place = self._places.pop(allocation)
        self._count(place, ZERO - allocation.usage)
        del self._order[bisect_left(self._order, place)]
        del self._by_place[place]

    def note_usage(self, allocation: Allocation, before: Resources) -> None:
        """Notes that it used `before` and uses another amount now. It keeps its place."""
        self._count(self._places[allocation], allocation.usage - before)

    def group(self, allocation: Allocation) -> Group:
        """The group in which it stands."""
        place = self._places[allocation]
        # Most that is asked for is right of both, and then the first border need not be known.
        if self._protection.is_nested and place >= self._settled(self._second).place:
            return _PREEMPTIBLE
        if place < self._settled(self._first).place:
            return _NON_PREEMPTIBLE
        return _AGGRESSIVELY_PREEMPTIBLE if place < self._settled(self._second).place else _PREEMPTIBLE

    def groups_without(self, freed: Collection[Allocation]) -> dict[Allocation, Group]:
        """The group of each, cut from scratch, as if some used nothing."""
        groups: dict[Allocation, Group] = {}
        bounds = [self._protection.bound(border.before) for border in (self._first, self._second)]
        before, group = ZERO, Group.NON_PREEMPTIBLE
        for one in self:
            own = ZERO if one in freed else one.usage
            while group < Group.PREEMPTIBLE and not self._protection.covers(bounds[group], before, own):
                group = Group(group + 1)
            groups[one] = group
            before = before + own
        return groups

    def counts(self) -> dict[Group, int]:
        """The number of allocations in each group."""
        groups = list(map(self.group, self._places))
        return {group: groups.count(group) for group in Group}

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        afresh = self.groups_without(())
        return [
            f"allocation {one.id} stands among {self.group(one).name.lower()}, from scratch among {group.name.lower()}"
            for one, group in afresh.items()
            if group is not self.group(one)
        ]

    def __iter__(self) -> Iterator[Allocation]:
        return map(self._by_place.__getitem__, self._order)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, allocation: Allocation) -> bool:
        return allocation in self._places

    def _count(self, place: Place, used: Resources) -> None:
        """Counts a change on the side of each border where it is."""
        for border in (self._first, self._second):
            border.settled = False
            if place < border.place:
                border.used = border.used + used

    def _settled(self, border: _Border) -> _Border:
        """Moves a border from where it is to where it belongs."""
        if border.settled:
            return border
        if border.bound is None:
            border.bound = self._protection.bound(border.before)
        if self._protection.crossing_is_preemptible:
            # Being near the bound protects, so that one that is not covered may stand left of others that are.
            border.place, border.used = _FIRST, ZERO
        index = bisect_left(self._order, border.place)
        moved = self._move_left(border, border.bound, index)
        if moved == index:
            moved = self._move_right(border, border.bound, index)
        border.place = self._order[moved] if moved < len(self._order) else _LAST
        border.settled = True
        return border

    def _move_left(self, border: _Border, bound: Share, index: int) -> int:
        """Leaves out what is covered no more. Returns where the border stands."""
        while index:
            last = self._by_place[self._order[index - 1]]
            before = border.used - last.usage
            if self._protection.covers(bound, before, last.usage):
                break
            index, border.used = index - 1, before
        return index

    def _move_right(self, border: _Border, bound: Share, index: int) -> int:
        """Takes in what is covered as well. Returns where the border stands."""
        while index < len(self._order):
            following = self._by_place[self._order[index]]
            if not self._protection.covers(bound, border.used, following.usage):
                break
            index, border.used = index + 1, border.used + following.usage
        return index
