"""Nodes that say that they have no user slots: neither their room counts nor what is used of it, and what runs there ends at once."""

from __future__ import annotations

import pytest

from headrace.resources import Resources
from headrace.runtime.settings import load
from headrace.wire.heartbeat import TakeBackReason
from headrace_allocator.settings import AllocatorSettings
from tests.support.allocating import an_operation, cores
from tests.unit.allocator.test_preemption import FOUR, Host, a_share

NO_SLOTS = Resources(user_slots=0, cpu=400, memory=2**30)


def test_neither_cpu_nor_memory_of_a_node_without_slots_is_part_of_the_cluster() -> None:
    host = Host()
    host.next_beat(total=NO_SLOTS)
    assert host.facts.total == Resources()

    host.next_beat()
    assert host.facts.total == FOUR


def test_what_was_told_to_go_with_more_time_goes_at_once_too() -> None:
    host = Host(an_operation("poor"))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 2, starves=True)], total=FOUR)
    victim = host.next_beat().take_back[0]
    assert victim.timeout_ms == 10_000

    taken = host.next_beat(allocations=host.picture(closing=[victim.allocation]), total=NO_SLOTS).take_back

    assert {one.timeout_ms for one in taken} == {0}
    assert len(taken) == 4


def test_a_node_that_has_its_slots_again_before_it_obeyed_keeps_what_runs() -> None:
    host = Host()
    host.next_beat()
    assert len(host.next_beat(total=NO_SLOTS).take_back) == 4

    assert host.next_beat(obeyed=False).take_back == []


@pytest.mark.parametrize("after_s", [1, 60])
def test_what_ends_with_the_slots_of_its_node_is_not_preempted(after_s: float) -> None:
    """Sections 7.5 and 7.6: the jobs are aborted, and the node is not over its resources, since nothing of it counts as used."""
    host = Host(an_operation("poor"))
    host.next_beat()
    # All of it may be taken, and somebody starves.
    host.tell([a_share("rich", 0), a_share("poor", 4, starves=True)], total=FOUR)
    answers = host.engine.answers
    answers.on_decisions_due(host.now)
    host.next_beat(total=NO_SLOTS, after_s=0, obeyed=False)
    taken = host.next_beat(total=NO_SLOTS, after_s=after_s, obeyed=False).take_back

    assert [(one.reason, one.preemption, one.timeout_ms) for one in taken] == [(TakeBackReason.LIMITS, None, 0)] * 4
    assert host.node("n").overcommitted_since_s is None
    assert answers.preemptions.total() == 0
    assert answers.on_decisions_due(host.now).answer is None, "nor is it in the stream of what happens"


def kept() -> Host:
    """A node whose jobs may end by themselves without slots."""
    variable = {"HEADRACE_ALLOCATOR_ENABLE_ALLOCATION_ABORT_ON_ZERO_USER_SLOTS": "false"}
    host = Host()
    timing = load(AllocatorSettings, "allocator", None, variable).timing(longest_lease_ms=0)
    host.facts.timing = timing
    host.next_beat()
    return host


def test_where_the_setting_says_so_nothing_is_taken_and_nothing_given_on_a_node_without_slots() -> None:
    host = kept()
    # All of it may be taken, and the node has had less than is used of it for longer than that is allowed.
    host.tell([a_share("rich", 0)], total=FOUR)
    for _ in range(4):
        orders = host.next_beat(total=NO_SLOTS)
        assert (orders.take_back, orders.extend, orders.start) == ([], [], [])


def test_how_long_a_node_is_overcommitted_counts_from_when_it_has_slots_again() -> None:
    host = kept()
    host.next_beat(total=NO_SLOTS, after_s=20)
    host.next_beat(total=NO_SLOTS, after_s=20)
    # All is owed to it: only the repair of the node takes any.
    shrunk = cores(3, slots=4)
    assert host.next_beat(total=shrunk).take_back == []
    assert host.next_beat(total=shrunk, after_s=14).take_back == []
    assert [one.reason for one in host.next_beat(total=shrunk, after_s=2).take_back] == [TakeBackReason.LIMITS]
