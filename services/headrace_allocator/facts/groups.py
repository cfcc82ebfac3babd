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
        share = usage.share_of(self.total)
        if self._below_usage_threshold(usage) or self._below(bound, share):
            return True
        return self.crossing_is_preemptible and _near(bound, share)

    def _below(self, bound: Share, share: Share) -> bool:
        """True if `bound` is above `share` in every resource of which more would help. If more helps in none, one is enough.

        What is above by no more than `EPS` is so by rounding: else the last bit of a fair share would protect one allocation more.
        """
        helps = any_above = False
        for fair, demand, most, has in zip(self.fair_share, self.demand_share, bound, share, strict=True):
            is_above = most - has > EPS
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
    """A border, by how many allocations are left of it and what they use together."""

    def __init__(self, before: Group) -> None:
        self.before = before
        self.count = 0
        self.used = ZERO


class AllocationGroups:
    """The allocations of one operation, by progress and cut into groups. Borders move when somebody asks for a group."""

    def __init__(self) -> None:
        self._protection = Protection()
        self._places: dict[Allocation, Place] = {}
        self._by_place: dict[Place, Allocation] = {}
        #: The places in their order.
        self._order: list[Place] = []
        self._borders = (_Border(Group.AGGRESSIVELY_PREEMPTIBLE), _Border(Group.PREEMPTIBLE))
        self._settled = True

    def publish(self, protection: Protection) -> None:
        """Cuts by what a snapshot of shares says from now on."""
        self._protection, self._settled = protection, False

    def add(self, allocation: Allocation, place: Place) -> None:
        """Enters an allocation."""
        self._places[allocation] = place
        self._by_place[place] = allocation
        insort(self._order, place)
        self._count(allocation, 1, allocation.usage)

    def remove(self, allocation: Allocation) -> None:
        """Takes an allocation out."""
        self._count(allocation, -1, ZERO - allocation.usage)
        del self._order[self._index(allocation)]
        del self._by_place[self._places.pop(allocation)]

    def note_usage(self, allocation: Allocation, before: Resources) -> None:
        """Notes that it used `before` and uses another amount now. It keeps its place."""
        self._count(allocation, 0, allocation.usage - before)

    def group(self, allocation: Allocation) -> Group:
        """The group in which it stands."""
        self._settle()
        index = self._index(allocation)
        return Group(sum(index >= border.count for border in self._borders))

    def groups_without(self, freed: Collection[Allocation]) -> dict[Allocation, Group]:
        """The group of each, cut from scratch, as if some used nothing."""
        groups: dict[Allocation, Group] = {}
        bounds = [self._protection.bound(border.before) for border in self._borders]
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
        self._settle()
        first, second = (border.count for border in self._borders)
        return dict(zip(Group, (first, second - first, len(self._places) - second), strict=True))

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

    def _index(self, allocation: Allocation) -> int:
        return bisect_left(self._order, self._places[allocation])

    def _count(self, allocation: Allocation, more: int, used: Resources) -> None:
        """Counts a change on the side of each border where the allocation is."""
        self._settled = False
        first, second = self._borders
        if not (first.count or second.count):
            return
        index = self._index(allocation)
        for border in self._borders:
            if index < border.count:
                border.count += more
                border.used = border.used + used

    def _settle(self) -> None:
        """Moves each border from where it is to where it belongs."""
        if self._settled:
            return
        self._settled = True
        for border in self._borders:
            bound = self._protection.bound(border.before)
            if self._protection.crossing_is_preemptible:
                # Being near the bound protects, so that one that is not covered may stand left of others that are.
                border.count, border.used = 0, ZERO
            if not self._move_left(border, bound):
                self._move_right(border, bound)

    def _move_left(self, border: _Border, bound: Share) -> bool:
        """Leaves out what is covered no more. True if there was anything."""
        count = border.count
        while border.count:
            last = self._by_place[self._order[border.count - 1]]
            before = border.used - last.usage
            if self._protection.covers(bound, before, last.usage):
                break
            border.count, border.used = border.count - 1, before
        return border.count < count

    def _move_right(self, border: _Border, bound: Share) -> None:
        while border.count < len(self._order):
            following = self._by_place[self._order[border.count]]
            if not self._protection.covers(bound, border.used, following.usage):
                break
            border.count, border.used = border.count + 1, border.used + following.usage
