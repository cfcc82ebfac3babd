"""Which traced operations have a span of their first snapshot: also those that started while nobody listened."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import msgspec
import pytest

from headrace.ids import OperationId, PoolName, TreeName
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import Event, OperationStarted
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace.wire.trace import SpanContext
from headrace_fair_share.first_snapshots import FirstSnapshots
from tests.support.spans import Spans, tracing_on
from tests.support.tree_services import live

NOW_MS = 1_800_000_000_000
START = SpanContext("a" * 32, "b" * 16)


@pytest.fixture
def spans() -> Iterator[Spans]:
    moments = count(NOW_MS * 1_000_000, 1_000)
    with tracing_on(wall_ns=lambda: next(moments)) as kept:
        yield kept


def operation(name: str, age_ms: int = 0) -> LiveOperation:
    started = live(name, "research", started_at_ms=NOW_MS - age_ms)
    return msgspec.structs.replace(started, spec=msgspec.structs.replace(started.spec, trace=START.header()))


def start(name: str) -> Event:
    of = operation(name)
    return OperationStarted(of.operation, of.user, of.spec, of.state, False, of.block, of.block_term, of.started_at_ms)


def publish(snapshots: FirstSnapshots, *names: str) -> None:
    changed = [ShareItem(ElementKind.OPERATION, name, PoolName("research")) for name in names]
    with snapshots.published(changed, "1-1"):
        pass


def first_snapshots_of(spans: Spans) -> list[object]:
    return [span.attributes["operation"] for span in spans if span.name == "first snapshot"]


def test_the_first_snapshot_after_its_start_has_a_span_and_no_other(spans: Spans) -> None:
    snapshots = FirstSnapshots(TreeName("default"))
    snapshots.note([start("early"), start("late")])

    publish(snapshots, "early")
    assert first_snapshots_of(spans) == ["early"]
    publish(snapshots, "early", "late")
    assert first_snapshots_of(spans) == ["early", "late"]


def test_an_operation_that_started_while_nobody_listened_has_one_unless_that_is_long_ago(spans: Spans) -> None:
    snapshots = FirstSnapshots(TreeName("default"))
    snapshots.note_known([operation("new", age_ms=20_000), operation("old", age_ms=120_000)])

    publish(snapshots, "new", "old")
    assert first_snapshots_of(spans) == ["new"]


def test_told_again_by_a_successor_it_is_the_same_span(spans: Spans) -> None:
    for _ in range(2):
        snapshots = FirstSnapshots(TreeName("default"))
        snapshots.note_known([operation("new")])
        publish(snapshots, "new")

    assert len({span.span_id for span in spans if span.name == "first snapshot"}) == 1
    assert len(first_snapshots_of(spans)) == 2


def test_those_that_no_snapshot_ever_names_keep_no_place_of_new_ones(spans: Spans) -> None:
    snapshots = FirstSnapshots(TreeName("default"))
    snapshots.note([start(f"over-{number}") for number in range(2_000)])
    snapshots.note([start("new")])

    publish(snapshots, OperationId("new"))
    assert first_snapshots_of(spans) == ["new"]
