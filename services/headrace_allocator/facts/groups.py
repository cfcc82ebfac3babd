"""The three groups of an operation's allocations: who may lose them, and when.

    oldest progress ─────────────────────────────────────────> newest
    non_preemptible │ aggressively_preemptible │ preemptible
                    first border               second border

An allocation is left of a border while all before it together stay below a bound: threshold * fair share, or the usage threshold.
So the one that crosses the bound is protected, however large it is. Borders are compared as shares, never as amounts made before.
The usage before an allocation is counted by the sizes of those before it, which costs next to nothing in an operation of whatever
size. Of the second border the place is kept until usage or shares change. Invariant (`check`): cutting from scratch gives the same.
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
from headrace_allocator.facts.allocations import FIRST_PLACE, NO_PLACE, Allocation, Place, Rest

#: Stands for the fair share of an operation that is owed everything: nothing of it is above that.
_UNBOUNDED: Final[Share] = (1e10, 1e10, 1e10, 1e10, 1e10)

_ALL_RESOURCES: Final = tuple(range(len(ZERO_SHARE)))


class Group(enum.IntEnum):
    """The ease with which an allocation is taken back."""

    NON_PREEMPTIBLE = 0
    AGGRESSIVELY_PREEMPTIBLE = 1
    PREEMPTIBLE = 2


#: Looked up once: the lookup of a member in its enumeration costs as much as ten comparisons.
_NON_PREEMPTIBLE: Final = Group.NON_PREEMPTIBLE
_AGGRESSIVELY_PREEMPTIBLE: Final = Group.AGGRESSIVELY_PREEMPTIBLE
_PREEMPTIBLE: Final = Group.PREEMPTIBLE


class Protection(msgspec.Struct, frozen=True, gc=False):
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
    #: True if the allocation that crosses the second bound may go for a job that its operation is owed whole.
    crossing_may_go: bool = False

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
        u, c, g, m, n = self.fair_share
        return (times * u, times * c, times * g, times * m, times * n)

    def covers(self, border: GroupBorder, before: Resources, own: Resources) -> bool:
        """True if an allocation is left of a border: it uses `own`, and those before it use `before`."""
        usage = before + own if self.crossing_is_preemptible else before
        return border.protects(usage) or self.is_near(border, usage)

    def is_near(self, border: GroupBorder, usage: Resources) -> bool:
        """True if a usage is protected for reaching a bound and no more. Only what counts with the allocation itself is."""
        return self.crossing_is_preemptible and _near(border.bound, usage.share_of(self.total))


class GroupBorder(msgspec.Struct, frozen=True, gc=False):
    """A border between two groups, prepared once for all usages that are held against it."""

    bound: Share
    usage_threshold: tuple[int | None, ...] | None
    wholes: tuple[float, ...]
    needs_all: bool
    #: Resources of which more would help. If it helps in none, all.
    decisive: tuple[int, ...]

    @staticmethod
    def of(protection: Protection, bound: Share) -> GroupBorder:
        """Prepares the border at a bound."""
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
        """True if a usage is below the bound by more than the slack, or below the usage threshold. Whatever is less is so, too.

        It is below if the bound is above it in every resource of which more would help. If more helps in none, one is enough.
        What is above by no more than `EPS` is so by rounding: else the last bit of a fair share would protect one allocation more.
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
    # A loop, and no generator: it runs for each operation that takes a share.
    for a, b in zip(one, other, strict=True):  # noqa: SIM110
        if abs(a - b) >= EPS:
            return False
    return True


#: The same for all that no snapshot has told of, since very many may start at once.
_UNTOLD: Final = Protection()


class AllocationGroups:
    """The allocations of one operation, by progress and cut into groups. What stands before one is counted when somebody asks."""

    __slots__ = (
        "_allocations", "_borders", "_by_usage", "_is_nested", "_is_next_kept", "_kept", "_kept_by", "_kept_size",
        "_protection", "_rest",
    )  # fmt: skip

    def __init__(self, rest: Rest) -> None:
        """`rest` is told where the second border is."""
        self._rest = rest
        self._allocations: dict[Allocation, None] = {}
        #: The places of those that use the same amount, in their order. Most operations have jobs of one size alone.
        self._by_usage: dict[Resources, list[Place]] = {}
        self._protection, self._is_nested = _UNTOLD, _UNTOLD.is_nested
        #: By the group behind each, made when somebody asks: with each snapshot thousands of operations have others.
        self._borders: dict[Group, GroupBorder] = {}
        #: Of jobs of one size: so many are left of this border, and one more is not, as far as that is known.
        self._kept = 0
        self._kept_by: GroupBorder | None = None
        self._kept_size = ZERO
        self._is_next_kept = True

    def publish(self, protection: Protection) -> None:
        """Cuts by what a snapshot of shares says from now on."""
        self._protection, self._is_nested, self._rest.preemptible_from = protection, protection.is_nested, None
        self._borders.clear()

    def add(self, allocation: Allocation, place: Place) -> None:
        """Enters an allocation."""
        self._allocations[allocation] = None
        allocation.place = place
        self._enter(place, allocation.usage)

    def remove(self, allocation: Allocation) -> None:
        """Takes an allocation out."""
        del self._allocations[allocation]
        self._leave(allocation.place, allocation.usage)

    def note_usage(self, allocation: Allocation, before: Resources) -> None:
        """Notes that it used `before` and uses another amount now. It keeps its place."""
        self._leave(allocation.place, before)
        self._enter(allocation.place, allocation.usage)

    def may_be_preemptible(self, allocation: Allocation) -> bool:
        """False if no stage for those that merely starve takes it, whatever is freed.

        The border is kept: heartbeats ask for each allocation of a node.
        """
        return allocation.place >= self.first_preemptible() or allocation.usage == ZERO

    def first_preemptible(self) -> Place:
        """The first place right of the second border, or the one that crosses it where that may go.

        It is kept until usage or shares change.
        """
        known = self._rest.preemptible_from
        return self._find_preemptible() if known is None else known

    def _find_preemptible(self) -> Place:
        by_usage, first = self._by_usage, NO_PLACE if self._is_nested else FIRST_PLACE
        # Whatever stands before a place grows from one to the next. Most operations have jobs of one size alone.
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
        """Counts those left of a border among `most` that use the same amount."""

        def is_right(count: int) -> bool:
            return not border.protects(usage * count)

        if self._kept_by is not border or self._kept_size != usage:
            self._kept_by, self._kept_size, self._is_next_kept = border, usage, True
            # As many as before, in most cases: the border moves by less than a job.
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
        """The group in which it stands, as if some of these allocations used nothing."""
        place = allocation.place
        before = self._before(place, freed)
        # Most that is asked for is right of both, and then the first border need not be known.
        is_nested = self._is_nested
        if is_nested and not self._border(_PREEMPTIBLE).protects(before):
            return _PREEMPTIBLE
        if self._is_left(_AGGRESSIVELY_PREEMPTIBLE, allocation, before, freed):
            return _NON_PREEMPTIBLE
        if is_nested or self._is_left(_PREEMPTIBLE, allocation, before, freed):
            return _AGGRESSIVELY_PREEMPTIBLE
        return _PREEMPTIBLE

    def is_excess(self, allocation: Allocation, freed: Collection[Allocation] = ()) -> bool:
        """True if all others, but for these, reach what is kept of their operation: it would be preemptible were it the newest."""
        others = Resources.sum(usage * len(places) for usage, places in self._by_usage.items())
        others = others - allocation.usage - Resources.sum(one.usage for one in freed)
        return not self._protection.covers(self._border(_PREEMPTIBLE), others, allocation.usage)

    def crosses(self, allocation: Allocation, freed: Collection[Allocation] = ()) -> bool:
        """True if it is the one that is left of the second border, and with which its operation reaches the bound."""
        return self._crosses(self._border(_PREEMPTIBLE), allocation.place, allocation.usage, freed)

    @property
    def owed_everything(self) -> bool:
        """True if their operation is owed all that it wants, so that nothing of it is plainly preemptible."""
        return self._protection.owed_everything

    def is_kept_by_share(self, allocation: Allocation, least: Group) -> bool:
        """True if the fair share alone, without a usage threshold, puts it into a more protected group than this."""
        bare = msgspec.structs.replace(self._protection, usage_threshold=NOTHING)
        before = self._before(allocation.place, ())
        return any(
            self._is_left(behind, allocation, before, (), GroupBorder.of(bare, bare.bound(behind)))
            for behind in (_AGGRESSIVELY_PREEMPTIBLE, _PREEMPTIBLE)
            if behind <= least
        )

    def groups_without(self, freed: Collection[Allocation]) -> dict[Allocation, Group]:
        """The group of each, cut from scratch, as if some used nothing."""
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
        """The number of allocations in each group."""
        groups = list(map(self.group, self._allocations))
        return {group: groups.count(group) for group in Group}

    def check(self) -> list[str]:
        """Broken invariants in words, none if all hold."""
        afresh = self.groups_without(())
        hidden = [one for one in self if afresh[one] is _PREEMPTIBLE and not self.may_be_preemptible(one)]
        return [
            *(f"allocation {one.id} is preemptible, and told not to be" for one in hidden),
            *(
                f"allocation {one.id} stands among {self.group(one).name.lower()}, from scratch among {group.name.lower()}"
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

    def _enter(self, place: Place, usage: Resources) -> None:
        self._rest.preemptible_from = None
        if usage != ZERO:
            insort(self._by_usage.setdefault(usage, []), place)

    def _leave(self, place: Place, usage: Resources) -> None:
        self._rest.preemptible_from = None
        if usage == ZERO:
            return
        places = self._by_usage[usage]
        del places[bisect_left(places, place)]
        if not places:
            del self._by_usage[usage]

    def _before(self, place: Place, freed: Collection[Allocation]) -> Resources:
        """The usage of all that stand before a place."""
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

    def _crosses(self, border: GroupBorder, place: Place, usage: Resources, freed: Collection[Allocation] = ()) -> bool:
        before = self._before(place, freed)
        # What ends exactly at the bound does not cross it.
        return border.protects(before) and not border.protects(before + usage, -EPS)

    def _border(self, behind: Group) -> GroupBorder:
        """The border before a group."""
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
        """True if an allocation, after others that use `before` together, is left of the border before a group, or of another."""
        place, protection = allocation.place, self._protection
        border = self._border(behind) if border is None else border
        usage = before
        if protection.crossing_is_preemptible and allocation not in freed:
            usage = before + allocation.usage
        while not border.protects(usage):
            if not protection.is_near(border, usage):
                return False
            # One that is only near the bound is left of it if the one before it is, too.
            previous = self._previous(place)
            if previous is None:
                return True
            place, usage = previous, before
            before = self._before(place, freed)
        return True

    def _previous(self, place: Place) -> Place | None:
        found = ((places, bisect_left(places, place)) for places in self._by_usage.values())
        return max((places[index - 1] for places, index in found if index), default=None)
