"""A pool that only observes preemption: what it would lose is recorded once, and it loses nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import PreemptionSwitch
from headrace.wire.operation_spec import PreemptionMode
from headrace.wire.preemption import ListObserved, ObservedPreemption
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_allocator.heartbeat_answer import HeartbeatAnswers
from tests.support.taken_back import large_and_small, on_a_full_node
from tests.unit.allocator.test_preemption import FOUR, Host, a_share, used

OBSERVE = {"preemption": "observe"}


def observed(host: Host, pool: str = "") -> list[ObservedPreemption]:
    return answers(host).observed.page(host.facts, ListObserved(PoolName(pool))).observed


def answers(host: Host) -> HeartbeatAnswers:
    return host.engine.answers


def figure(host: Host, name: str) -> object:
    return {each.name: each.value for each in host.engine.figures()}[name]


def test_what_would_be_taken_is_recorded_with_its_reason_and_nothing_is_taken() -> None:
    taking, observing = on_a_full_node({}), on_a_full_node(OBSERVE)
    taken, kept = taking.next_beat(), observing.next_beat()

    assert (kept.start, kept.take_back) == ([], [])
    assert (used(observing, "rich"), used(observing, "poor")) == (4, 0)
    (found,) = observed(observing, "p")
    (order,) = taken.take_back
    assert (found.node, found.allocation, found.operation, found.pool) == ("n", order.allocation, "rich", "p")
    assert order.preemption is not None
    assert found.record == msgspec.structs.replace(order.preemption, observed=True)
    assert (figure(observing, "would_preempt_by_preemption"), figure(observing, "preempted_by_preemption")) == (1, 0)
    assert observed(observing, "elsewhere") == []


def test_the_same_is_recorded_once_however_often_it_is_decided() -> None:
    host = on_a_full_node(OBSERVE)
    for _ in range(5):
        host.next_beat()

    assert len(observed(host)) == 1
    assert figure(host, "would_preempt_by_preemption") == 1


def test_a_pool_observes_for_all_below_it_unless_one_says_otherwise() -> None:
    assert observed(on_a_full_node({}, pool=OBSERVE)) == []
    for tree, pool, takes in (({}, OBSERVE, False), (OBSERVE, {"preemption": "on"}, True)):
        host = on_a_full_node(tree, pool=pool)
        orders = host.next_beat()
        assert (len(orders.take_back), len(observed(host))) == ((1, 0) if takes else (0, 1))


def test_nothing_is_observed_where_preemption_is_off_or_paused() -> None:
    for options in ({"preemption": "off"}, OBSERVE | {"pause_preemption": True}):
        host = on_a_full_node(options)
        host.next_beat()
        assert observed(host) == []


def test_several_that_would_go_at_once_are_recorded_with_what_each_would_leave() -> None:
    host = on_a_full_node(OBSERVE, pool={"resource_limits": {"cpu": 2}})
    host.next_beat()

    shares = [(one.record.share_before[1], one.record.share_after[1]) for one in reversed(observed(host))]
    assert shares == [(1.0, 0.75), (0.75, 0.5)]
    assert {one.record.reason for one in observed(host)} == {"resource_limits_violated"}


def test_a_graceful_operation_is_not_asked() -> None:
    host = on_a_full_node(OBSERVE, preemption_mode=PreemptionMode.GRACEFUL)
    orders = host.next_beat()

    assert orders.take_back == []
    assert {one.record.reason for one in observed(host)} == {"graceful_preemption"}


def test_a_decision_is_observed_as_a_whole() -> None:
    """Whoever would lose something beside, in a pool where preemption is on, keeps it too."""
    large, small = a_pool("p", preemption=PreemptionSwitch.OBSERVE), a_pool("q")
    desk, running = large_and_small(small_in="q")
    desk.tell([large, small, a_share("large", 0), a_share("small", 0), a_share("poor", 4, starves=True)], total=FOUR)
    desk.now_s += 6
    orders = desk.beat("n", allocations=running)[0]

    assert (orders.start, orders.take_back) == ([], [])
    page = desk.engine.answers.observed.page(desk.facts, ListObserved())
    assert [one.operation for one in page.observed] == ["large", "small"]


def test_a_start_beyond_the_most_of_one_heartbeat_is_not_observed() -> None:
    host = on_a_full_node(OBSERVE)
    host.facts.timing = msgspec.structs.replace(host.facts.timing, most_starts=0)
    host.next_beat()

    assert observed(host) == []


def a_pool(name: str, **options: Any) -> ShareItem:
    return ShareItem(ElementKind.POOL, name, ROOT_POOL, options=EffectiveOptions(**options))
