"""Decisions that are told to those who follow: each once, in order, and never more than there is room for."""

from __future__ import annotations

from headrace.ids import AllocationId, NodeName, OperationId, PoolName
from headrace.wire.happenings import MOST_DECISIONS, AllocationPreempted, AllocationStarted
from headrace.wire.preemption import ObservedPreemption, PreemptionReason, PreemptionRecord
from headrace_allocator import decisions_made
from headrace_allocator.decisions_made import DecisionsMade
from tests.support.allocating import TERM, TREE, an_operation
from tests.unit.allocator.test_preemption import FOUR, Host, a_share


def test_starts_and_preemptions_are_told_once_with_the_next_tick() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    host.next_beat()

    (told,) = host.engine.on_tick(host.moment).answer

    assert (told.term, told.first) == (TERM, 0)
    assert [(type(one), one.operation) for one in told.decisions] == [
        *[(AllocationStarted, "rich")] * 4,
        (AllocationPreempted, "rich"),
        (AllocationStarted, "poor"),
    ]
    assert isinstance(taken := told.decisions[4], AllocationPreempted)
    assert (taken.slot, taken.record.beneficiary, taken.node) == (host.starts[3].slots[0], "poor", "n")
    assert host.engine.on_tick(host.moment).answer == []


def test_more_than_a_message_holds_travel_in_several_and_what_is_dropped_is_counted() -> None:
    made = DecisionsMade(TREE)
    record = PreemptionRecord(PreemptionReason.PREEMPTION)
    one = ObservedPreemption(NodeName("n"), AllocationId("a"), OperationId("op"), PoolName("p"), record)
    made.note_observed([one] * (decisions_made._MOST_WAITING + 100))

    messages = made.take(TERM)

    assert messages[0].first == 100
    assert all(len(message.decisions) <= MOST_DECISIONS for message in messages)
    ends = [message.first + len(message.decisions) for message in messages]
    assert ends[:-1] == [message.first for message in messages[1:]]
    assert ends[-1] - messages[0].first == decisions_made._MOST_WAITING
