"""The ledger of an operation in two trees against chance: no job is two trees', and none is lost.

Judged by the events alone, as allocators hear them, beside the engine's own checks.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.pools import Tree
from headrace.resources import Resources
from headrace.runtime.engine import Outcome
from headrace.wire import ledger
from headrace.wire import operations as wire
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import BlockDrawn, Event, IndexesReturned, IndexRun, JobsEnded, LogBatch
from headrace.wire.operations import OperationSpec, OperationState
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.operation import Operation, OperationRecord
from headrace_admission.state.rules import rules_of
from tests.support.clocks import NOW

TREES = (TreeName("one"), TreeName("two"))
NAME = OperationId("operation-1")
trees = st.sampled_from(TREES)


#: Results after which a job is completed or runs again; a job that timed out is given up.
RETRIED = [result for result in JobResult if result is not JobResult.TIMED_OUT]


class JobsOfSeveralTrees(RuleBasedStateMachine):
    """Allocators of two trees that draw, end, return and release as they like."""

    @initialize(jobs=st.integers(1, 40))
    def begin(self, jobs: int) -> None:
        self.jobs = jobs
        self.engine = AdmissionEngine()
        self.entries: list[list[Event]] = []
        #: The state according to the events.
        self.owner: dict[int, TreeName] = {}
        self.attempt: dict[int, int] = {}
        self.over: set[int] = set()
        self.change = 0
        self.free = jobs
        for tree in TREES:
            self.engine.on_configuration(tree, rules_of(Tree(tree)), NOW)
        size = Resources(user_slots=1, cpu=100)
        spec = OperationSpec(PoolName("p"), ["true"], jobs, size, pool_trees=list(TREES), max_failed_job_count=1000)
        self.take(self.engine.on_start(wire.StartOperation(NAME, spec), "anna", NOW))

    @property
    def running(self) -> bool:
        return self.operation.state is OperationState.RUNNING

    def term(self, tree: TreeName) -> int:
        return self.engine.state.allocator_terms.get(tree, 1)

    @property
    def operation(self) -> Operation:
        return self.engine.state.operations[NAME]

    @rule(tree=trees, more=st.integers(1, 50))
    def draw(self, tree: TreeName, more: int) -> None:
        self.take(self.engine.on_draw(ledger.DrawBlock(tree, self.term(tree), NAME, more=more), NOW))

    @precondition(lambda self: self.owner)
    @rule(data=st.data(), result=st.sampled_from(RETRIED), reporter=trees)
    def end(self, data: st.DataObject, result: JobResult, reporter: TreeName) -> None:
        index = data.draw(st.sampled_from(sorted(self.owner)))
        end = JobEnd(NAME, index, self.attempt.get(index, 1), AllocationId("1-1"), result)
        for _ in range(data.draw(st.integers(1, 2))):
            report = ledger.ReportEnds(reporter, self.term(reporter), [ledger.ReportedEnd(NodeName("n"), end)])
            self.take(self.engine.on_report(report, NOW))

    @rule(tree=trees, first=st.integers(0, 39), count=st.integers(1, 9), late=st.integers(0, 2))
    def give_back(self, tree: TreeName, first: int, count: int, late: int) -> None:
        runs = [IndexRun(first, first + count)]
        self.take(
            self.engine.on_return(
                ledger.ReturnIndexes(tree, self.term(tree), NAME, max(0, self.change - late), runs), NOW
            )
        )

    @rule(tree=trees)
    def release(self, tree: TreeName) -> None:
        """Also without a reason: then it means nothing."""
        self.take(self.engine.on_released(ledger.Released(tree, self.term(tree), [NAME]), NOW))

    @rule(tree=trees)
    def lose_allocator(self, tree: TreeName) -> None:
        """Its nodes had none for their whole lease. What one of a former term still says counts for nothing."""
        self.take(self.engine.on_allocator_gone(tree, NOW))
        assert tree not in self.owner.values()

    @precondition(lambda self: self.running)
    @rule(tree=trees)
    def leave(self, tree: TreeName) -> None:
        if len(self.operation.placements) > 1:
            self.take(self.engine.on_configuration(tree, None, NOW))

    @rule(restore=st.booleans())
    def restart(self, restore: bool) -> None:
        """Another admission reads the log, or a checkpoint."""
        record = self.operation.to_record()
        if restore:
            again = Operation.from_record(decode(encode(record), OperationRecord))
        else:
            engine = AdmissionEngine()
            for sequence, events in enumerate(self.entries, 1):
                engine.on_entry(decode(encode(LogBatch(1, events)), LogBatch).events, sequence, 1, NOW)
            again = engine.state.operations[NAME]
        assert msgpack(again.to_record().ledger) == msgpack(record.ledger)
        assert again.ledger.check() == []

    def take(self, decision: Outcome[Any, Event]) -> None:
        """Holds what was decided against all that was said before."""
        if decision.effects:
            self.entries.append(list(decision.effects))
        for event in decision.effects:
            match event:
                case BlockDrawn():
                    assert event.tree is not None
                    for index in indexes(event.runs):
                        assert index not in self.owner
                        assert index not in self.over
                        assert 0 <= index < min(event.below, self.jobs)
                        self.owner[index] = event.tree
                    self.note(event.change, event.free)
                case IndexesReturned():
                    told = set(indexes(event.runs)) if event.runs else set(self.owner)
                    for index in [each for each in told if self.owner.get(each) == event.tree]:
                        del self.owner[index]
                    self.note(event.change, event.free)
                case JobsEnded():
                    for one in event.ends:
                        assert one.end.index not in self.over
                        self.owner.pop(one.end.index, None)
                        if one.retry is None:
                            self.over.add(one.end.index)
                        else:
                            self.attempt[one.end.index] = one.retry.attempt

    def note(self, change: int, free: int) -> None:
        assert change == self.change + 1
        assert free == self.jobs - len(self.owner) - len(self.over)
        self.change = change

    @invariant()
    def the_ledger_says_the_same(self) -> None:
        if not hasattr(self, "engine"):
            return
        assert self.engine.check() == []
        owners = self.operation.ledger.owners
        assert owners is not None
        for tree in TREES:
            assert owners.count(tree) == sum(1 for each in self.owner.values() if each == tree)
        assert owners.free == self.jobs - len(self.owner) - len(self.over)

    def teardown(self) -> None:
        """Whatever happened, what is left can be drawn and ended, and then all of it is done."""
        if not hasattr(self, "engine"):
            return
        for tree in TREES:
            # A tree that was left returns what it had.
            self.release(tree)
        while self.running:
            for tree in self.operation.placements:
                self.draw(tree, self.jobs)
            for index in sorted(self.owner):
                end = JobEnd(NAME, index, self.attempt.get(index, 1), AllocationId("1-1"), JobResult.COMPLETED)
                report = ledger.ReportEnds(
                    self.owner[index], self.term(self.owner[index]), [ledger.ReportedEnd(NodeName("n"), end)]
                )
                self.take(self.engine.on_report(report, NOW))
        assert self.operation.state is OperationState.COMPLETED
        assert len(self.over) == self.jobs


def indexes(runs: list[IndexRun]) -> list[int]:
    return [index for run in runs for index in range(run.first, run.below)]


def msgpack(record: object) -> bytes:
    return encode(record)  # type: ignore[arg-type]


TestJobsOfSeveralTrees = JobsOfSeveralTrees.TestCase
