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


def a_caller(node: str) -> Caller:
    return Caller(CallerKind.NODE, node, "")


CALLER = a_caller("n1")


def a_report(number: int, **changes: object) -> AllocationReport:
    report = AllocationReport(
        AllocationId(f"a-{number}"),
        OperationId("op"),
        AllocationState.RUNNING,
        Resources(1, 100),
        RunningJob(number, 1, 1_000, 10),
    )
    return msgspec.structs.replace(report, **changes)


#: Bytes of a node report with one allocation.
BYTES_OF_ONE = len(msgspec.msgpack.encode([a_report(1)]))


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
    reader = PictureReader({"n1"})
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
    random, nodes = Random(1), set[str]()
    reader = PictureReader(nodes, most_bytes=700)
    for seq in range(1, 1_000):
        name = f"n{random.randrange(6)}"
        if random.random() < 0.2:
            nodes.discard(name)
            reader.forget(name)
        elif random.random() < 0.5:
            nodes.add(name)
        reports = [a_report(random.randrange(8), jobs_ended=random.randrange(2)) for _ in range(random.randrange(5))]
        data = encode(a_heartbeat(*reports, seq=seq))

        assert plain(reader.read(data, a_caller(name))) == data
        assert reader.kept_bytes == sum(len(kept.data) for kept in reader._pictures.values()) <= 700
        assert reader._pictures.keys() <= nodes


def test_a_bound_that_is_a_little_too_low_forgets_a_few_nodes_and_not_all_in_turn() -> None:
    data = encode(a_heartbeat(a_report(1)))
    nodes = [f"n{number}" for number in range(20)]
    reader = PictureReader(nodes, most_bytes=2 * 18 * BYTES_OF_ONE)
    first = [reader.read(data, a_caller(name)).allocations for name in nodes]

    for _ in range(3):
        again = [reader.read(data, a_caller(name)).allocations for name in nodes]
        assert [known is new for known, new in zip(first, again, strict=True)] == [True] * 18 + [False] * 2


def test_no_node_takes_the_part_of_another() -> None:
    nodes = [f"n{number}" for number in range(4)]
    reader = PictureReader(nodes, most_bytes=8 * BYTES_OF_ONE)
    small, large = encode(a_heartbeat(a_report(1))), encode(a_heartbeat(*map(a_report, range(4))))
    # A large report is kept while bytes are free, and takes no more than the half that all nodes share.
    kept = [reader.read(large, a_caller(name)).allocations for name in nodes[:2]]
    assert reader.read(large, a_caller("n0")).allocations is kept[0]
    assert reader.read(large, a_caller("n1")).allocations is not kept[1]

    for name in nodes[1:]:
        first = reader.read(small, a_caller(name)).allocations
        assert reader.read(small, a_caller(name)).allocations is first


def test_the_bound_holds_for_a_fleet_that_grows() -> None:
    """Each new node has the largest report that its part allows at that time; the parts of all together are more than the bound."""
    nodes: list[str] = []
    reader = PictureReader(nodes, most_bytes=40 * BYTES_OF_ONE)
    for number in range(40):
        nodes.append(f"n{number}")
        largest = (20 * BYTES_OF_ONE // len(nodes) - 1) // (BYTES_OF_ONE - 1)
        reader.read(encode(a_heartbeat(*map(a_report, range(largest)))), a_caller(nodes[-1]))
        assert reader.kept_bytes <= 40 * BYTES_OF_ONE

    assert reader.kept_bytes > 35 * BYTES_OF_ONE


def test_a_node_that_is_not_enrolled_any_more_is_forgotten_and_one_that_never_was_is_not_kept() -> None:
    nodes = {"n1"}
    reader, data = PictureReader(nodes), encode(a_heartbeat(a_report(1)))
    reader.read(data, CALLER)
    reader.read(data, a_caller("stranger"))
    assert reader.kept_bytes == BYTES_OF_ONE

    nodes.clear()
    reader.forget("n1")
    reader.forget("stranger")
    reader.read(data, CALLER)
    assert reader.kept_bytes == 0


@pytest.mark.parametrize(
    ("allocations", "words"),
    [
        ("all", "Expected `array`, got `str` - in `$.allocations`"),
        ([[1, 2]], "in `$.allocations`, entry 1"),
        ([msgspec.to_builtins(a_report(1)), ["x"]], "in `$.allocations`, entry 2"),
    ],
)
def test_what_is_no_picture_is_refused_with_its_place_and_kept_nowhere(allocations: object, words: str) -> None:
    reader = PictureReader({"n1"})
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
        PictureReader({"n1"}).read(data, CALLER)
    with pytest.raises(BadMessage, match="float"):
        decode(data, Heartbeat)
