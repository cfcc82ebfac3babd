"""How an allocation got its place stays known, whatever happens to it, and each end says the same of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import AllocationState, JobEnd, JobResult
from headrace.wire.nodes import OperationPlaces, WhereRequest
from headrace.wire.start_stages import StartRecord, StartStage
from headrace_allocator.effects import Effect, Report
from tests.support.allocating import Desk, cores, drawn_before
from tests.unit.allocator.test_places_taken_unbegun import THREE, a_waiting_victim
from tests.unit.allocator.test_preemption import FOUR, Host, rich

OTHER = StartRecord(StartStage.YARN_PLAN, (0.5,) * 5, (0.5,) * 5, 9)


def shown(desk: Desk) -> list[StartRecord | None]:
    """How the running jobs started, as people are told."""
    told = desk.engine.on_question(WhereRequest(OperationId("rich")), desk.now).answer
    assert isinstance(told, OperationPlaces)
    return [one.start for one in told.running]


def told(effects: Sequence[Effect]) -> list[StartRecord | None]:
    """How the jobs started of which the log is told that they ended."""
    return [one.end.start for effect in effects if isinstance(effect, Report) for one in effect.ends]


def records_of(host: Host) -> dict[AllocationId, StartRecord]:
    return {one.allocation: one.record for one in host.starts if one.record is not None}


def test_a_start_stays_known_when_the_operation_is_known_only_after_the_node_has_told() -> None:
    host = Host()
    host.next_beat()
    later = Desk({"n": FOUR}, recovering=True)
    later.beat("n", allocations=host.picture())
    later.beat("n", allocations=host.picture(), starts=records_of(host))

    later.start(drawn_before(rich()))
    later.beat("n", allocations=host.picture())

    assert shown(later) == [*records_of(host).values()]


def test_a_start_stays_known_when_its_operation_goes_and_comes_again() -> None:
    host = Host()
    host.next_beat()
    host.start()
    host.next_beat()

    host.start(drawn_before(rich()))
    host.next_beat()

    assert shown(host) == [*records_of(host).values()]


def test_a_job_that_is_gone_in_the_heartbeat_that_tells_of_its_start_is_lost_with_it() -> None:
    host = Host()
    host.next_beat()
    later = Desk({"n": FOUR}, recovering=True)
    later.start(drawn_before(rich()))
    later.beat("n", allocations=host.picture())

    _, effects = later.beat("n", allocations=host.picture()[1:], starts=records_of(host))

    assert told(effects) == [host.starts[0].record]


@pytest.mark.parametrize("is_seen_before", [True, False])
def test_a_place_that_was_taken_unbegun_says_how_it_came_about_though_another_allocator_had_given_it(
    is_seen_before: bool,
) -> None:
    host, ended, _ = a_waiting_victim()
    later, others = Desk({"n": THREE}, recovering=True), host.picture()[:3]
    later.start(drawn_before(rich()))
    if is_seen_before:
        later.beat("n", allocations=[*others, msgspec.structs.replace(ended, state=AllocationState.CLOSING)])

    _, effects = later.beat("n", allocations=[*others, ended], starts=records_of(host))

    assert told(effects) == [host.starts[3].record]
    assert shown(later) == [one.record for one in host.starts[:3]]


@pytest.mark.parametrize("said", [None, OTHER])
def test_an_end_says_what_the_allocator_knows_where_the_node_knows_nothing_or_something_else(
    said: StartRecord | None,
) -> None:
    host = Host()
    host.next_beat()
    start = host.starts[0]
    (slot,) = start.slots
    end = JobEnd(start.operation, slot.index, slot.attempt, start.allocation, JobResult.LOST, start=said)

    _, effects = host.beat("n", allocations=host.picture()[1:], ends=[end], total=cores(3, slots=3))

    assert told(effects) == [start.record]
