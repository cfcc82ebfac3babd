"""The three groups of an operation's allocations. The group says which operations may preempt an allocation.

    oldest progress ─────────────────────────────────────────> newest
    non_preemptible │ aggressively_preemptible │ preemptible
                    first border               second border

Each border has a bound: threshold * fair share, or the usage threshold. An allocation is left of the border if all allocations before it
together use less than the bound. So the allocation that crosses the bound is protected, however large it is. Usages and bounds are compared
as shares of the current cluster total.

The usage before an allocation is computed from the number of allocations of each size before it. Sizes are few, so this costs next to
nothing even in a large operation. The position of the second border is remembered until usage or shares change.

Invariant (`check`): cutting the groups from scratch gives the same result.

Source: sections 6.1 to 6.7 of the specification of allocation and preemption.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from operator import attrgetter
from typing import Final

import msgspec

from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import EPS, ZERO, ZERO_SHARE, Resources, Share
from headrace.satisfaction import divisors, unblocked
from headrace_allocator.facts.allocations import FIRST_POSITION, NO_POSITION, Allocation, Position, Rest

#: Bound of an operation that is owed everything: no allocation is above it.
_UNBOUNDED: Final[Share] = (1e10, 1e10, 1e10, 1e10, 1e10)

_ALL_RESOURCES: Final = tuple(range(len(ZERO_SHARE)))


class Group(enum.IntEnum):
    """Groups of allocations by how easily they may be preempted, from the most protected group to the least protected."""

    NON_PREEMPTIBLE = 0
    AGGRESSIVELY_PREEMPTIBLE = 1
    PREEMPTIBLE = 2


#: The members of `Group` as constants, because looking up an enum member costs as much as ten comparisons.
_NON_PREEMPTIBLE: Final = Group.NON_PREEMPTIBLE
_AGGRESSIVELY_PREEMPTIBLE: Final = Group.AGGRESSIVELY_PREEMPTIBLE
_PREEMPTIBLE: Final = Group.PREEMPTIBLE


class Protection(msgspec.Struct, frozen=True, gc=False):
    """The part of an operation's usage that other operations may not take, according to the last snapshot of shares."""

    fair_share: Share = ZERO_SHARE
    demand_share: Share = ZERO_SHARE
    #: Cluster total that the shares are fractions of.
    total: Resources = ZERO
    #: Fraction of the fair share that is protected from aggressively starving operations.
    aggressive_threshold: float = 0.5
    #: Fraction of the fair share that is protected from starving operations.
    threshold: float = 1.0
    #: The oldest allocations that together stay below this amount are protected, regardless of the fair share. Resources that the amount
    #: does not name are not compared. `NOTHING` means that there is no such amount.
    usage_threshold: PartialResources = NOTHING
    #: True if the allocation that crosses a bound is right of the border, and so not protected.
    crossing_is_preemptible: bool = False
    #: True if the allocation that crosses the bound before the group `PREEMPTIBLE` may be preempted for an operation whose fair share still
    #: covers one more whole job.
    crossing_may_go: bool = False

    @property
    def owed_everything(self) -> bool:
        """True if the operation has a demand that its fair share covers. Then none of its allocations is in group `PREEMPTIBLE`."""
        return max(self.demand_share) >= EPS and _near(self.fair_share, self.demand_share)

    @property
    def is_nested(self) -> bool:
        """True if the second border never lies left of the first one, whatever is in use."""
        return self.threshold >= self.aggressive_threshold and not self.crossing_is_preemptible

    def bound(self, border: Group) -> Share:
        """Return the bound of the border before a group, as a share of the cluster. Usage below the bound is left of the border."""
        if border is Group.PREEMPTIBLE and self.owed_everything:
            return _UNBOUNDED
        times = self.threshold if border is Group.PREEMPTIBLE else self.aggressive_threshold
        u, c, g, m, n = self.fair_share
        return (times * u, times * c, times * g, times * m, times * n)

    def covers(self, border: GroupBorder, before: Resources, own: Resources) -> bool:
        """True if an allocation that uses `own` is left of a border, when the allocations before it use `before`."""
        usage = before + own if self.crossing_is_preemptible else before
        return border.protects(usage) or self.is_near(border, usage)

    def is_near(self, border: GroupBorder, usage: Resources) -> bool:
        """True if a usage equals the bound of the border within `EPS`, and such a usage is still protected.

        This is possible only with `crossing_is_preemptible`. Then `usage` includes the usage of the allocation itself, and an allocation
        that ends at the bound does not cross it.
        """
        return self.crossing_is_preemptible and _near(border.bound, usage.share_of(self.total))


class GroupBorder(msgspec.Struct, frozen=True, gc=False):
    """A border between two groups, prepared once for all usages that are compared with it."""

    bound: Share
    usage_threshold: tuple[int | None, ...] | None
    wholes: tuple[float, ...]
    needs_all: bool
    #: Indexes of the resources in which a usage is compared with the bound: the resources of which the operation could use more, or all
    #: resources if it could use more of none.
    decisive: tuple[int, ...]

    @staticmethod
    def of(protection: Protection, bound: Share) -> GroupBorder:
        """Prepare the border with this bound."""
        threshold = protection.usage_threshold
        helping = unblocked(protection.fair_share, protection.demand_share)
        return GroupBorder(
            bound,
            None if threshold == NOTHING else threshold.as_tuple(),
            divisors(protection.total),
            bool(helping),
            helping or _ALL_RESOURCES,
        )

    def protects(self, usage: Resources, slack: float = EPS) -> bool:
        """True if a usage is protected: it is below the bound by more than `slack`, or below the usage threshold.

        If a usage is protected, every smaller usage is protected, too. A usage counts as below the bound if it is below the bound in every
        resource of which the operation could use more. If there is no such resource, it is enough that the usage is below the bound in one
        resource. A difference of at most `EPS` counts as rounding: otherwise the last bit of a fair share would protect one more
        allocation.
        """
        amounts, wholes, bound, needs_all = usage.as_tuple(), self.wholes, self.bound, self.needs_all
        is_below = needs_all
        for index in self.decisive:
            if (bound[index] - amounts[index] / wholes[index] > slack) is not needs_all:
                is_below = not needs_all
                break
        if is_below or self.usage_threshold is None:
            return is_below
        return all(most is None or most > used for most, used in zip(self.usage_threshold, amounts, strict=True))


def _near(one: Share, other: Share) -> bool:
    # A loop is faster than a generator. The function runs for each operation that gets another share from a snapshot.
    for a, b in zip(one, other, strict=True):  # noqa: SIM110
        if abs(a - b) >= EPS:
            return False
    return True


#: Protection of all operations that no snapshot has named yet. They share one object, since very many operations may start at once.
_UNTOLD: Final = Protection()


class AllocationGroups:
    """The allocations of one operation, sorted by progress and divided into groups. Usages are summed up only when they are needed."""

    __slots__ = (
        "_allocations", "_borders", "_by_usage", "_is_nested", "_is_next_kept", "_kept", "_kept_by", "_kept_size",
        "_protection", "_rest",
    )  # fmt: skip

    def __init__(self, rest: Rest) -> None:
        """Create empty groups. The position of the second border is kept in `rest`, which belongs to the operation."""
        self._rest = rest
        self._allocations: dict[Allocation, None] = {}
        #: Positions of the allocations by the amount that they use, sorted. Most operations have jobs of one size only.
        self._by_usage: dict[Resources, list[Position]] = {}
        self._protection, self._is_nested = _UNTOLD, _UNTOLD.is_nested
        #: Borders, each by the group to its right. A border is computed when it is needed, because each snapshot changes the borders of
        #: thousands of operations.
        self._borders: dict[Group, GroupBorder] = {}
        #: Number of allocations before the border `_kept_by`, if all allocations of the operation use the amount `_kept_size`.
        self._kept = 0
        self._kept_by: GroupBorder | None = None
        self._kept_size = ZERO
        #: False if the allocation after the first `_kept` allocations is known to be right of the border.
        self._is_next_kept = True

    def publish(self, protection: Protection) -> None:
        """Take over the protection that a snapshot of shares gives the operation. This protection determines the groups from then on."""
        self._protection, self._is_nested, self._rest.preemptible_from = protection, protection.is_nested, None
        self._borders.clear()

    def add(self, allocation: Allocation, place: Position) -> None:
        """Enter an allocation at a position."""
        self._allocations[allocation] = None
        allocation.place = place
        self._enter(place, allocation.usage)

    def remove(self, allocation: Allocation) -> None:
        """Take an allocation out."""
        del self._allocations[allocation]
        self._leave(allocation.place, allocation.usage)

    def note_usage(self, allocation: Allocation, before: Resources) -> None:
        """Record that an allocation used `before` and now uses another amount. The allocation keeps its position."""
        self._leave(allocation.place, before)
        self._enter(allocation.place, allocation.usage)

    def may_be_preemptible(self, allocation: Allocation) -> bool:
        """False if normal preemption cannot take the allocation, no matter which other allocations are freed.

        The position of the second border is remembered, because heartbeats ask this for each allocation of a node.
        """
        return allocation.place >= self.first_preemptible() or allocation.usage == ZERO

    def first_preemptible(self) -> Position:
        """Return the first position right of the second border.

        If the allocation that crosses the border may be preempted (`crossing_may_go`), its position is returned instead. The result is
        remembered until usage or shares change.
        """
        known = self._rest.preemptible_from
        return self._find_preemptible() if known is None else known

    def _find_preemptible(self) -> Position:
        by_usage, first = self._by_usage, NO_POSITION if self._is_nested else FIRST_POSITION
        # The usage before an allocation grows with its position, so a binary search finds the border. In most operations all jobs have
        # the same size, so one search is enough.
        for usage, places in by_usage.items() if self._is_nested else ():
            border = self._border(_PREEMPTIBLE)
            if len(by_usage) == 1:
                at = self._count_kept(border, usage, len(places))
            else:
                at = bisect_left(places, True, key=lambda place: not border.protects(self._before(place, ())))
            if self._protection.crossing_may_go and at and self._crosses(border, places[at - 1], usage):
                at -= 1
            if at < len(places):
                first = min(first, places[at])
        self._rest.preemptible_from = first
        return first

    def _count_kept(self, border: GroupBorder, usage: Resources, most: int) -> int:
        """Return how many of the `most` allocations, which use the same amount each, are left of a border."""

        def is_right(count: int) -> bool:
            return not border.protects(usage * count)

        if self._kept_by is not border or self._kept_size != usage:
            self._kept_by, self._kept_size, self._is_next_kept = border, usage, True
            # The search begins at the last result: in most cases the border moves by less than a job.
            self._kept = min(self._kept, most)
            if self._kept and is_right(self._kept - 1):
                self._kept = bisect_left(range(most), True, 0, self._kept - 1, key=is_right)
                self._is_next_kept = False
        if self._is_next_kept and self._kept < most:
            if not is_right(self._kept):
                self._kept = bisect_left(range(most), True, self._kept + 1, key=is_right)
            self._is_next_kept = self._kept == most
        return min(self._kept, most)

    def group(self, allocation: Allocation, freed: Collection[Allocation] = ()) -> Group:
        """Return the group of an allocation, as if the `freed` allocations used nothing."""
        place = allocation.place
        before = self._before(place, freed)
        # If the borders are nested, the first border is computed only if needed: most allocations are right of both borders.
        is_nested = self._is_nested
        if is_nested and not self._border(_PREEMPTIBLE).protects(before):
            return _PREEMPTIBLE
        if self._is_left(_AGGRESSIVELY_PREEMPTIBLE, allocation, before, freed):
            return _NON_PREEMPTIBLE
        if is_nested or self._is_left(_PREEMPTIBLE, allocation, before, freed):
            return _AGGRESSIVELY_PREEMPTIBLE
        return _PREEMPTIBLE

    def is_excess(self, allocation: Allocation, freed: Collection[Allocation] = ()) -> bool:
        """True if the operation's other allocations, without the `freed` ones, already use everything that is protected for the operation.

        In this case the allocation would be preemptible if it were the newest.
        """
        others = Resources.sum(usage * len(places) for usage, places in self._by_usage.items())
        others = others - allocation.usage - Resources.sum(one.usage for one in freed)
        return not self._protection.covers(self._border(_PREEMPTIBLE), others, allocation.usage)

    def crosses(self, allocation: Allocation, freed: Collection[Allocation] = ()) -> bool:
        """True if the allocation is left of the second border although a part of its usage is above the bound."""
        return self._crosses(self._border(_PREEMPTIBLE), allocation.place, allocation.usage, freed)

    @property
    def owed_everything(self) -> bool:
        """True if the operation's fair share covers all its demand, so that none of its allocations is in group `PREEMPTIBLE`."""
        return self._protection.owed_everything

    def is_kept_by_share(self, allocation: Allocation, least: Group) -> bool:
        """True if the fair share alone, without a usage threshold, puts the allocation into a more protected group than `least`."""
        bare = msgspec.structs.replace(self._protection, usage_threshold=NOTHING)
        before = self._before(allocation.place, ())
        return any(
            self._is_left(behind, allocation, before, (), GroupBorder.of(bare, bare.bound(behind)))
            for behind in (_AGGRESSIVELY_PREEMPTIBLE, _PREEMPTIBLE)
            if behind <= least
        )

    def groups_without(self, freed: Collection[Allocation]) -> dict[Allocation, Group]:
        """Compute the group of each allocation from scratch, as if the `freed` allocations used nothing."""
        groups: dict[Allocation, Group] = {}
        before, group = ZERO, Group.NON_PREEMPTIBLE
        for one in self:
            own = ZERO if one in freed else one.usage
            while group < Group.PREEMPTIBLE and not self._protection.covers(
                self._border(Group(group + 1)), before, own
            ):
                group = Group(group + 1)
            groups[one] = group
            before = before + own
        return groups

    def counts(self) -> dict[Group, int]:
        """Return the number of allocations in each group."""
        groups = list(map(self.group, self._allocations))
        return {group: groups.count(group) for group in Group}

    def check(self) -> list[str]:
        """Return a text for each broken invariant; empty if all hold."""
        afresh = self.groups_without(())
        hidden = [one for one in self if afresh[one] is _PREEMPTIBLE and not self.may_be_preemptible(one)]
        return [
            *(f"allocation {one.id} is preemptible and is marked as not preemptible" for one in hidden),
            *(
                f"allocation {one.id} is in group {self.group(one).name.lower()}, computed from scratch in {group.name.lower()}"
                for one, group in afresh.items()
                if group is not self.group(one)
            ),
        ]

    def __iter__(self) -> Iterator[Allocation]:
        return iter(sorted(self._allocations, key=attrgetter("place")))

    def __len__(self) -> int:
        return len(self._allocations)

    def __contains__(self, allocation: Allocation) -> bool:
        return allocation in self._allocations

    def _enter(self, place: Position, usage: Resources) -> None:
        self._rest.preemptible_from = None
        if usage != ZERO:
            insort(self._by_usage.setdefault(usage, []), place)

    def _leave(self, place: Position, usage: Resources) -> None:
        self._rest.preemptible_from = None
        if usage == ZERO:
            return
        places = self._by_usage[usage]
        del places[bisect_left(places, place)]
        if not places:
            del self._by_usage[usage]

    def _before(self, place: Position, freed: Collection[Allocation]) -> Resources:
        """Return the usage of all allocations before a position, without the `freed` ones."""
        before = ZERO
        for usage, places in self._by_usage.items():
            count = bisect_left(places, place)
            if count:
                used = usage * count if count > 1 else usage
                before = used if before is ZERO else before + used
        for one in freed:
            if one.place < place:
                before = before - one.usage
        return before

    def _crosses(
        self, border: GroupBorder, place: Position, usage: Resources, freed: Collection[Allocation] = ()
    ) -> bool:
        before = self._before(place, freed)
        # An allocation whose end is exactly at the bound does not cross the bound.
        return border.protects(before) and not border.protects(before + usage, -EPS)

    def _border(self, behind: Group) -> GroupBorder:
        """Return the border before a group."""
        border = self._borders.get(behind)
        if border is None:
            border = self._borders[behind] = GroupBorder.of(self._protection, self._protection.bound(behind))
        return border

    def _is_left(
        self,
        behind: Group,
        allocation: Allocation,
        before: Resources,
        freed: Collection[Allocation],
        border: GroupBorder | None = None,
    ) -> bool:
        """True if an allocation is left of a border, that is, in a more protected group than `behind`.

        `before` is the usage of all allocations before this allocation. `border` is the border to compare with; None stands for the
        border before the group `behind`.
        """
        place, protection = allocation.place, self._protection
        border = self._border(behind) if border is None else border
        usage = before
        if protection.crossing_is_preemptible and allocation not in freed:
            usage = before + allocation.usage
        while not border.protects(usage):
            if not protection.is_near(border, usage):
                return False
            # The allocation ends at the bound, within `EPS`. It is left of the border if and only if the allocation before it is.
            previous = self._previous(place)
            if previous is None:
                return True
            place, usage = previous, before
            before = self._before(place, freed)
        return True

    def _previous(self, place: Position) -> Position | None:
        found = ((places, bisect_left(places, place)) for places in self._by_usage.values())
        return max((places[index - 1] for places, index in found if index), default=None)
