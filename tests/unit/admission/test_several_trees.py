"""Operations of several trees: which tree has which jobs, and what becomes of them when a tree ends or is removed."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.ids import AllocationId, NodeName, PoolName, TreeName
from headrace.resources import Resources
from headrace.wire import ledger
from headrace.wire import operations as wire
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot
from headrace.wire.ledger import DrawAnswer, ReturnAnswer
from headrace.wire.log import (
    BlockDrawn,
    IndexesReturned,
    IndexRun,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    StateCause,
)
from headrace.wire.operations import OnLostNode, OperationSpec, OperationState, PerTree
from headrace.wire.placements import TreePlacement
from headrace.wire.refusals import BadRequest, WrongState
from headrace_admission import queries
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.operation import Operation, OperationRecord
from tests.support.clocks import NOW
from tests.unit.admission.desk import Desk, oid

ONE = TreeName("one")
TWO = TreeName("two")
BOTH = [ONE, TWO]


class Trees(Desk):
    """Two trees with a pool each, and an allocator for each of them."""

    def __init__(self, **limits_of_two: int) -> None:
        super().__init__()
        self.configure({"p": {}, "q": {}}, ONE)
        self.configure({"p": limits_of_two, "q": {}}, TWO)

    def draw(self, tree: TreeName, more: int, name: str = "a", term: int = 1) -> Any:
        return self._done(self.engine.on_draw(ledger.DrawBlock(tree, term, oid(name), more=more), NOW))

    def give_back(self, tree: TreeName, change: int, *runs: tuple[int, int]) -> Any:
        request = ledger.ReturnIndexes(tree, 1, oid("a"), change, [IndexRun(*run) for run in runs])
        return self._done(self.engine.on_return(request, NOW))

    def end(self, tree: TreeName, index: int, result: JobResult = JobResult.COMPLETED, attempt: int = 1) -> None:
        end = JobEnd(oid("a"), index, attempt, AllocationId("1-1"), result)
        self._done(self.engine.on_report(ledger.ReportEnds(tree, 1, [ledger.ReportedEnd(NodeName("n"), end)]), NOW))

    def released_in(self, tree: TreeName) -> None:
        self._done(self.engine.on_released(ledger.Released(tree, 1, [oid("a")]), NOW))

    def lose_allocator(self, tree: TreeName) -> None:
        """Its nodes had none for their whole lease."""
        self.record(self.engine.on_allocator_gone(tree, NOW).effects)

    def remove(self, tree: TreeName) -> None:
        del self.trees[tree]
        self.record(self.engine.on_configuration(tree, None, NOW).effects)

    def told(self, tree: TreeName, name: str = "a") -> ledger.LiveOperation | None:
        request = ledger.WholeOperationsRequest(tree)
        page = queries.whole_operations(self.state, request, 1).operations
        return next((each for each in page if each.operation == oid(name)), None)

    def drawn(self, tree: TreeName) -> list[int]:
        """The indexes that events gave to a tree, in their order."""
        given = (event for event in self.events if isinstance(event, BlockDrawn) and event.tree == tree)
        return [index for event in given for run in event.runs for index in range(run.first, run.below)]

    @property
    def operation(self) -> Operation:
        return self.state.operations[oid("a")]


def test_each_tree_draws_jobs_of_its_own_and_no_more_than_its_part_of_what_is_left() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=100)

    desk.draw(ONE, 1000)
    desk.draw(TWO, 10)
    desk.draw(ONE, 2)

    assert desk.drawn(ONE) == [*range(25), 35, 36]
    assert desk.drawn(TWO) == [*range(25, 35)]
    (event,) = [each for each in desk.entries[-1] if isinstance(each, BlockDrawn)]
    assert (event.change, event.free, event.below) == (3, 63, 37)


def test_the_last_index_goes_to_the_tree_that_asks_first_and_the_other_gets_none() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH)

    assert desk.draw(TWO, 256) == DrawAnswer(oid("a"), 1, drawn=1)
    assert desk.draw(ONE, 256) == DrawAnswer(oid("a"), 1, drawn=0)
    assert (desk.drawn(ONE), desk.drawn(TWO)) == ([], [0])


def test_a_tree_without_a_slot_draws_nothing_until_it_admits_the_operation_there() -> None:
    desk = Trees(max_running_operation_count=1)
    desk.started("b", pool="p", tree=TWO)
    desk.started("a", pool="p", pool_trees=BOTH, job_count=8)

    assert isinstance(desk.draw(TWO, 1), WrongState)
    in_two = desk.told(TWO)
    assert in_two is not None
    assert in_two.state is OperationState.PENDING
    view = queries.get_operation(desk.state, wire.GetOperation(oid("a")))
    assert isinstance(view, wire.OperationView)
    assert [(each.tree, each.blocked_by) for each in view.waiting] == [(TWO, "p")]
    desk.finish("b")

    assert isinstance(desk.draw(TWO, 1), DrawAnswer)
    in_two = desk.told(TWO)
    assert in_two is not None
    assert in_two.state is OperationState.RUNNING
    placed = [event for event in desk.entries[-2] if isinstance(event, OperationPlaced)]
    assert [(each.placement.tree, each.placement.blocked_by) for each in placed] == [(TWO, None)]


def test_each_tree_is_told_its_own_pool_weight_and_jobs() -> None:
    desk = Trees()
    options = {TWO: PerTree(PoolName("q"), 3.0)}
    desk.started("a", pool="p", pool_trees=BOTH, job_count=10, scheduling_options_per_pool_tree=options)
    desk.draw(ONE, 2)
    desk.draw(TWO, 1)

    one, two = desk.told(ONE), desk.told(TWO)

    assert one is not None
    assert two is not None
    assert (one.spec.tree, one.spec.pool, one.spec.weight) == (ONE, "p", 1.0)
    assert (two.spec.tree, two.spec.pool, two.spec.weight) == (TWO, "q", 3.0)
    assert (one.done, two.done, one.free, two.changes) == (b"\x04", b"\x03", 7, 2)


def test_a_job_that_failed_runs_again_in_whichever_tree_draws_it_first() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=2)
    desk.draw(ONE, 1)
    desk.draw(TWO, 1)

    desk.end(ONE, 0, JobResult.FAILED)
    desk.draw(TWO, 9)
    desk.end(TWO, 0, attempt=2)
    desk.end(TWO, 1)

    assert desk.drawn(TWO) == [1, 0]
    assert desk.state_of("a") is OperationState.COMPLETED


def test_what_a_tree_returns_the_other_may_draw_and_a_late_return_takes_nothing() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=4)
    desk.draw(ONE, 1)
    desk.draw(TWO, 1)

    assert desk.give_back(ONE, 2, (0, 1)) == ReturnAnswer(oid("a"))
    desk.draw(ONE, 1)
    late = desk.give_back(ONE, 2, (0, 1))

    assert isinstance(late, WrongState)
    assert desk.operation.ledger.owners is not None
    assert desk.operation.ledger.owners.count(ONE) == 1


def test_a_tree_returns_only_what_is_its_own() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=4)
    desk.draw(ONE, 1)
    desk.draw(TWO, 1)

    desk.give_back(ONE, 2, (0, 99))

    (event,) = [each for each in desk.entries[-1] if isinstance(each, IndexesReturned)]
    assert event.free == 3
    assert desk.operation.ledger.owners is not None
    assert desk.operation.ledger.owners.count(TWO) == 1


def test_an_operation_is_over_once_every_tree_that_had_jobs_of_it_has_nothing_any_more() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=4)
    desk.draw(ONE, 1)
    desk.draw(TWO, 1)
    desk.abort("a")

    desk.released_in(ONE)
    assert (desk.state_of("a"), desk.told(ONE)) == (OperationState.ABORTING, None)
    desk.released_in(TWO)

    assert desk.state_of("a") is OperationState.ABORTED


def test_an_operation_that_is_aborted_before_any_tree_drew_is_told_so_that_one_releases_it() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH)
    desk.abort("a")

    told = desk.told(TWO)
    desk.released_in(TWO)

    assert told is not None
    assert told.state is OperationState.ABORTING
    assert desk.state_of("a") is OperationState.ABORTED


def test_an_operation_goes_on_in_its_other_tree_when_one_is_removed() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=4)
    desk.draw(ONE, 1)
    desk.draw(TWO, 1)

    desk.remove(ONE)
    in_one, view = desk.told(ONE), queries.view(desk.state, desk.operation)
    desk.released_in(ONE)

    assert in_one is not None
    assert in_one.state is OperationState.ABORTING
    assert (view.state, view.spec.tree, view.erased_trees) == (OperationState.RUNNING, TWO, [ONE])
    assert desk.told(ONE) is None
    desk.draw(TWO, 9)
    assert desk.drawn(TWO) == [1, 0]


@pytest.mark.parametrize(("on_lost_node", "lost"), [(OnLostNode.REQUEUE, [0]), (OnLostNode.WAIT, [])])
def test_jobs_of_a_tree_whose_allocator_is_gone_run_in_the_other_unless_they_are_to_wait(
    on_lost_node: OnLostNode, lost: list[int]
) -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=2, on_lost_node=on_lost_node)
    desk.draw(ONE, 1)
    desk.draw(TWO, 1)

    desk.lose_allocator(ONE)
    desk.draw(TWO, 9)

    assert desk.drawn(TWO) == [1, *lost]


def test_jobs_that_wait_for_an_allocator_that_is_gone_wait_no_more_once_their_operation_is_to_end() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=2, on_lost_node=OnLostNode.WAIT)
    desk.draw(ONE, 1)
    desk.abort("a")

    desk.lose_allocator(ONE)

    assert desk.state_of("a") is OperationState.ABORTED


def test_an_operation_that_lost_the_tree_in_which_it_ran_waits_for_a_slot_in_the_other() -> None:
    desk = Trees(max_running_operation_count=1)
    desk.started("b", pool="p", tree=TWO)
    desk.started("a", pool="p", pool_trees=BOTH, job_count=4)

    desk.remove(ONE)
    assert isinstance(desk.draw(TWO, 1), WrongState)
    desk.finish("b")

    assert isinstance(desk.draw(TWO, 1), DrawAnswer)


def test_a_weight_for_the_whole_beats_those_for_single_trees_in_each() -> None:
    desk = Trees()
    options = {TWO: PerTree(weight=3.0)}
    desk.started("a", pool="p", pool_trees=BOTH, scheduling_options_per_pool_tree=options)

    desk.update("a", weight=5.0)

    assert [told.spec.weight for told in (desk.told(ONE), desk.told(TWO)) if told is not None] == [5.0, 5.0]


def test_owners_outlive_a_restart_by_the_log_and_by_a_checkpoint() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=40)
    desk.draw(ONE, 3)
    desk.draw(TWO, 2)
    desk.end(ONE, 1)
    desk.end(TWO, 3, JobResult.LOST)
    desk.give_back(ONE, 2, (2, 3))

    record = desk.operation.to_record()
    restored = Operation.from_record(decode(encode(record), OperationRecord))

    assert desk.replayed().state.operations[oid("a")].to_record() == record
    assert restored.to_record() == record
    assert restored.ledger.check() == []


def test_a_log_of_a_former_version_is_read_as_it_was_meant_one_tree_had_all_jobs() -> None:
    spec = OperationSpec(PoolName("p"), ["true"], 600, Resources(user_slots=1, cpu=100), tree=ONE, pool_trees=BOTH)
    waits = [TreePlacement(ONE, PoolName("p"), 1, PoolName("p")), TreePlacement(TWO, PoolName("p"), 1, PoolName("p"))]
    there = TreePlacement(TWO, PoolName("p"), 2)
    again = OperationSpec(PoolName("p"), ["true"], 600, Resources(user_slots=1, cpu=100), tree=TWO, pool_trees=BOTH)
    engine = AdmissionEngine()
    engine.on_entry(
        [
            OperationStarted(oid("a"), "anna", spec, OperationState.PENDING, False, 256, 1, 1, waits),
            OperationPlaced(oid("a"), there),
            OperationStarted(oid("a"), "anna", again, OperationState.PENDING, False, 256, 1, 1, [waits[0], there]),
            OperationStateChanged(oid("a"), OperationState.RUNNING, StateCause.ADMITTED, "", 2),
            BlockDrawn(oid("a"), 512, 4),
        ],
        1,
        1,
        NOW,
    )

    operation = engine.state.operations[oid("a")]

    assert engine.check() == []
    assert operation.ledger.owners is not None
    assert (operation.spec.tree, operation.ledger.owners.count(TWO), operation.ledger.owners.free) == (TWO, 512, 88)


def test_a_checkpoint_of_a_former_version_tells_no_owners_so_the_tree_of_the_operation_has_all() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=4)
    desk.draw(ONE, 9)
    desk.draw(ONE, 9)
    desk.end(ONE, 0)
    record = desk.operation.to_record()
    record.ledger = type(record.ledger)(**{**_fields(record.ledger), "owners": None})

    restored = Operation.from_record(record)

    assert restored.ledger.check() == []
    assert restored.ledger.owners is not None
    assert (restored.ledger.owners.count(ONE), restored.ledger.owners.free) == (1, 2)


def test_a_job_of_no_tree_that_ends_all_the_same_is_drawn_by_nobody_any_more() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, job_count=2)
    desk.draw(ONE, 1)
    desk.give_back(ONE, 1, (0, 1))

    desk.end(ONE, 0)
    desk.draw(TWO, 9)

    assert desk.drawn(TWO) == [1]
    assert desk.operation.ledger.attempt_slots(0, 9) == list[JobSlot]()


def _fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def test_an_update_for_one_tree_keeps_what_was_said_for_the_other() -> None:
    desk = Trees()
    desk.started(
        "a", pool="p", pool_trees=BOTH, weight=4.0, scheduling_options_per_pool_tree={ONE: PerTree(weight=2.0)}
    )

    desk.update("a", scheduling_options_per_pool_tree={TWO: PerTree(weight=3.0)})
    desk.update("a", scheduling_options_per_pool_tree={ONE: PerTree(pool=PoolName("q"))})
    desk.update("a", scheduling_options_per_pool_tree={ONE: PerTree(weight=2.5)})

    spec = desk.operation.spec
    assert [spec.in_tree(tree, PoolName("p")).weight for tree in BOTH] == [2.5, 3.0]
    assert spec.scheduling_options_per_pool_tree[ONE].pool == "q"
    assert (spec.weight, desk.operation.placements[ONE].pool, desk.operation.placements[TWO].pool) == (4.0, "q", "p")


def test_a_weight_for_the_whole_holds_in_each_tree_and_the_same_again_changes_nothing() -> None:
    desk = Trees()
    desk.started("a", pool="p", pool_trees=BOTH, scheduling_options_per_pool_tree={ONE: PerTree(weight=2.0)})

    desk.update("a", weight=5.0)
    known = len(desk.entries)
    desk.update("a", weight=5.0)

    assert [desk.operation.spec.in_tree(tree, PoolName("p")).weight for tree in BOTH] == [5.0, 5.0]
    assert len(desk.entries) == known


def test_options_for_a_tree_that_a_start_does_not_name_are_refused_and_those_for_a_tentative_one_are_not() -> None:
    desk = Trees()
    said = {TWO: PerTree(weight=2.0)}

    refused = desk.start("a", pool="p", pool_trees=[ONE], scheduling_options_per_pool_tree=said)

    assert isinstance(refused, BadRequest)
    assert (refused.place, refused.expected) == (
        "spec.scheduling_options_per_pool_tree.two",
        "a tree of the operation: one",
    )
    desk.started("b", pool="p", pool_trees=[ONE], tentative_pool_trees=[TWO], scheduling_options_per_pool_tree=said)
