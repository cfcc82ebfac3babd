"""Drains of nodes: at once or later, for a time or until they are undone."""

from __future__ import annotations

import msgspec

from headrace.ids import NodeName
from headrace.pools.rights import Person
from headrace.wire.nodes import ChangeNode, Drain, Enrol, NodeChange, NodeRecord
from headrace.wire.refusals import BadRequest
from headrace_admission.nodes.drains import changed_record
from headrace_admission.nodes.enrolment import node_record
from tests.support.clocks import at

NODE = NodeName("n1")
ANNA = Person("anna", administrator=True)


def drained(record: NodeRecord, now_ms: int, **wishes: object) -> NodeRecord:
    request = msgspec.structs.replace(ChangeNode(NODE, NodeChange.DRAIN), **wishes)
    changed = changed_record(record, request, ANNA, at(0, now_ms))
    assert isinstance(changed, NodeRecord), changed
    return changed


def states(record: NodeRecord, *times_ms: int) -> list[tuple[bool, bool]]:
    return [(seen.drained, seen.ends_jobs) for seen in map(record.at, times_ms)]


def test_a_drain_without_times_is_in_force_until_it_is_undone() -> None:
    record = drained(NodeRecord(NODE), 100, reason="new disk")

    assert record == NodeRecord(NODE, drained=True, drain=Drain("anna", 100, "new disk"))
    assert record.at(10**13) == record
    assert changed_record(record, ChangeNode(NODE, NodeChange.UNDRAIN), ANNA, at(0, 200)) == NodeRecord(
        NODE, undrained=1
    )


def test_the_same_drain_again_changes_nothing_and_another_replaces_it() -> None:
    record = drained(NodeRecord(NODE), 100, reason="new disk")

    assert drained(record, 500, reason="new disk") is record
    assert drained(record, 500).drain == Drain("anna", 500)


def test_it_begins_ends_jobs_and_ends_at_its_times() -> None:
    record = drained(NodeRecord(NODE), 100, from_ms=1_000, until_ms=5_000, abort_after_ms=2_000)
    assert states(record, 100, 999, 1_000, 2_999, 3_000, 4_999, 5_000) == [
        (False, False), (False, False), (True, False), (True, False), (True, True), (True, True), (False, False),
    ]  # fmt: skip
    assert record.at(5_000).drain is None

    at_once = drained(NodeRecord(NODE), 100, from_ms=50, abort_after_ms=0)
    assert states(at_once, 100) == [(True, True)]


def test_an_end_before_its_begin_or_in_the_past_is_refused() -> None:
    for wishes in ({"until_ms": 100}, {"from_ms": 500, "until_ms": 500}):
        request = msgspec.structs.replace(ChangeNode(NODE, NodeChange.DRAIN), **wishes)
        refusal = changed_record(NodeRecord(NODE), request, ANNA, at(0, 100))
        assert isinstance(refusal, BadRequest)
        assert refusal.place == "until"


def test_a_node_that_enrols_again_keeps_its_drain() -> None:
    record = drained(NodeRecord(NODE), 100, from_ms=1_000, reason="new disk")
    again = node_record(Enrol(NODE, tags=["gpu"]), record, at(0, 200))
    assert isinstance(again, NodeRecord)
    assert again.drain == record.drain
