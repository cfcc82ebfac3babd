"""Reasons to preempt beside a starving operation: a node that has less than is used of it, and an operation above its own limits."""

from __future__ import annotations

import msgspec

from headrace.pools.amounts import PartialResources
from headrace.resources import ZERO
from headrace.wire.heartbeat import MOST_RECORDS_PER_HEARTBEAT, AllocationState
from headrace.wire.operations import OperationSpec
from headrace.wire.preemption import PreemptionReason
from tests.support.allocating import TERM, Desk, an_operation, cores
from tests.unit.allocator.test_preemption import FOUR, Host, a_share, report


def taken(host: Host, after_s: float = 6, **changes: object) -> list[tuple[str, PreemptionReason]]:
    """What a heartbeat has to give up, and the reasons."""
    orders = host.next_beat(after_s=after_s, **changes)
    return [(one.allocation, one.preemption.reason) for one in orders.take_back if one.preemption is not None]


def test_of_a_node_that_shrank_the_plainly_preemptible_go_at_once_and_the_others_after_the_time_of_grace() -> None:
    host = Host()
    host.next_beat()
    host.tell([a_share("rich", 3)], total=FOUR)
    host.nodes["n"] = cores(2, slots=4)
    names = [one.allocation for one in host.starts]

    assert taken(host) == [(names[3], PreemptionReason.PREEMPTION)]
    host.starts = host.starts[:3]
    assert taken(host, after_s=14) == []
    assert taken(host, after_s=2) == [(names[2], PreemptionReason.RESOURCE_OVERCOMMIT)]


def test_an_operation_above_its_own_limits_repays_what_is_plainly_preemptible_the_newest_first() -> None:
    host = Host()
    host.next_beat()
    host.facts.set_spec(host.operation("rich"), _limited(host, cpu=100))
    host.tell([a_share("rich", 2)], total=FOUR)
    names = [one.allocation for one in host.starts]

    reason = PreemptionReason.RESOURCE_LIMITS_VIOLATED
    assert taken(host) == [(names[3], reason), (names[2], reason)]


def test_tolerance_is_for_starts_and_excuses_nobody_from_repaying() -> None:
    host = Host()
    host.next_beat()
    host.facts.set_spec(host.operation("rich"), _limited(host, cpu=300, tolerance=100))
    host.tell([a_share("rich", 2)], total=FOUR)

    assert len(taken(host)) == 1


def test_what_a_node_gives_up_beyond_the_records_that_a_heartbeat_holds_counts_as_given_up_too() -> None:
    """The order to give those up is repeated, and losing a repeated one takes nothing back."""
    number = MOST_RECORDS_PER_HEARTBEAT + 5
    host = Desk({"n": cores(number, slots=number)})
    host.start(an_operation("rich", number, block=number, done=bytes(number // 8 + 1)))
    host.tell([a_share("rich", 4)], total=cores(number, slots=number))
    started = [report(one, at) for at, one in enumerate(host.beat("n")[0].start)]
    assert len(started) == number
    host.nodes["n"] = cores(0, slots=number)
    host.beat("n", allocations=started)
    host.now_s += 16
    taken = {one.allocation: one.preemption for one in host.beat("n", allocations=started)[0].take_back}
    assert len(taken) == number

    closing = [
        msgspec.structs.replace(
            one,
            state=AllocationState.CLOSING,
            preemption=taken[one.id] if at < MOST_RECORDS_PER_HEARTBEAT else None,
        )
        for at, one in enumerate(started)
    ]
    repeated = host.beat("n", allocations=closing)[0].take_back
    assert [one.allocation for one in repeated] == [one.id for one in closing[MOST_RECORDS_PER_HEARTBEAT:]]
    host.beat("n", obeyed=False, allocations=closing)
    assert host.operation("rich").held == ZERO
    assert all(one.preemption is not None for one in host.node("n").allocations.values())

    successor = Desk({"n": cores(number, slots=number)}, recovering=True)
    successor.start(an_operation("rich", number, block=number, done=bytes(number // 8 + 1), term=TERM - 1))
    successor.beat("n", allocations=closing)
    assert successor.operation("rich").held == ZERO
    # With so few all records are there: what has none closes for another reason.
    successor.beat("n", allocations=closing[-3:])
    assert successor.operation("rich").held == cores(3, slots=3)


def _limited(host: Host, *, cpu: int, tolerance: int = 0) -> OperationSpec:
    return msgspec.structs.replace(
        host.operation("rich").spec,
        resource_limits=PartialResources(cpu=cpu),
        resource_limits_overcommit_tolerance=PartialResources(cpu=tolerance),
    )
