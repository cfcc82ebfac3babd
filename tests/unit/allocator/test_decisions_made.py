"""Decisions that are told to those who follow: each once, in order, and never more than there is room for."""

from __future__ import annotations

from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName
from headrace.wire.happenings import MOST_DECISIONS, AllocationPreempted, AllocationStarted
from headrace.wire.preemption import ObservedPreemption, PreemptionReason, PreemptionRecord
from headrace_allocator import published_decisions
from headrace_allocator.facts.preemption_groups import Group
from headrace_allocator.preemption.audit.counts import PreemptionCounts
from headrace_allocator.published_decisions import DecisionsMade
from tests.support.allocating import TERM, TREE, an_operation
from tests.unit.allocator.test_limits import Tree, a_pool
from tests.unit.allocator.test_preemption import FOUR, Host, a_share


def test_starts_and_preemptions_are_told_once() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    host.next_beat()

    told = host.engine.answers.on_decisions_due(host.now).answer

    assert told is not None
    assert (told.term, told.first) == (TERM, 0)
    assert [(type(one), one.operation) for one in told.decisions] == [
        *[(AllocationStarted, "rich")] * 4,
        (AllocationPreempted, "rich"),
        (AllocationStarted, "poor"),
    ]
    assert isinstance(taken := told.decisions[4], AllocationPreempted)
    assert (taken.slot, taken.record.beneficiary, taken.node) == (host.starts[3].slots[0], "poor", "n")
    assert host.engine.answers.on_decisions_due(host.now).answer is None


def test_more_than_a_message_holds_travel_in_several_and_what_is_dropped_is_counted() -> None:
    made = DecisionsMade(TREE)
    record = PreemptionRecord(PreemptionReason.PREEMPTION)
    one = ObservedPreemption(NodeName("n"), AllocationId("a"), OperationId("op"), PoolName("p"), record)
    made.note_observed([one] * (published_decisions._MOST_WAITING + 100))

    messages = []
    while message := made.take(TERM):
        messages.append(message)

    assert messages[0].first == 100
    assert all(len(message.decisions) <= MOST_DECISIONS for message in messages)
    ends = [message.first + len(message.decisions) for message in messages]
    assert ends[:-1] == [message.first for message in messages[1:]]
    assert ends[-1] - messages[0].first == published_decisions._MOST_WAITING


def test_preemptions_are_counted_by_reason_and_group_below_each_pool() -> None:
    tree = Tree([a_pool("lab"), a_pool("vision", "lab"), a_pool("other")])
    counts = PreemptionCounts()
    for pool, group in (("vision", Group.PREEMPTIBLE), ("vision", Group.PREEMPTIBLE), ("lab", Group.NON_PREEMPTIBLE)):
        counts.note(PoolName(pool), PreemptionReason.PREEMPTION, group)
    counts.note(PoolName("other"), PreemptionReason.RESOURCE_OVERCOMMIT, Group.PREEMPTIBLE)

    def below(pool: str) -> list[tuple[str, str, int]]:
        found = counts.below(tree.facts.pools, PoolName(pool))
        return [(one.reason.value, one.group, one.count) for one in found]

    assert below("vision") == [("preemption", "preemptible", 2)]
    assert below("lab") == [("preemption", "preemptible", 2), ("preemption", "non_preemptible", 1)]
    assert len(below("")) == len(below(ROOT_POOL)) == 3
    figures = {figure.name: figure.value for figure in counts.figures()}
    assert (figures["preempted_by_preemption"], figures["preempted_by_resource_overcommit"]) == (3, 1)
    assert (figures["preempted_of_preemptible"], figures["preempted_of_non_preemptible"]) == (3, 1)
    of_pools = {(one.labels["pool"], one.labels["reason"]): one.value for one in counts.of_pools()()}
    assert {key: value for key, value in of_pools.items() if value} == {
        ("vision", "preemption"): 2,
        ("lab", "preemption"): 1,
        ("other", "resource_overcommit"): 1,
    }
    assert of_pools[ROOT_POOL, "preemption"] == 0
