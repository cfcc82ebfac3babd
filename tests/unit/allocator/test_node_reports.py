"""Reading heartbeats: as `decode` reads them, and what was told before is not read again."""

from __future__ import annotations

import math
from random import Random

import msgspec
import pytest

from headrace.ids import AllocationId, Incarnation, NodeName, OperationId, TreeName
from headrace.resources import Resources
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    Heartbeat,
    HeartbeatReason,
    JobSlot,
    RunningJob,
)
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace_allocator.links.node_reports import PictureReader

CALLER = Caller(CallerKind.NODE, "n1", "")


def a_report(number: int, **changes: object) -> AllocationReport:
    report = AllocationReport(
        AllocationId(f"a-{number}"),
        OperationId("op"),
        AllocationState.RUNNING,
        Resources(1, 100),
        RunningJob(number, 1, 1_000, 10),
    )
    return msgspec.structs.replace(report, **changes)


def a_heartbeat(*reports: AllocationReport, seq: int = 1) -> Heartbeat:
    return Heartbeat(
        NodeName("n1"),
        TreeName("default"),
        Incarnation("1"),
        seq,
        seq - 1,
        1,
        HeartbeatReason.PERIOD,
        Resources(10, 1_000),
        list(reports),
        boottime_ms=seq,
    )


def plain(heartbeat: Heartbeat) -> bytes:
    """All that it says."""
    return encode(heartbeat)


def test_a_report_in_the_same_bytes_is_the_same_object_and_so_is_a_picture() -> None:
    reader = PictureReader()
    first = reader.read(encode(a_heartbeat(*map(a_report, range(3)))), CALLER)
    same = reader.read(encode(a_heartbeat(*map(a_report, range(3)), seq=2)), CALLER)
    changed = a_report(1, unstarted=[JobSlot(7)])
    other = reader.read(encode(a_heartbeat(a_report(2), changed, seq=3)), CALLER)

    assert same.allocations is first.allocations
    assert (same.seq, same.boottime_ms) == (2, 2)
    assert other.allocations == [a_report(2), changed]
    assert other.allocations[0] is first.allocations[2]
    assert first.allocations == list(map(a_report, range(3)))


def test_any_course_of_pictures_is_read_as_without_memory() -> None:
    random, reader = Random(1), PictureReader(most_bytes=700)
    for seq in range(1, 500):
        reports = [a_report(random.randrange(8), jobs_ended=random.randrange(2)) for _ in range(random.randrange(5))]
        caller = Caller(CallerKind.NODE, f"n{random.randrange(3)}", "")
        data = encode(a_heartbeat(*reports, seq=seq))

        assert plain(reader.read(data, caller)) == data
        assert reader.kept_bytes == sum(len(kept.data) for kept in reader._pictures.values()) <= 700


def test_the_node_that_was_silent_for_longest_is_forgotten_first() -> None:
    data = encode(a_heartbeat(a_report(1)))
    reader = PictureReader(most_bytes=2 * len(msgspec.msgpack.encode([a_report(1)])))
    callers = [Caller(CallerKind.NODE, f"n{number}", "") for number in range(3)]
    first, second = (reader.read(data, caller).allocations for caller in callers[:2])
    assert reader.read(data, callers[0]).allocations is first
    reader.read(data, callers[2])

    assert reader.read(data, callers[0]).allocations is first
    assert reader.read(data, callers[1]).allocations is not second


@pytest.mark.parametrize(
    ("allocations", "words"),
    [
        ("all", "Expected `array`, got `str` - in `$.allocations`"),
        ([[1, 2]], "in `$.allocations`, entry 1"),
        ([msgspec.to_builtins(a_report(1)), ["x"]], "in `$.allocations`, entry 2"),
    ],
)
def test_what_is_no_picture_is_refused_with_its_place_and_kept_nowhere(allocations: object, words: str) -> None:
    reader = PictureReader()
    message = {**msgspec.to_builtins(a_heartbeat()), "allocations": allocations}

    with pytest.raises(BadMessage) as refusal:
        reader.read(msgspec.msgpack.encode(message), CALLER)

    assert words in str(refusal.value)
    assert reader.kept_bytes == 0
    with pytest.raises(BadMessage):
        decode(msgspec.msgpack.encode(message), Heartbeat)


def test_a_number_that_is_none_is_refused_in_a_report_as_in_a_whole_heartbeat() -> None:
    record = PreemptionRecord(PreemptionReason.PREEMPTION, threshold=math.nan)
    data = encode(a_heartbeat(a_report(1, preemption=record)))

    with pytest.raises(BadMessage, match="float"):
        PictureReader().read(data, CALLER)
    with pytest.raises(BadMessage, match="float"):
        decode(data, Heartbeat)
