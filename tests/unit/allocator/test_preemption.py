"""Preemption on the heartbeat of a node: who gives up what, for whom, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headrace.ids import AllocationId, Incarnation, OperationId, PoolName
from headrace.pools.amounts import PartialResources
from headrace.pools.pool_config import PreemptionSwitch
from headrace.resources import Resources, Share
from headrace.wire.heartbeat import AllocationReport, AllocationState, Orders, RunningJob, Start, TakeBackReason
from headrace.wire.ledger import LiveOperation
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace.wire.snapshots import (
    DetailedShare,
    ElementKind,
    PreemptionPriority,
    SchedulingStatus,
    ShareItem,
    StarvationStatus,
)
from headrace_allocator import heartbeat_orders
from tests.support.allocating import Desk, an_operation, cores, drawn_before

FOUR = cores(4, slots=4)


def a_share(name: str, cores_owed: float, *, demand: float = 4, starves: bool = False, **changes: Any) -> ShareItem:
    """An operation that is owed so many of four cores."""

    def of_four(count: float) -> Share:
        return (count / 4, count / 4, 0.0, 0.0, 0.0)

    return ShareItem(
        ElementKind.OPERATION,
        name,
        PoolName("p"),
        fair_share=DetailedShare(total=of_four(cores_owed)),
        demand_share=of_four(demand),
        scheduling_status=SchedulingStatus.BELOW_FAIR_SHARE if starves else SchedulingStatus.NORMAL,
        starvation_status=StarvationStatus.STARVING if starves else StarvationStatus.NON_STARVING,
        preemption_priority=PreemptionPriority.NORMAL if starves else PreemptionPriority.NONE,
        **changes,
    )


class Host(Desk):
    """One node of four cores, full of the jobs of `rich`."""

    def __init__(self, *others: LiveOperation, **changes: Any) -> None:
        super().__init__({"n": FOUR})
        #: Beneficiary of the preemptions, as the node was told.
        self.records: dict[AllocationId, PreemptionRecord | None] = {}
        self.start(rich(**changes), *others)
        self.tell([a_share("rich", 4)], total=FOUR)
        self.starts: list[Start] = list(self.beat("n")[0].start)
        assert len(self.starts) == 4

    def picture(self, *, closing: Sequence[str] = ()) -> list[AllocationReport]:
        """All that was started, as the node shows it. Each began a second after the one before."""
        return [
            msgspec.structs.replace(
                report(one, number, AllocationState.CLOSING if one.allocation in closing else AllocationState.RUNNING),
                preemption=self.records.get(one.allocation) if one.allocation in closing else None,
            )
            for number, one in enumerate(self.starts)
        ]

    def next_beat(self, *, after_s: float = 6, **changes: Any) -> Orders:
        self.now_s += after_s
        orders = self.beat("n", **{"allocations": self.picture(), **changes})[0]
        self.records |= {one.allocation: one.preemption for one in orders.take_back}
        return orders


def rich(**changes: Any) -> LiveOperation:
    live = an_operation("rich")
    return msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, **changes))


def report(start: Start, number: int, state: AllocationState = AllocationState.RUNNING) -> AllocationReport:
    slot = start.slots[0]
    job = RunningJob(slot.index, slot.attempt, 1_000 * (number + 1), 10)
    return AllocationReport(start.allocation, start.operation, state, start.resources, job, list(start.slots[1:]))


def used(desk: Desk, operation: str) -> int:
    return desk.operation(operation).held.cpu // 100


def test_a_starving_operation_gets_the_place_that_began_last() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    orders = host.next_beat()

    # `rich` keeps half of the host, as it is owed: the two that began last are preemptible, and one start needs one of them.
    assert [start.operation for start in orders.start] == ["poor"]
    taken = orders.take_back[0]
    assert [one.allocation for one in orders.take_back] == [host.starts[3].allocation]
    assert (taken.reason, taken.timeout_ms, taken.detail) == (
        TakeBackReason.PREEMPTED,
        10_000,
        "for poor, which starves",
    )
    record = taken.preemption
    assert record is not None
    assert (record.reason, record.beneficiary, record.properly) == (PreemptionReason.PREEMPTION, "poor", True)
    assert (record.share_before[1], record.share_after[1], record.fair_share[1]) == (1.0, 0.75, 0.5)
    assert (used(host, "rich"), used(host, "poor")) == (3, 1)


def test_the_stages_pause_on_a_node_and_then_take_the_next() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    first = host.next_beat()
    closing = [first.take_back[0].allocation]
    host.starts.append(first.start[0])

    def picture() -> list[AllocationReport]:
        return [one for one in host.picture() if one.id not in closing]

    assert host.next_beat(after_s=5, allocations=picture()).start == []
    second = host.next_beat(after_s=0.1, allocations=picture())
    assert [start.operation for start in second.start] == ["poor"]
    assert [one.allocation for one in second.take_back] == [host.starts[2].allocation]
    closing += [second.take_back[0].allocation]
    host.starts.append(second.start[0])
    assert host.next_beat(allocations=picture()).take_back == []


def test_what_the_node_was_never_told_did_not_happen() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    host.next_beat()
    host.tell([a_share("rich", 4), a_share("poor", 0)], total=FOUR)
    orders = host.next_beat(obeyed=False)

    assert (orders.start, orders.take_back) == ([], [])
    assert (used(host, "rich"), used(host, "poor")) == (4, 0)
    figures = {figure.name: figure.value for figure in host.engine.figures()}
    assert (figures["preempted_by_preemption"], figures["preemptions_undone"]) == (1, 1)


def test_what_a_former_life_of_the_agent_was_not_told_did_not_happen() -> None:
    """Even while ends of that life wait, since a preempted allocation would show it."""
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    host.next_beat()
    host.tell([a_share("rich", 4), a_share("poor", 0)], total=FOUR)
    orders = host.next_beat(obeyed=False, incarnation=Incarnation("life-2"), ends_waiting=1)

    assert not {one.allocation for one in orders.take_back} & {one.allocation for one in host.starts}
    assert used(host, "rich") == 4


def test_nobody_loses_a_place_for_a_start_that_the_answer_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    start_bytes = 256 + 16 + host.operation("poor").job_spec_bytes
    # The start alone would fit, or the order to take back.
    monkeypatch.setattr(heartbeat_orders, "LARGEST_MESSAGE_BYTES", 4 * 256 + start_bytes + 300)
    orders = host.next_beat()
    assert (orders.start, orders.take_back) == ([], [])
    assert (used(host, "rich"), used(host, "poor")) == (4, 0)

    monkeypatch.undo()
    orders = host.next_beat()
    assert (len(orders.start), len(orders.take_back)) == (1, 1)


def test_room_that_was_made_and_is_not_needed_is_counted() -> None:
    """Allocations go whole: half a core is needed, and one of a core is taken."""
    host = Host(an_operation("poor", size=cores(0.5)))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    host.next_beat()

    figures = {each.name: each.value for each in host.engine.figures()}
    assert (figures["preempted_unused_cpu"], figures["preempted_by_preemption"]) == (50, 1)


def test_the_order_is_repeated_until_the_node_shows_the_allocation_closing() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    first = host.next_beat()
    victim = first.take_back[0]
    waiting = msgspec.structs.replace(report(first.start[0], 5, AllocationState.WAITING), job=None)

    assert host.next_beat(allocations=[*host.picture(), waiting]).take_back == [victim]
    orders = host.next_beat(allocations=[*host.picture(closing=[victim.allocation]), waiting])
    # While an allocation waits there for room, nothing more starts.
    assert (orders.take_back, orders.start) == ([], [])
    assert used(host, "rich") == 3


def test_an_allocation_that_closes_already_is_told_until_it_knows_that_it_is_preempted() -> None:
    """A place that is given back at the end of its job is closing, and its job runs on."""
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    first = host.next_beat()
    victim, told = first.take_back[0], dict(host.records)
    waiting = msgspec.structs.replace(report(first.start[0], 5, AllocationState.WAITING), job=None)
    host.records.clear()

    again = host.next_beat(allocations=[*host.picture(closing=[victim.allocation]), waiting])
    host.records = told
    known = host.next_beat(allocations=[*host.picture(closing=[victim.allocation]), waiting])

    assert (again.take_back, known.take_back) == ([victim], [])


def test_a_closing_allocation_that_was_never_told_of_its_preemption_was_not_preempted() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    victim = host.next_beat().take_back[0]
    host.records.clear()
    host.tell([a_share("rich", 4), a_share("poor", 0)], total=FOUR)

    orders = host.next_beat(allocations=host.picture(closing=[victim.allocation]), obeyed=False)

    assert orders.take_back == []
    assert (used(host, "rich"), used(host, "poor")) == (4, 0)


def test_a_later_allocator_knows_what_was_preempted() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    victim = host.next_beat().take_back[0]

    later = Desk({"n": FOUR}, recovering=True)
    later.start(drawn_before(rich()), an_operation("poor"))
    shown = [
        msgspec.structs.replace(
            one,
            id=AllocationId(f"4-{one.id}"),
            preemption=victim.preemption if one.state is AllocationState.CLOSING else None,
        )
        for one in host.picture(closing=[victim.allocation])
    ]
    later.beat("n", allocations=shown)
    assert used(later, "rich") == 3


def test_those_who_starve_themselves_and_pools_that_are_switched_off_lose_nothing() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2, starves=True), a_share("poor", 2, starves=True)], total=FOUR)
    assert host.next_beat().take_back == []

    host = Host(an_operation("poor"))
    host.next_beat()
    host.options = msgspec.structs.replace(host.options, preemption=PreemptionSwitch.OFF)
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    assert host.next_beat().take_back == []


def test_an_operator_pauses_preemption() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.facts.preemption_paused = True
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    assert host.next_beat().take_back == []


def test_what_is_above_a_lowered_limit_is_repaid_though_nobody_starves() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    pool = ShareItem(ElementKind.POOL, "p", PoolName("<Root>"), limits=PartialResources(cpu=300))
    host.tell([pool, a_share("rich", 3)], total=FOUR)
    orders = host.next_beat()

    assert orders.start == []
    assert [(one.allocation, one.reason) for one in orders.take_back] == [
        (host.starts[3].allocation, TakeBackReason.LIMITS)
    ]
    host.now_s += 10
    assert len(host.next_beat(allocations=host.picture()[:3]).take_back) == 0


def test_a_node_that_shrank_is_repaired_after_the_time_that_is_allowed() -> None:
    host = Host()
    host.next_beat()
    # All of it is owed to `rich`, so no stage may take anything.
    shrunk = cores(2, slots=4)
    assert host.next_beat(total=shrunk).take_back == []
    assert host.next_beat(after_s=15, total=shrunk).take_back == []
    taken = host.next_beat(after_s=0.1, total=shrunk).take_back
    assert [one.allocation for one in taken] == [host.starts[2].allocation, host.starts[3].allocation]
    assert {one.preemption.reason for one in taken if one.preemption} == {PreemptionReason.RESOURCE_OVERCOMMIT}


def test_a_shrunk_node_may_hold_allocations_of_an_operation_that_is_over() -> None:
    host = Host()
    host.next_beat()
    shrunk = cores(2, slots=4)
    host.next_beat(total=shrunk)
    host.engine.on_operations([], host.now)
    taken = host.next_beat(after_s=16, total=shrunk).take_back

    assert {(one.allocation, one.reason) for one in taken} == {
        (start.allocation, TakeBackReason.OPERATION_ENDED) for start in host.starts
    }


def test_a_node_without_slots_gives_everything_up_at_once() -> None:
    host = Host()
    host.next_beat()
    taken = host.next_beat(total=Resources(0, 400)).take_back
    assert [one.timeout_ms for one in taken] == [0, 0, 0, 0]


def test_what_goes_from_a_shrunk_node_at_once_goes_for_nobody() -> None:
    host = Host()
    host.next_beat()
    host.tell([a_share("rich", 2)], total=FOUR)
    taken = host.next_beat(total=cores(3, slots=4)).take_back
    assert [(one.allocation, one.reason, one.detail) for one in taken] == [
        (host.starts[3].allocation, TakeBackReason.PREEMPTED, "its node has less than its allocations take")
    ]


def test_a_graceful_operation_is_asked_at_once_and_gets_no_more_than_its_share() -> None:
    host = Host()
    operation = host.operation("rich")
    operation.set_spec(msgspec.structs.replace(operation.spec, preemption_mode=PreemptionMode.GRACEFUL))
    host.next_beat()
    host.tell([a_share("rich", 3)], total=FOUR)
    taken = host.next_beat().take_back

    assert [(one.allocation, one.timeout_ms) for one in taken] == [(host.starts[3].allocation, 60_000)]
    # Nobody else gets its room before it is gone.
    assert used(host, "rich") == 4
    orders = host.next_beat(allocations=host.picture(closing=[taken[0].allocation])[:3])
    assert (orders.start, used(host, "rich")) == ([], 3)
    assert host.reasons("rich")[0:1] == ["the operation is graceful and has its fair share, so it gets no more"]


def test_a_graceful_operation_gets_no_more_time_than_others_where_its_node_shrank() -> None:
    host = Host()
    operation = host.operation("rich")
    operation.set_spec(msgspec.structs.replace(operation.spec, preemption_mode=PreemptionMode.GRACEFUL))
    host.next_beat()
    shrunk = cores(2, slots=4)
    host.next_beat(total=shrunk)
    taken = host.next_beat(after_s=16, total=shrunk).take_back

    assert [(one.preemption and one.preemption.reason, one.timeout_ms) for one in taken] == [
        (PreemptionReason.RESOURCE_OVERCOMMIT, 10_000)
    ] * 2


def test_only_an_aggressively_starving_operation_takes_what_is_within_the_fair_share() -> None:
    host = Host(an_operation("poor", size=cores(2, slots=1)))
    host.next_beat()
    item = a_share("poor", 2, starves=True)
    host.tell([a_share("rich", 4), item], total=FOUR)
    assert host.next_beat().take_back == []

    aggressive = msgspec.structs.replace(
        item,
        starvation_status=StarvationStatus.AGGRESSIVELY_STARVING,
        preemption_priority=PreemptionPriority.AGGRESSIVE,
    )
    host.tell([a_share("rich", 4), aggressive], total=FOUR)
    orders = host.next_beat()
    assert [start.operation for start in orders.start] == [OperationId("poor")]
    # Half of four is kept: the two that began last go.
    assert [one.allocation for one in orders.take_back] == [host.starts[3].allocation, host.starts[2].allocation]
