"""How each allocation started: the stage of the heartbeat, the shares at that moment, and how much was taken for it."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import ROOT_POOL, AllocationId, OperationId, PoolName
from headrace.pools.amounts import PartialResources
from headrace.resources import ZERO_SHARE, Share
from headrace.wire.codec import encode
from headrace.wire.happenings import AllocationStarted
from headrace.wire.heartbeat import JobResult, TakeBackReason
from headrace.wire.nodes import OperationPlaces, WhereRequest
from headrace.wire.snapshots import ElementKind, PreemptionPriority, ShareItem, StarvationStatus
from headrace.wire.start_stages import LARGEST_START_BYTES, StartRecord, StartStage
from headrace_allocator.effects import Report
from tests.support.allocating import Desk, an_operation, cores, drawn_before
from tests.unit.allocator.test_gangs import Fleet, a_gang
from tests.unit.allocator.test_preemption import FOUR, Host, a_share, rich
from tests.unit.allocator.test_yarn_preemption import YarnDesk

OTHER = StartRecord(StartStage.YARN_PLAN, (0.5,) * 5, (0.5,) * 5, 9)


def starts_told(desk: Desk, operation: str) -> list[AllocationStarted]:
    """All starts of an operation that were not told yet."""
    told = []
    while message := desk.engine.answers.on_decisions_due(desk.now).answer:
        told += [one for one in message.decisions if isinstance(one, AllocationStarted)]
    return [one for one in told if one.operation == operation]


def of_four(cores_used: float) -> Share:
    return (cores_used / 4, cores_used / 4, 0.0, 0.0, 0.0)


def places(desk: Desk, operation: str) -> OperationPlaces:
    told = desk.engine.on_question(WhereRequest(OperationId(operation)), desk.now).answer
    assert isinstance(told, OperationPlaces)
    return told


def test_each_start_in_free_room_tells_what_its_operation_had_before_it() -> None:
    told = starts_told(Host(), "rich")

    assert [one.stage for one in told] == [StartStage.REGULAR_MEDIUM_PRIORITY] * 4
    assert [one.share_before for one in told] == [of_four(had) for had in range(4)]
    assert [(one.fair_share, one.places_taken) for one in told] == [(of_four(4), 0)] * 4


@pytest.mark.parametrize(
    ("size", "priority", "stage", "taken"),
    [
        (1, PreemptionPriority.NORMAL, StartStage.PREEMPTIVE_NORMAL, 1),
        (2, PreemptionPriority.AGGRESSIVE, StartStage.PREEMPTIVE_AGGRESSIVE, 2),
    ],
)
def test_a_start_that_others_make_room_for_tells_the_stage_and_how_many(
    size: int, priority: PreemptionPriority, stage: StartStage, taken: int
) -> None:
    host = Host(an_operation("poor", size=cores(size, slots=1)))
    host.next_beat()
    status = (
        StarvationStatus.AGGRESSIVELY_STARVING
        if priority is PreemptionPriority.AGGRESSIVE
        else StarvationStatus.STARVING
    )
    item = msgspec.structs.replace(
        a_share("poor", 2, starves=True), starvation_status=status, preemption_priority=priority
    )
    host.tell([a_share("rich", 2), item], total=FOUR)
    orders = host.next_beat()

    (told,) = starts_told(host, "poor")
    assert (told.stage, told.places_taken, len(orders.take_back)) == (stage, taken, taken)
    assert (told.share_before, told.fair_share) == (ZERO_SHARE, of_four(2))


def test_what_a_stage_repairs_by_the_way_was_not_taken_for_its_start() -> None:
    poor = an_operation("poor")
    host = Host(msgspec.structs.replace(poor, spec=msgspec.structs.replace(poor.spec, pool=PoolName("q"))))
    host.next_beat()
    limited = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(cpu=200))
    other = ShareItem(ElementKind.POOL, "q", ROOT_POOL)
    host.tell([limited, other, a_share("rich", 1), a_share("poor", 2, starves=True)], total=FOUR)
    orders = host.next_beat()

    assert [one.reason for one in orders.take_back] == [TakeBackReason.PREEMPTED, TakeBackReason.LIMITS]
    assert [one.places_taken for one in starts_told(host, "poor")] == [1]


def test_where_guarantees_come_first_the_regular_stage_has_two_priorities() -> None:
    desk = Desk({"n": FOUR})
    desk.options = msgspec.structs.replace(desk.options, enable_guarantee_priority_scheduling=True)
    desk.start(an_operation("promised", 1), an_operation("other", 1))
    desk.tell([_promised("promised"), a_share("other", 2)], total=FOUR)
    desk.beat("n")

    told = desk.engine.answers.on_decisions_due(desk.now).answer
    assert told is not None
    assert [(one.operation, one.stage) for one in told.decisions if isinstance(one, AllocationStarted)] == [
        ("promised", StartStage.REGULAR_HIGH_PRIORITY),
        ("other", StartStage.REGULAR_MEDIUM_PRIORITY),
    ]


def _promised(name: str) -> ShareItem:
    return msgspec.structs.replace(a_share(name, 2), promised_fair_share=of_four(2))


def test_a_gang_tells_the_stage_in_which_its_room_was_held() -> None:
    fleet = Fleet({name: cores(2, slots=9) for name in ("a", "b")})
    fleet.start(a_gang("gang", 4))
    fleet.tell([a_share("gang", 4)], total=FOUR)
    fleet.gather()
    assert starts_told(fleet, "gang") == []
    fleet.say_all()

    told = starts_told(fleet, "gang")
    assert [one.stage for one in told] == [StartStage.REGULAR_MEDIUM_PRIORITY] * 4
    # Its jobs start together: each has all the others beside it.
    assert {one.share_before for one in told} == {of_four(3)}


def test_a_start_that_a_policy_of_yarn_planned_tells_so() -> None:
    desk = YarnDesk()
    assert starts_told(desk, "poor")[0].stage is StartStage.REGULAR_MEDIUM_PRIORITY
    desk.claim(2)
    desk.beat("n1", allocations=desk.shown["n1"])

    told = starts_told(desk, "poor")
    assert [(one.stage, one.places_taken) for one in told] == [(StartStage.YARN_PLAN, 1)] * 2


def test_the_order_has_the_record_of_the_start_as_it_is_told_to_who_follows() -> None:
    host = Host()

    records = [one.record for one in host.starts]

    assert records == [
        StartRecord(one.stage, one.share_before, one.fair_share, one.places_taken)
        for one in starts_told(host, "rich")
        if one.stage is not None and one.share_before is not None and one.fair_share is not None
    ]
    assert [one.share_before for one in records if one is not None] == [of_four(had) for had in range(4)]


def test_the_order_to_a_gang_has_the_record_with_the_others_of_the_gang_beside_it() -> None:
    fleet = Fleet({name: cores(2, slots=9) for name in ("a", "b")})
    fleet.start(a_gang("gang", 4))
    fleet.tell([a_share("gang", 4)], total=FOUR)
    fleet.gather()

    records = [one.record for orders in fleet.say_all().values() for one in orders.start]

    assert records == [StartRecord(StartStage.REGULAR_MEDIUM_PRIORITY, of_four(3), of_four(4))] * 4


def test_the_records_of_an_operation_have_the_same_fair_share_in_memory() -> None:
    records = [one.record for one in Host().starts if one.record is not None]

    assert len({id(one.fair_share) for one in records}) == 1


def test_no_order_takes_more_room_for_its_record_than_answers_leave() -> None:
    share = (1 / 3,) * 5
    longest = [StartRecord(stage, share, share, 2**62) for stage in StartStage]

    assert max(len(encode(one)) for one in longest) <= LARGEST_START_BYTES


def test_a_record_says_in_one_byte_that_nothing_of_a_resource_is_used() -> None:
    (record, *_) = [one.record for one in Host().starts]
    assert record is not None

    floats = msgspec.structs.replace(record, share_before=ZERO_SHARE, fair_share=of_four(4))

    assert record == floats
    assert len(encode(floats)) - len(encode(record)) == 8 * 8


def test_a_later_allocator_knows_how_places_came_about_once_the_node_has_told() -> None:
    host = Host()
    host.next_beat()
    records = {one.allocation: one.record for one in host.starts if one.record is not None}
    shown = [(one.stage, one.start) for one in places(host, "rich").running]
    assert shown == [(StartStage.REGULAR_MEDIUM_PRIORITY, record) for record in records.values()]

    later = Desk({"n": FOUR}, recovering=True)
    later.start(drawn_before(rich()))
    later.beat("n", allocations=host.picture())
    assert [(one.stage, one.start) for one in places(later, "rich").running] == [(None, None)] * 4

    later.beat("n", allocations=host.picture(), starts=records | {AllocationId("unknown"): OTHER})
    assert [(one.stage, one.start) for one in places(later, "rich").running] == shown


def test_what_a_node_says_does_not_change_what_its_allocator_decided_itself() -> None:
    host = Host()

    host.next_beat(starts={one.allocation: OTHER for one in host.starts})

    assert [one.start for one in places(host, "rich").running] == [one.record for one in host.starts]


def test_the_end_of_a_job_that_is_lost_with_its_node_says_how_it_started() -> None:
    host = Host()
    host.next_beat()

    _, effects = host.beat("n", allocations=host.picture()[1:])

    told = [end for effect in effects if isinstance(effect, Report) for end in effect.ends]
    assert [(one.end.result, one.end.start) for one in told] == [(JobResult.LOST, host.starts[0].record)]
