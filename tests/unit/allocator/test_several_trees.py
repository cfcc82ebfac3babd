"""Operations of several trees, as the allocator of one of them has them: its own jobs, free ones, and those of other trees."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.ids import OperationId, PoolName, TreeName
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot, Retry
from headrace.wire.ledger import DrawAnswer, LiveOperation, Wanted
from headrace.wire.log import (
    BlockDrawn,
    IndexesReturned,
    IndexRun,
    JobsEnded,
    LoggedEnd,
    OperationLeftTree,
    OperationPlaced,
    OperationStateChanged,
    StateCause,
)
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace_allocator.effects import Draw, NudgeNode, Release, Return, Superseded, Want
from headrace_allocator.facts.operations import Operation
from tests.support.allocating import TERM, TREE, Desk, an_operation, cores

OTHER = TreeName("other")
NAME = OperationId("a")


def a_shared(jobs: int = 10, **changes: Any) -> LiveOperation:
    """An operation in this tree and another, of which no tree has drawn a job yet."""
    return an_operation("a", jobs, **{"block": 0, "block_term": 0, "done": b"", "free": jobs, **changes})


def drawn(tree: TreeName, change: int, free: int, *runs: tuple[int, int], term: int = TERM) -> BlockDrawn:
    taken = [IndexRun(*run) for run in runs]
    return BlockDrawn(NAME, max(run.below for run in taken), term, tree, taken, change, free)


def returned(tree: TreeName, change: int, free: int, *runs: tuple[int, int]) -> IndexesReturned:
    return IndexesReturned(NAME, tree, change, free, [IndexRun(*run) for run in runs])


def failed(index: int) -> JobsEnded:
    end = JobEnd(NAME, index, 1, "1-1", JobResult.FAILED)  # type: ignore[arg-type]
    return JobsEnded(NAME, [LoggedEnd(end, "n", Retry(index, 2))], 1)


class Tree(Desk):
    """One tree with a node, and the operation of two."""

    def __init__(self, node: float = 4, **changes: Any) -> None:
        super().__init__({"n": cores(node, slots=100)})
        self.effects = [*self.start(a_shared(**changes))]
        self.share(a=1.0)

    @property
    def known(self) -> Operation:
        return self.facts.operations[NAME]

    @property
    def counts(self) -> tuple[int, int]:
        """Jobs that are ready here, and all that ask for a place here."""
        return self.known.slots.ready_count, self.known.slots.pending_count

    def tick_effects(self, kind: type[Any], now_s: float = 101.0) -> list[Any]:
        return [effect for effect in self.tick(now_s) if isinstance(effect, kind)]

    def wanted(self) -> list[Any]:
        return [
            effect
            for effect in self.engine.on_wanted(Wanted(OTHER, [NAME]), self.now).effects
            if isinstance(effect, Return)
        ]

    def check(self) -> None:
        assert self.engine.check() == []


def test_a_tree_draws_for_itself_and_gives_out_what_it_drew_alone() -> None:
    tree = Tree()
    assert Draw(NAME, 1, 256) in tree.effects

    tree.learn(drawn(OTHER, 1, 8, (0, 2)))
    assert tree.counts == (0, 8)
    tree.learn(drawn(TREE, 2, 5, (2, 5)))

    assert tree.counts == (3, 8)
    assert tree.known.slots.take(9) == [JobSlot(2), JobSlot(3), JobSlot(4)]
    tree.known.slots.give_back([JobSlot(2), JobSlot(3), JobSlot(4)])
    tree.check()


def test_a_change_that_the_whole_told_already_changes_nothing() -> None:
    tree = Tree(changes=2, free=8)

    tree.learn(drawn(TREE, 1, 5, (0, 5)))

    assert tree.counts == (0, 8)


def test_a_job_that_failed_is_nobodys_and_goes_out_with_its_next_attempt_where_it_is_drawn() -> None:
    tree = Tree()
    tree.learn(drawn(OTHER, 1, 8, (0, 2)), failed(0))
    assert tree.counts == (0, 9)

    tree.learn(drawn(TREE, 2, 8, (0, 1)))

    assert tree.known.slots.take(1) == [JobSlot(0, 2)]


def test_a_tree_that_has_room_and_no_free_index_left_says_that_it_wants_some() -> None:
    tree = Tree()
    tree.beat("n")
    tree.engine.on_drawn(NAME, DrawAnswer(NAME, 0), tree.now)
    tree.learn(drawn(OTHER, 1, 0, (0, 10)))

    assert tree.tick_effects(Want) == [Want([NAME])]


def test_half_of_what_waits_here_is_returned_to_a_tree_that_wants_it_until_the_log_tells() -> None:
    tree = Tree()
    tree.learn(drawn(TREE, 1, 0, (0, 5)))

    assert tree.wanted() == [Return(NAME, 1, [IndexRun(2, 5)])]
    assert tree.wanted() == []
    assert tree.tick_effects(Return) == [Return(NAME, 1, [IndexRun(2, 5)])]
    assert tree.counts == (2, 2)
    tree.learn(returned(TREE, 2, 3, (2, 5)))

    assert tree.counts == (2, 5)
    assert tree.tick_effects(Return, 102.0) == []
    tree.check()


def test_the_only_job_that_waits_is_returned_and_not_drawn_again_at_once() -> None:
    tree = Tree(jobs=1)
    tree.learn(drawn(TREE, 1, 0, (0, 1)))

    assert tree.wanted() == [Return(NAME, 1, [IndexRun(0, 1)])]
    effects = tree.learn(returned(TREE, 2, 1, (0, 1)))

    assert not any(isinstance(effect, Draw) for effect in effects)
    assert tree.tick_effects(Draw) == [Draw(NAME, 1, 256)]


def test_a_return_that_another_change_overtook_never_happened() -> None:
    tree = Tree()
    tree.learn(drawn(TREE, 1, 5, (0, 5)))
    tree.wanted()

    tree.learn(drawn(OTHER, 2, 4, (5, 6)))

    assert tree.counts == (5, 9)
    tree.check()


def test_the_whole_after_a_gap_tells_whose_jobs_are_and_leaves_out_those_still_being_returned() -> None:
    tree = Tree()
    tree.learn(drawn(TREE, 1, 6, (0, 4)))
    tree.wanted()

    # Jobs 0 to 3 are still ours by the ledger; of the return it has not heard.
    tree.start(a_shared(block=4, done=b"\x00", free=6, changes=1))
    assert tree.counts == (2, 8)
    # By now it was taken: 2 and 3 went to the other tree. 4 is ours, and the event of that was missed.
    tree.start(a_shared(block=5, done=b"\x0c", free=5, changes=4))

    assert tree.known.slots.take(9) == [JobSlot(0), JobSlot(1), JobSlot(4)]


def test_an_operation_runs_here_from_its_slot_here_whatever_it_does_in_other_trees() -> None:
    tree = Tree(state=OperationState.PENDING)

    tree.learn(OperationStateChanged(NAME, OperationState.RUNNING, StateCause.ADMITTED, "", 1))
    assert not tree.known.schedulable
    tree.learn(OperationPlaced(NAME, TreePlacement(OTHER, PoolName("q"), 2)))
    assert not tree.known.schedulable
    effects = tree.learn(OperationPlaced(NAME, TreePlacement(TREE, PoolName("q"), 3)))

    assert (tree.known.schedulable, tree.known.spec.pool) == (True, "q")
    assert Draw(NAME, 1, 256) in effects


def test_what_runs_here_of_an_operation_that_left_is_taken_back_and_then_it_is_released_and_forgotten() -> None:
    tree = Tree()
    tree.learn(drawn(TREE, 1, 9, (0, 1)))
    tree.refresh()
    tree.beat("n")
    assert tree.known.allocations

    effects = tree.learn(OperationLeftTree(NAME, TREE))
    assert NudgeNode(next(iter(tree.facts.nodes))) in effects
    for allocation in list(tree.known.allocations.values()):
        tree.facts.remove(allocation)
    assert tree.tick_effects(Release) == [Release([NAME])]
    tree.learn(returned(TREE, 2, 10))

    assert NAME not in tree.facts.operations


def test_jobs_drawn_here_by_a_later_term_than_ours_depose_this_allocator() -> None:
    tree = Tree()

    effects = tree.learn(drawn(TREE, 1, 5, (0, 5), term=TERM + 1))

    assert [effect for effect in effects if isinstance(effect, Superseded)] == [Superseded(TERM + 1)]
    assert not any(isinstance(effect, Superseded) for effect in Tree().learn(drawn(OTHER, 1, 5, (0, 5), term=TERM + 1)))


def test_jobs_that_follow_others_are_leased_when_admission_says_that_they_may_run() -> None:
    """The operation is in one tree. Its jobs wait for jobs of another operation, so no tree is asked for them."""
    spec = an_operation("a", 10).spec
    tree = Tree(free=0, spec=msgspec.structs.replace(spec, after_each=OperationId("first")))
    assert not [each for each in tree.effects if isinstance(each, Draw)]
    assert tree.tick_effects(Want) == []
    assert tree.counts == (0, 0)

    effects = tree.learn(returned(TreeName(""), 1, 3, (1, 2), (7, 9)))
    assert Draw(NAME, 1, 256) in effects
    assert tree.counts == (0, 3)
    tree.learn(drawn(TREE, 2, 0, (1, 2), (7, 9)))
    assert tree.known.slots.take(9) == [JobSlot(1), JobSlot(7), JobSlot(8)]
    tree.known.slots.give_back([JobSlot(1), JobSlot(7), JobSlot(8)])
    tree.check()
