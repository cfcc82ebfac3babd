"""An allocator that stands by learns what another one does, and gives out nothing that the other may have given out."""

from __future__ import annotations

import msgspec

from headrace.ids import NodeName, OperationId, TreeName
from headrace.wire.heartbeat import Retry
from headrace.wire.log import BlockDrawn, Event, IndexesReturned, IndexRun, OperationStarted
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationState
from headrace_allocator.effects import Draw, Report, Superseded
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.nodes import Timing
from tests.support.allocating import TREE, an_operation
from tests.support.clocks import at

OTHERS = 4
OURS = 5


def standing_by() -> AllocatorEngine:
    """Knows one operation of 1,000 jobs, of which another allocator drew 256."""
    engine = AllocatorEngine(TREE, 0, Timing())
    assert engine.on_operations([an_operation("known", jobs=1_000, term=OTHERS)], at(1)).effects == []
    return engine


def started(name: str, term: int) -> Event:
    live = an_operation(name)
    return OperationStarted(live.operation, "anna", live.spec, OperationState.RUNNING, False, live.block, term, at_ms=1)


def places(engine: AllocatorEngine, name: str) -> tuple[int, int]:
    """Jobs that may go out at once, and those in doubt."""
    slots = engine.facts.operations[OperationId(name)].slots
    return slots.ready_count, slots.in_doubt_count


def test_jobs_that_another_allocator_drew_are_in_doubt_whenever_it_drew_them() -> None:
    engine = standing_by()
    events = [BlockDrawn(OperationId("known"), 512, OTHERS), started("new", OTHERS)]

    assert engine.on_events(events, at(2)).effects == []
    assert (places(engine, "known"), places(engine, "new")) == ((0, 512), (0, 10))
    engine.on_leading(OURS, Timing(), at(3))

    assert (places(engine, "known"), places(engine, "new")) == ((0, 512), (0, 10))
    assert engine.check() == []


def test_a_job_that_runs_again_by_the_word_of_the_ledger_may_have_been_given_out_by_the_other() -> None:
    engine = standing_by()
    slots = engine.facts.operations[OperationId("known")].slots

    slots.end(0, 1)
    slots.retry(Retry(0, 2))

    assert places(engine, "known") == (0, 256)
    engine.on_leading(OURS, Timing(), at(3))
    slots.end(1, 1)
    slots.retry(Retry(1, 2))
    assert places(engine, "known") == (1, 255)


def test_what_was_started_since_our_term_is_heard_may_go_out_at_once_and_more_is_drawn() -> None:
    engine = standing_by()
    engine.on_events([started("new", OURS)], at(2))

    effects = engine.on_leading(OURS, Timing(), at(3)).effects

    assert places(engine, "new") == (10, 0)
    assert effects == [Draw(OperationId("known"), 512)]
    assert engine.check() == []


def test_whoever_finds_at_its_lead_that_a_later_term_drew_gives_nothing_out() -> None:
    engine = standing_by()
    engine.on_events([started("new", OURS + 1)], at(2))

    effects = engine.on_leading(OURS, Timing(), at(3)).effects

    assert Superseded(OURS + 1) in effects
    assert engine.facts.superseded


def test_the_lease_of_a_node_counts_from_the_lead_on() -> None:
    """Whoever stands by hears no heartbeat: to it every node would be silent since it began."""
    engine = standing_by()
    records = {NodeName("n1"): NodeRecord(NodeName("n1"))}
    engine.on_nodes(records, at(1))
    engine.on_leading(OURS, Timing(node_lease_s=600.0), at(1_000))

    engine.on_nodes(records, at(1_000))
    engine.on_tick(at(1_599))

    assert places(engine, "known") == (0, 256)
    assert engine.facts.recovery.awaits(NodeName("n1"))
    effects = engine.on_tick(at(1_601)).effects
    assert [len(each.ends) for each in effects if isinstance(each, Report)] == [256]
    assert places(engine, "known") == (0, 0)


def test_an_operation_that_ends_while_we_stand_by_is_released_by_whoever_leads() -> None:
    engine = AllocatorEngine(TREE, 0, Timing())
    ending = msgspec.structs.replace(
        an_operation("ends", jobs=1, term=OTHERS), state=OperationState.ABORTING, done=b"\x01"
    )

    assert engine.on_operations([ending], at(1)).effects == []

    assert [type(each).__name__ for each in engine.on_leading(OURS, Timing(), at(2)).effects] == ["Release"]


def test_of_an_operation_of_several_trees_only_what_this_tree_has_is_in_doubt() -> None:
    engine = AllocatorEngine(TREE, 0, Timing())
    name, other = OperationId("shared"), TreeName("other")
    engine.on_operations([an_operation("shared", jobs=12, term=OURS + 90, block=0, done=b"", free=12)], at(1))
    engine.on_events(
        [
            BlockDrawn(name, 8, OTHERS, TREE, [IndexRun(0, 8)], change=1, free=4),
            BlockDrawn(name, 12, OTHERS, other, [IndexRun(8, 12)], change=2, free=0),
            IndexesReturned(name, TREE, change=3, free=3, runs=[IndexRun(5, 8)]),
        ],
        at(2),
    )

    effects = engine.on_leading(OURS, Timing(), at(3)).effects

    assert places(engine, "shared") == (0, 5)
    assert engine.facts.operations[name].slots.free == 3
    assert not any(isinstance(each, Superseded) for each in effects)
    assert engine.check() == []
