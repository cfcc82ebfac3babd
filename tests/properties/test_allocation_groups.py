"""Groups of allocations: each is in the group in which a cut from scratch puts it, however many there are."""

from __future__ import annotations

import math
import random

import pytest

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import ZERO, Resources, Share
from headrace_allocator.facts.allocations import Allocation, Rest
from headrace_allocator.facts.preemption_groups import AllocationGroups, Group, GroupBorder, Protection

TOTAL = Resources(user_slots=40, cpu=4_000, gpu=0, memory=40_000)
STEPS = 60


class History:
    """Random changes of one operation's allocations."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.groups = AllocationGroups(Rest(math.inf))
        self.allocations: list[Allocation] = []
        self.made = 0

    def step(self) -> None:
        change = self.random.choice(
            [self.add, self.add, self.add, self.remove, self.restart, self.preempt, self.publish]
        )
        if self.allocations or change in (self.add, self.publish):
            change()

    def add(self) -> None:
        self.made += 1
        name = AllocationId(f"a{self.made}")
        size = Resources(1, self.random.choice([50, 100, 100, 250]), 0, self.random.choice([0, 500, 1_000]))
        allocation = Allocation(name, OperationId("op-1"), NodeName("n"), size)
        self.allocations.append(allocation)
        self.groups.add(allocation, self.place())

    def place(self) -> tuple[int, int, int]:
        return (self.random.choice([0, 1]), self.random.randrange(5), self.random.randrange(10**9))

    def any(self) -> Allocation:
        return self.random.choice(self.allocations)

    def remove(self) -> None:
        allocation = self.any()
        self.allocations.remove(allocation)
        self.groups.remove(allocation)

    def restart(self) -> None:
        allocation = self.any()
        self.groups.remove(allocation)
        self.groups.add(allocation, (2, 0, self.made * 1_000 + self.random.randrange(1_000)))

    def preempt(self) -> None:
        allocation = self.any()
        before = allocation.usage
        allocation.usage = self.random.choice([ZERO, allocation.resources])
        self.groups.note_usage(allocation, before)

    def share(self) -> Share:
        cpu = self.random.choice([0.0, 0.1, 0.25, 0.5, self.random.random()])
        return (cpu, cpu, 0.0, self.random.choice([cpu, 0.0, self.random.random()]), 0.0)

    def publish(self) -> None:
        fair = self.share()
        u, c, g, m, n = (share * self.random.choice([1, 1, 2]) for share in fair)
        threshold = PartialResources(user_slots=self.random.choice([None, 1, 3]), cpu=self.random.choice([None, 200]))
        self.groups.publish(
            Protection(
                fair_share=fair,
                demand_share=(u, c, g, m, n),
                total=TOTAL,
                aggressive_threshold=self.random.choice([0.2, 0.5, 1.0]),
                threshold=self.random.choice([1.0, 1.5]),
                usage_threshold=self.random.choice([NOTHING, threshold]),
                crossing_is_preemptible=self.random.random() < 0.2,
            )
        )


class OneSizeHistory(History):
    """Jobs of one size, and of another once all have ended. Shares that protect many of them or none."""

    size = Resources(1, 100)

    def step(self) -> None:
        change = self.random.choices([self.add, self.remove, self.remove_all, self.publish], [8, 5, 1, 1])[0]
        if self.allocations or change in (self.add, self.publish):
            change()

    def add(self) -> None:
        self.made += 1
        name = AllocationId(f"a{self.made}")
        allocation = Allocation(name, OperationId("op-1"), NodeName("n"), self.size)
        self.allocations.append(allocation)
        self.groups.add(allocation, self.place())

    def remove_all(self) -> None:
        while self.allocations:
            self.remove()
        self.size = Resources(1, self.random.choice([50, 100, 250]))

    def publish(self) -> None:
        fair = self.share()
        self.groups.publish(Protection(fair_share=fair, demand_share=(1.0, 1.0, 0.0, 1.0, 0.0), total=TOTAL))


@pytest.mark.parametrize("seed", range(100))
def test_of_jobs_of_one_size_just_those_right_of_the_border_may_be_taken(seed: int) -> None:
    history = OneSizeHistory(seed)
    for _ in range(3 * STEPS):
        history.step()
        afresh = history.groups.groups_without(())
        told = {one: history.groups.may_be_preemptible(one) for one in history.allocations}
        assert told == {one: group is Group.PREEMPTIBLE for one, group in afresh.items()}


@pytest.mark.parametrize("seed", range(100))
def test_each_is_in_the_group_in_which_a_cut_from_scratch_puts_it(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
        assert history.groups.check() == []
        counts = history.groups.counts()
        assert sum(counts.values()) == len(history.groups) == len(history.allocations)
        assert min(counts.values()) >= 0
        freed = [one for one in history.allocations if history.random.random() < 0.2]
        asked = {one: history.groups.group(one, freed) for one in history.groups}
        assert history.groups.groups_without(freed) == asked


def an_allocation(number: int) -> Allocation:
    return Allocation(AllocationId(f"a{number}"), OperationId("op-1"), NodeName("n"), Resources(1, 100))


def count_of_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A one for each look at a bound from now on."""
    looks: list[int] = []
    protects = GroupBorder.protects

    def counted(border: GroupBorder, usage: Resources) -> bool:
        looks.append(1)
        return protects(border, usage)

    monkeypatch.setattr(GroupBorder, "protects", counted)
    return looks


@pytest.mark.parametrize("freed", [0, 5])
def test_a_question_costs_the_same_however_many_allocations_there_are(
    freed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No walk over all of them: the first question after a snapshot looks at a bound as often as any other."""
    looks = count_of_looks(monkeypatch)
    half = (0.5, 0.5, 0.0, 0.0, 0.0)
    groups = AllocationGroups(Rest(math.inf))
    allocations = [an_allocation(number) for number in range(1_000)]
    for number, allocation in enumerate(allocations):
        groups.add(allocation, (1, 0, number))
    groups.publish(Protection(half, (1.0, 1.0, 0.0, 0.0, 0.0), Resources(1_000, 100_000)))
    assert groups.group(allocations[500 + freed], allocations[:freed]) is Group.PREEMPTIBLE
    assert groups.group(allocations[499 + freed], allocations[:freed]) is Group.AGGRESSIVELY_PREEMPTIBLE
    assert sum(looks) <= 4


def test_the_allocation_that_crosses_the_bound_is_protected() -> None:
    groups = AllocationGroups(Rest(math.inf))
    quarter = (0.25, 0.25, 0.0, 0.0, 0.0)
    groups.publish(Protection(quarter, (1.0, 1.0, 0.0, 0.0, 0.0), Resources(40, 4_000), aggressive_threshold=0.5))
    for number in range(20):
        groups.add(an_allocation(number), (1, 0, number))
    # Ten of forty are its fair share and five are half of it: prefixes of 0 to 4, and of 0 to 9, are below.
    assert groups.counts() == {Group.NON_PREEMPTIBLE: 5, Group.AGGRESSIVELY_PREEMPTIBLE: 5, Group.PREEMPTIBLE: 10}


def test_without_any_fair_share_all_are_preemptible() -> None:
    groups = AllocationGroups(Rest(math.inf))
    groups.publish(Protection(total=TOTAL))
    allocation = Allocation(AllocationId("a"), OperationId("op-1"), NodeName("n"), Resources(1, 100))
    groups.add(allocation, (1, 0, 0))
    assert groups.group(allocation) is Group.PREEMPTIBLE
    assert groups.groups_without({allocation}) == {allocation: Group.PREEMPTIBLE}
    assert allocation.usage != ZERO


def test_what_may_be_taken_is_looked_for_once_between_two_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most heartbeats that look for victims find none, and ask for each allocation of their node."""
    looks = count_of_looks(monkeypatch)
    half = (0.5, 0.5, 0.0, 0.0, 0.0)
    groups = AllocationGroups(Rest(math.inf))
    allocations = [an_allocation(number) for number in range(20)]
    for number, allocation in enumerate(allocations):
        groups.add(allocation, (1, 0, number))
    groups.publish(Protection(half, (1.0, 1.0, 0.0, 0.0, 0.0), Resources(20, 2_000)))

    assert [groups.may_be_preemptible(one) for one in allocations] == [False] * 10 + [True] * 10
    first = len(looks)
    looks.clear()
    assert [groups.may_be_preemptible(one) for one in allocations] == [False] * 10 + [True] * 10
    assert (first < 10, looks) == (True, [])

    groups.remove(allocations[0])
    assert [groups.may_be_preemptible(one) for one in allocations[1:]] == [False] * 10 + [True] * 9
