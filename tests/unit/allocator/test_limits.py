"""Limits of pools and operations: what stands below one never takes more, and takes all of it again when something ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from headrace.ids import ROOT_POOL, AllocationId, OperationId, PoolName
from headrace.pools.amounts import NOTHING, PartialResources
from headrace.resources import Resources
from headrace.wire.heartbeat import AllocationReport, AllocationState, JobEnd, JobResult, JobSlot, RunningJob
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import OperationPlaced, OperationStateChanged, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_allocator.effects import Effect
from headrace_allocator.facts.allocations import Allocation
from tests.support.allocating import TREE, Desk, a_share, an_operation, cores, drawn_before

NODE = cores(10, slots=100)
TOTAL = NODE


def a_pool(name: str, parent: str = ROOT_POOL, cpu: float = 1.0) -> ShareItem:
    """A pool that may have this part of the cluster's cores; with all of them it has no limit."""
    limits = PartialResources(cpu=round(cpu * NODE.cpu)) if cpu < 1.0 else NOTHING
    return ShareItem(ElementKind.POOL, name, PoolName(parent), limits=limits)


def in_pool(live: LiveOperation, pool: str, **spec: Any) -> LiveOperation:
    return msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, pool=PoolName(pool), **spec))


class Tree(Desk):
    """One node of ten cores, pools with limits, and operations that are all owed something."""

    def __init__(self, pools: list[ShareItem], *operations: LiveOperation) -> None:
        super().__init__({"n": NODE})
        self.beat("n")
        self.start(*operations)
        self.told = [a_share(each.operation, 0.5) for each in operations]
        self.tell(pools)

    def tell(self, shares: Iterable[ShareItem], total: Resources | None = TOTAL) -> Sequence[Effect]:
        return super().tell([*shares, *self.told], total)

    def places(self) -> list[Allocation]:
        return list(self.node("n").allocations.values())

    def used(self, *operations: str) -> float:
        """Cores of allocations of these operations."""
        return sum(each.resources.cpu for each in self.places() if each.operation in operations) / 100

    def report(self, *ended: str) -> None:
        """A heartbeat that shows all allocations as running, but for one of each named operation, which has ended."""
        shown: list[AllocationReport] = []
        ends: list[JobEnd] = []
        waiting = list(ended)
        for each in self.places():
            slot = next(iter(each.slots.values()))
            state = AllocationState.RUNNING
            job: RunningJob | None = RunningJob(slot.index, slot.attempt, started_boottime_ms=10)
            if each.operation in waiting:
                waiting.remove(each.operation)
                ends.append(JobEnd(each.operation, slot.index, slot.attempt, each.id, JobResult.COMPLETED))
                state, job = AllocationState.ENDED, None
            shown.append(AllocationReport(each.id, each.operation, state, each.resources, job))
        self.beat("n", allocations=shown, ends=ends)
        assert not waiting


def test_a_pool_takes_no_more_than_its_limit_and_the_rest_goes_to_others() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], an_operation("a"), an_operation("b"), in_pool(an_operation("c", 20), "q"))
    tree.beat("n")

    assert tree.used("a", "b") == 3
    assert tree.used("c") == 7


def test_the_limit_of_a_pool_above_holds_for_all_below_it() -> None:
    pools = [a_pool("above", cpu=0.4), a_pool("p", "above", cpu=0.3), a_pool("q", "above")]
    tree = Tree(pools, an_operation("a"), in_pool(an_operation("b"), "q"))
    tree.beat("n")

    assert tree.used("a", "b") == 4
    assert tree.used("a") <= 3


def test_when_a_job_ends_another_of_the_pool_takes_its_place_with_the_same_heartbeat() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], an_operation("a", 2), an_operation("b", 20))
    tree.beat("n")
    assert (tree.used("a"), tree.used("b")) in ((1, 2), (2, 1))
    tree.report("a")

    assert tree.used("a", "b") == 3
    tree.report("b")
    assert tree.used("a", "b") == 3


def test_an_operation_that_has_nothing_anywhere_starts_as_soon_as_another_of_the_pool_ends() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], an_operation("a", 3))
    tree.beat("n")
    tree.start(an_operation("a", 3), an_operation("b", 20))
    tree.told.append(a_share("b", 0.5))
    tree.tell([a_pool("p", cpu=0.3)])
    tree.report()
    before = tree.used("b")
    tree.report("a")

    assert (before, tree.used("a"), tree.used("b")) == (0, 2, 1)


def test_who_was_held_back_for_size_gets_its_turn_when_there_is_room_enough() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], an_operation("a", 3), an_operation("large", 1, cores(2)))
    tree.tell([a_pool("p", cpu=0.3)])
    tree.beat("n")
    while tree.used("large") == 0:
        tree.report("a")

    assert tree.used("large") == 2
    assert tree.used("a", "large") <= 3


def test_a_limit_that_is_raised_or_taken_away_lets_more_in() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], an_operation("a", 20))
    tree.beat("n")
    tree.tell([a_pool("p", cpu=0.5)])
    tree.report()
    raised = tree.used("a")
    tree.tell([a_pool("p")])
    tree.report()

    assert (raised, tree.used("a")) == (5, 10)


def test_a_limit_that_is_lowered_stops_starts_and_nothing_else() -> None:
    tree = Tree([a_pool("p", cpu=0.5)], an_operation("a", 20))
    tree.beat("n")
    tree.tell([a_pool("p", cpu=0.2)])
    tree.report("a", "a")

    assert tree.used("a") == 3


def test_an_operation_moved_into_a_full_pool_starts_nothing_there() -> None:
    tree = Tree([a_pool("p", cpu=0.2), a_pool("q")], an_operation("a", 20), in_pool(an_operation("b", 20), "q"))
    tree.beat("n")
    moved = OperationPlaced(OperationId("b"), TreePlacement(TREE, PoolName("p"), 2))
    tree.learn(moved)
    tree.refresh()
    tree.report("b", "b")

    assert (tree.used("a"), tree.used("b")) == (2, 6)
    assert tree.engine.check() == []


def test_an_operation_takes_no_more_than_its_own_limits() -> None:
    limited = in_pool(an_operation("a", 20), "p", resource_limits=PartialResources(cpu=250))
    tree = Tree([a_pool("p")], limited)
    tree.beat("n")
    before = tree.used("a")
    tree.report("a")

    assert (before, tree.used("a")) == (2, 2)


def test_why_an_operation_waits_names_the_pool_the_limit_and_what_is_in_use() -> None:
    limited = in_pool(an_operation("b", 20), "q", resource_limits=PartialResources(cpu=100))
    tree = Tree([a_pool("p", cpu=0.3), a_pool("q")], an_operation("a", 20), limited)
    tree.beat("n")

    assert tree.reasons("a")[0] == "resource_limits of pool p allow no further job: 3 of 3 cpu in use"
    assert tree.reasons("b")[0] == "the operation's own resource_limits allow no further job: 1 of 1 cpu in use"


def test_the_sums_under_limits_are_checked() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], an_operation("a", 20))
    tree.beat("n")
    tree.facts.pools.use(PoolName("p"), cores(1))

    assert tree.engine.check() == [
        f"pool p: its {resource} in use or in doubt differs from the sum of its operations"
        for resource in ("user_slots", "cpu")
    ]


def test_an_operation_that_moves_out_or_ends_leaves_its_room_under_the_limit_to_others() -> None:
    for event in (
        OperationPlaced(OperationId("a"), TreePlacement(TREE, PoolName("q"), 2)),
        OperationStateChanged(OperationId("a"), OperationState.ABORTED, StateCause.ABORTED_BY_USER, "", 1),
    ):
        tree = Tree([a_pool("p", cpu=0.2), a_pool("q")], an_operation("a", 2))
        tree.beat("n")
        (limit,) = tree.facts.pools.above(PoolName("p"))
        before = limit.used
        tree.learn(event)

        assert (before, limit.used) == (cores(2, slots=2), cores(0, slots=0))
        assert tree.engine.check() == []


def test_an_allocation_of_a_former_allocator_keeps_its_jobs() -> None:
    """They are out, so nobody else gets them, and their ends are theirs."""
    desk = Desk({"n": NODE}, recovering=True)
    desk.start(drawn_before(an_operation("a", 3)))
    job = RunningJob(0, 1, started_boottime_ms=10)
    held = AllocationReport(AllocationId("4-1"), OperationId("a"), AllocationState.RUNNING, cores(1), job, [JobSlot(1)])

    desk.beat("n", allocations=[held])
    orders, _ = desk.beat("n", allocations=[held])

    assert [start.slots for start in orders.start] == [[JobSlot(2)]]
    assert set(desk.node("n").allocations[AllocationId("4-1")].slots) == {0, 1}


def test_a_limit_as_large_as_the_cluster_holds_when_a_node_joins() -> None:
    """Before the next snapshot, which tells of a larger cluster, no more starts than the pool may use."""
    desk = Desk({"n": NODE, "m": NODE})
    desk.beat("n")
    desk.start(in_pool(an_operation("op", jobs=30), "p"))
    limit = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(cpu=NODE.cpu))
    desk.tell([limit, a_share("op", 0.5)], total=NODE)

    started = [start for name in ("n", "m") for start in desk.beat(name)[0].start]

    assert sum(start.resources.cpu for start in started) == NODE.cpu
