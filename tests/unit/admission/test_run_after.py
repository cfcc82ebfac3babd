"""Operations that wait for other operations to end (`run --after`)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.ids import PoolName, TreeName
from headrace.wire import operations as wire
from headrace.wire.heartbeat import JobResult
from headrace.wire.log import OperationPlaced, OperationStateChanged, StateCause
from headrace.wire.operation_spec import Upstream, UpstreamEnd
from headrace.wire.operations import OperationState
from headrace.wire.refusals import BadRequest, Exists, NotFound, OverLimit
from headrace_admission import queries
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.rules import rules_of
from headrace_admission.state.state import Page, Restored
from tests.unit.admission.desk import TREE, Desk, oid

OK, FAILED, ANY = UpstreamEnd.OK, UpstreamEnd.FAILED, UpstreamEnd.ANY
PENDING, RUNNING = OperationState.PENDING, OperationState.RUNNING


def after(*names: str, end: UpstreamEnd = OK) -> list[Upstream]:
    return [Upstream(oid(name), end) for name in names]


def end_as(desk: Desk, name: str, state: OperationState) -> None:
    """Let a running operation with one job end in a state."""
    if state is OperationState.COMPLETED:
        desk.finish(name)
        return
    if state is OperationState.FAILED:
        desk.end_run(name, JobResult.FAILED)
    else:
        desk.abort(name)
    desk.released(name)
    assert desk.state_of(name) is state


def view(desk: Desk, name: str) -> wire.OperationView:
    told = queries.get_operation(desk.state, wire.GetOperation(oid(name)))
    assert isinstance(told, wire.OperationView)
    return told


@pytest.fixture
def desk() -> Desk:
    return Desk({"p": {"max_running_operation_count": 2, "max_operation_count": 4}})


def test_it_holds_no_slot_but_counts_among_all(desk: Desk) -> None:
    desk.started("a", pool="p")
    answer = desk.start("b", "p", after=after("a"))

    assert (answer.state, answer.waiting, answer.awaits) == (PENDING, [], [oid("a")])
    assert desk.counts("p") == (2, 1, 0)
    assert desk.queue("p") == []
    desk.started("c", "d", pool="p")
    assert desk.running() == ["a", "c"]
    assert isinstance(desk.start("e", "p"), OverLimit)


@pytest.mark.parametrize(
    ("asked", "ended", "runs"),
    [
        (OK, OperationState.COMPLETED, True),
        (OK, OperationState.FAILED, False),
        (OK, OperationState.ABORTED, False),
        (FAILED, OperationState.COMPLETED, False),
        (FAILED, OperationState.FAILED, True),
        (FAILED, OperationState.ABORTED, True),
        (ANY, OperationState.COMPLETED, True),
        (ANY, OperationState.FAILED, True),
        (ANY, OperationState.ABORTED, True),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_it_runs_after_the_end_that_was_asked_for(
    desk: Desk, asked: UpstreamEnd, ended: OperationState, runs: bool, is_late: bool
) -> None:
    """The outcome is the same if the other operation ended before the start."""
    desk.started("a", pool="p", max_failed_job_count=1)
    if is_late:
        end_as(desk, "a", ended)
    desk.started("b", pool="p", after=after("a", end=asked))
    if not is_late:
        assert desk.state_of("b") is PENDING
        end_as(desk, "a", ended)

    assert desk.state_of("b") is (RUNNING if runs else OperationState.FAILED)
    assert view(desk, "b").awaits == []
    assert view(desk, "b").reason.startswith("" if runs else f"upstream failed: operation operation-a is {ended.value}")
    assert desk.counts("p") == ((1, 1, 0) if runs else (0, 0, 0))


def test_it_runs_when_the_last_of_several_has_ended(desk: Desk) -> None:
    desk.started("a", "b", pool="p")
    desk.started("c", pool="p", after=after("a", "b"))
    desk.finish("b")
    assert desk.state_of("c") is PENDING
    assert view(desk, "c").awaits == [oid("a")]
    desk.finish("a")
    assert desk.state_of("c") is RUNNING


def test_it_waits_in_the_queue_behind_operations_that_were_ready_before(desk: Desk) -> None:
    desk.started("a", "long", pool="p")
    desk.started("b", pool="p", after=after("a"))
    desk.started("c", pool="p")
    desk.finish("a")

    assert desk.running() == ["c", "long"]
    assert desk.queue("p") == ["b"]
    assert [each.place for each in view(desk, "b").waiting] == [1]


def test_a_failure_fails_all_that_waits_for_it_in_turn(desk: Desk) -> None:
    desk.started("a", max_failed_job_count=1)
    for before, name in zip("abc", "bcd", strict=False):
        desk.started(name, after=after(before))
    desk.started("clean", after=after("d", end=FAILED))
    end_as(desk, "a", OperationState.FAILED)

    assert [desk.state_of(name) for name in "bcd"] == [OperationState.FAILED] * 3
    assert view(desk, "d").reason == (
        "upstream failed: operation operation-c is failed; this operation runs only if it completed"
    )
    assert desk.state_of("clean") is RUNNING
    causes = {each.operation: each.cause for each in desk.events if isinstance(each, OperationStateChanged)}
    assert causes[oid("d")] is StateCause.UPSTREAM_FAILED


def test_it_fails_as_soon_as_one_of_several_ended_in_another_way(desk: Desk) -> None:
    desk.started("a", "b")
    desk.started("c", after=after("a", "b"))
    end_as(desk, "b", OperationState.ABORTED)
    assert desk.state_of("c") is OperationState.FAILED
    assert view(desk, "c").awaits == []
    desk.finish("a")


@pytest.mark.long
def test_very_long_chain(desk: Desk) -> None:
    desk.configure({}, max_operation_count=1_000, max_operation_count_per_pool=1_000)
    desk.started("0", max_failed_job_count=1)
    for number in range(1, 600):
        desk.started(str(number), after=after(str(number - 1)))
    end_as(desk, "0", OperationState.FAILED)
    assert not desk.state.live


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["b"], "cannot wait for itself"),
        (["a", "a"], "is named twice"),
    ],
)
def test_itself_and_twice_the_same_are_refused(desk: Desk, names: list[str], expected: str) -> None:
    desk.started("a")
    refusal = desk.start("b", after=after(*names))
    assert isinstance(refusal, BadRequest)
    assert refusal.place == "spec.after"
    assert expected in refusal.fault
    assert desk.state.operations.keys() == {oid("a")}


def test_an_unknown_operation_is_refused_with_similar_ids(desk: Desk) -> None:
    desk.started("0123456789abc")
    refusal = desk.start("b", after=after("0123456789abd"))
    assert refusal == NotFound("operation", oid("0123456789abd"), near=[oid("0123456789abc")])


def test_operations_of_other_users_can_be_waited_for_as_they_can_be_read(desk: Desk) -> None:
    desk.started("a")
    assert desk.start("b", user="boris", after=after("a")).awaits == [oid("a")]


def test_a_repeated_start_must_wait_for_the_same(desk: Desk) -> None:
    desk.started("a", "b")
    desk.started("c", after=after("a"))
    assert desk.start("c", after=after("a")).repeated
    assert isinstance(desk.start("c", after=after("b")), Exists)


def test_a_move_changes_the_pool_but_not_the_wait(desk: Desk) -> None:
    desk.configure({"p": {}, "full": {"max_running_operation_count": 0}})
    desk.started("a", pool="p")
    desk.started("b", pool="p", after=after("a"))
    desk.move("b", "full")
    assert desk.counts("full") == (1, 0, 0)
    assert desk.state_of("b") is PENDING
    desk.finish("a")
    assert desk.queue("full") == ["b"]


def test_an_abort_ends_the_wait(desk: Desk) -> None:
    desk.started("a", pool="p")
    desk.started("b", pool="p", after=after("a"))
    desk.abort("b")
    assert desk.state_of("b") is OperationState.ABORTED
    assert desk.counts("p") == (1, 1, 0)
    desk.finish("a")


def test_the_end_of_a_tree_starts_nothing_in_it(desk: Desk) -> None:
    desk.configure({"p": {}, "full": {"max_running_operation_count": 0}})
    desk.started("a", pool="full")
    desk.started("b", pool="p", after=after("a", end=ANY))
    desk.record(desk.engine.on_configuration(TREE, None, desk._tick()).effects)
    assert desk.state_of("a") is OperationState.ABORTED
    assert desk.state_of("b") is OperationState.ABORTED


def test_the_abort_of_operations_without_command_starts_none_of_them(desk: Desk) -> None:
    desk.configure({"p": {}, "full": {"max_running_operation_count": 0}})
    desk.started("a", pool="full")
    desk.started("b", pool="p", after=after("a", end=ANY))
    desk.state.without_command.update({oid("a"): None, oid("b"): None})
    desk.record(desk.engine.on_commands_dropped(desk._tick()).effects)
    assert desk.state_of("a") is OperationState.ABORTED
    assert desk.state_of("b") is OperationState.ABORTED


def test_it_starts_in_each_of_its_trees(desk: Desk) -> None:
    other = TreeName("other")
    desk.configure({"p": {"max_running_operation_count": 0}}, other)
    desk.started("a", pool="p")
    desk.started("b", pool="p", after=after("a"), pool_trees=[TREE, other])
    assert desk.queue("p", other) == []
    desk.finish("a")
    assert desk.state_of("b") is RUNNING
    assert desk.queue("p", other) == ["b"]


def test_a_wait_outlives_what_finished_operations_are_forgotten(desk: Desk) -> None:
    desk.engine = AdmissionEngine(desk.everywhere, keep_finished=1)
    desk.configure({})
    desk.started("a", "b")
    desk.started("c", after=after("a", "b"))
    desk.finish("a")
    desk.started("other")
    desk.finish("other")
    assert oid("a") not in desk.state.operations
    desk.finish("b")
    assert desk.state_of("c") is RUNNING


def _restored(desk: Desk, events: int | None = None) -> AdmissionEngine:
    """Return an engine that read a checkpoint, or the log up to a number of events of its last entry."""
    engine = AdmissionEngine(desk.everywhere)
    if events is None:
        records = [each.to_record() for each in desk.state.operations.values()]
        engine.on_restored(Page(records), desk._tick())
        engine.on_restored(Restored(desk.state.sequence), desk._tick())
    else:
        desk.entries[-1] = desk.entries[-1][:events]
        desk.replay(engine)
    return engine


def test_a_checkpoint_keeps_the_wait(desk: Desk) -> None:
    desk.started("a", "b", pool="p")
    desk.started("c", pool="p", after=after("a", "b", end=ANY))
    desk.finish("a")
    desk.engine = _restored(desk)
    desk.configure({"p": {}})
    assert desk.state_of("c") is PENDING
    desk.finish("b")
    assert desk.state_of("c") is RUNNING


@pytest.mark.parametrize("ended", [OperationState.COMPLETED, OperationState.ABORTED])
def test_a_successor_goes_on_where_the_log_was_cut(desk: Desk, ended: OperationState) -> None:
    """The end is in the log, but not yet what follows from it."""
    desk.started("a")
    desk.started("b", after=after("a"))
    end_as(desk, "a", ended)
    last = desk.entries[-1]
    cut = next(at for at, each in enumerate(last, 1) if isinstance(each, OperationStateChanged))
    engine = _restored(desk, cut)
    assert engine.state.operations[oid("b")].state is PENDING
    desk.engine = engine
    assert engine.on_configuration(TREE, rules_of(desk.trees[TREE]), desk._tick()).effects == []
    desk.record(engine.on_takeover(desk._tick()).effects)
    assert desk.state_of("b") is (RUNNING if ended is OperationState.COMPLETED else OperationState.FAILED)


def test_a_successor_keeps_the_slot_that_was_recorded_in_one_of_two_trees(desk: Desk) -> None:
    other = TreeName("other")
    desk.configure({"p": {"max_running_operation_count": 1}})
    desk.configure({"p": {}}, other)
    desk.started("a")
    desk.started("b", pool="p", after=after("a"), pool_trees=[TREE, other])
    desk.finish("a")
    cut = next(at for at, each in enumerate(desk.entries[-1], 1) if isinstance(each, OperationPlaced))
    desk.engine = _restored(desk, cut)
    for tree, rules in desk.trees.items():
        assert desk.engine.on_configuration(tree, rules_of(rules), desk._tick()).effects == []
    desk.record(desk.engine.on_takeover(desk._tick()).effects)
    assert {tree: each.blocked_by for tree, each in desk.state.operations[oid("b")].placements.items()} == {
        TREE: None,
        other: None,
    }
    assert desk.state_of("b") is RUNNING


def test_explain_names_what_it_waits_for(desk: Desk) -> None:
    desk.started("a", pool="p", job_count=3)
    desk.started("b", pool="p", after=after("a", end=FAILED))
    told: Any = queries.explain_operation(desk.state, wire.ExplainOperation(oid("b")))
    assert told.upstream == [wire.AwaitedOperation(oid("a"), FAILED, RUNNING, "anna", PoolName("p"), 3)]
