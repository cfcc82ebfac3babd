"""Random graphs of operations that wait for each other, with failures and kills of admission in the middle of an append.

Each operation starts exactly once, after all operations that it waits for ended as asked, or it never starts and says why. The log alone
is judged, by a rule that is written here once more.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Final

import pytest

from headrace.ids import AllocationId, NodeName, OperationId
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.ledger import ReportedEnd, ReportEnds
from headrace.wire.log import BlockDrawn, JobsEnded, OperationStarted, OperationStateChanged, StateCause
from headrace.wire.operation_spec import Upstream, UpstreamEnd
from headrace.wire.operations import FINAL_STATES, OperationState, StartAnswer
from headrace.wire.refusals import NotFound
from headrace_admission.engine import AdmissionEngine
from headrace_admission.log import checkpoint
from headrace_admission.state.rules import rules_of
from headrace_admission.state.state import Restored
from tests.support.effort import seeds
from tests.unit.admission.desk import TREE, oid
from tests.unit.admission.test_after_each import Jobs

pytestmark = pytest.mark.long

_OPERATIONS: Final = 1_000
_ROWS: Final = 100
#: Few, so that operations are forgotten which others waited for.
_KEPT: Final = 30
_SATISFY: Final = {
    UpstreamEnd.OK: {OperationState.COMPLETED},
    UpstreamEnd.FAILED: {OperationState.FAILED, OperationState.ABORTED},
    UpstreamEnd.ANY: {OperationState.COMPLETED, OperationState.FAILED, OperationState.ABORTED},
}


class Graph(Jobs):
    """A desk with a process that dies at any moment, and a person who starts a graph of operations meanwhile."""

    def __init__(self, random: Random) -> None:
        self.random = random
        super().__init__()
        self.engine = AdmissionEngine(self.everywhere, keep_finished=_KEPT)
        running = {name: {"max_running_operation_count": count} for name, count in (("p", 2), ("q", 5))}
        self.configure(running, max_operation_count=_OPERATIONS, max_operation_count_per_pool=_OPERATIONS)
        self.asked: dict[str, list[Upstream]] = {}
        self.save()

    def check(self) -> None:
        if self.random.random() < 0.05:
            assert (found := self.engine.check()) == [], found

    def live(self) -> list[str]:
        return [name.removeprefix("operation-") for name in self.state.live]

    # --- the person, the nodes and the process ---------------------------------------------------------------------

    def start_next(self) -> None:
        """With up to four others to wait for, mostly recent ones; one of them may be forgotten already."""
        name = f"{len(self.asked):04}"
        recent = list(self.asked)[-80:]
        chosen = self.random.sample(recent, min(len(recent), self.random.choice([0, 1, 1, 2, 4])))
        ends = [UpstreamEnd.OK, UpstreamEnd.OK, UpstreamEnd.OK, UpstreamEnd.ANY, UpstreamEnd.ANY, UpstreamEnd.FAILED]
        upstream = [Upstream(oid(each), self.random.choice(ends)) for each in chosen]
        known = [each for each in upstream if each.operation in self.state.operations]
        pool = self.random.choice("pq")
        if len(known) < len(upstream):
            assert isinstance(self.start(name, pool, after=upstream), NotFound)
        self.asked[name] = known
        recorded = len(self.entries)
        answer = self.start(name, pool, after=known, max_failed_job_count=1)
        assert isinstance(answer, StartAnswer)
        if self.random.random() < 0.1:
            self.die(recorded)
            again = self.start(name, pool, after=known, max_failed_job_count=1)
            assert isinstance(again, StartAnswer)

    def end_one(self) -> None:
        names = self.live()
        if not names:
            return
        name = self.random.choice(names)
        how, recorded = self.random.random(), len(self.entries)
        if how < 0.03:
            self.abort(name)
        elif self.state_of(name) is OperationState.RUNNING:
            self.end_run(name, JobResult.COMPLETED if how < 0.9 else JobResult.FAILED)
        if self.random.random() < 0.03:
            self.die(recorded)
        # A node reports an end that was lost with the process again later.
        if oid(name) in self.state.live and self.state_of(name) in (OperationState.FAILING, OperationState.ABORTING):
            self.released(name)

    def save(self) -> None:
        """Begin a checkpoint. It is encoded while the state goes on."""
        self.saved = checkpoint.Checkpoint(self.state, page_bytes=2_000)
        self.to_write = self.saved.pages()
        self.written: list[bytes] = []

    def go_on_saving(self) -> None:
        self.written += itertools.islice(self.to_write, 1)

    def die(self, recorded: int) -> None:
        """The log keeps the beginning of the decision after so many entries; the successor reads a checkpoint and the log after it."""
        if len(self.entries) > recorded:
            last = self.entries[recorded]
            kept = last[: self.random.randrange(len(last) + 1)]
            self.entries[recorded:] = [kept] if kept else []
        self.written += self.to_write
        self.saved.close()
        engine = AdmissionEngine(self.everywhere, keep_finished=_KEPT)
        for page in self.written:
            engine.on_restored(checkpoint.read_page(page), self._tick())
        engine.on_restored(Restored(self.saved.sequence, self.saved.allocator_terms), self._tick())
        self.replay(engine)
        self.engine = engine
        rules = rules_of(self.trees[TREE])
        events = engine.on_configuration(TREE, rules, self._tick()).effects
        self.record([*events, *engine.on_takeover(self._tick()).effects])
        self.save()

    # --- what must hold ---------------------------------------------------------------------------------------------

    def judge(self) -> tuple[int, int]:
        """Judge the log. Return the numbers of operations that ran, and that could never run."""
        ended: dict[OperationId, OperationState] = {}
        ran: set[OperationId] = set()
        asked: dict[OperationId, list[Upstream]] = {}
        never: set[OperationId] = set()
        for event in self.events:
            if isinstance(event, OperationStarted):
                assert event.operation not in asked
                asked[event.operation] = event.spec.after
            if isinstance(event, OperationStarted | OperationStateChanged) and event.state is OperationState.RUNNING:
                name = event.operation
                assert name not in ran | never
                assert all(ended.get(each.operation) in _SATISFY[each.end] for each in asked[name]), name
                ran.add(name)
            if isinstance(event, OperationStateChanged):
                if event.cause is StateCause.UPSTREAM_FAILED:
                    assert event.operation not in ran
                    culprits = [
                        each.operation
                        for each in asked[event.operation]
                        if each.operation in ended and ended[each.operation] not in _SATISFY[each.end]
                    ]
                    assert any(f"upstream failed: operation {each} is" in event.reason for each in culprits), event
                    never.add(event.operation)
                if event.state in FINAL_STATES:
                    assert event.operation not in ended
                    ended[event.operation] = event.state
        assert asked.keys() == ended.keys() == {oid(name) for name in self.asked}
        return len(ran), len(never)


@pytest.mark.parametrize("seed", seeds(1, 120))
def test_each_operation_starts_once_after_what_it_waits_for(seed: int) -> None:
    random = Random(seed)
    graph = Graph(random)
    while len(graph.asked) < _OPERATIONS:
        (graph.start_next if len(graph.state.live) < 60 and random.random() < 0.5 else graph.end_one)()
        if random.random() < 0.1:
            graph.go_on_saving()
    while graph.state.live:
        graph.end_one()
    Jobs.check(graph)
    ran, never = graph.judge()
    assert ran > _OPERATIONS // 4
    assert never > _OPERATIONS // 20


class Rows(Graph):
    """Operations of many jobs, each job of which follows the same job of an earlier operation."""

    def start_next(self) -> None:
        name = f"{len(self.asked):04}"
        counts = {each.id: each.spec.job_count for each in self.state.live.values()}
        first = self.random.choice(list(counts)) if counts and self.random.random() < 0.8 else None
        jobs = self.random.randint(1, 40 if first is None else counts[first])
        self.asked[name] = []
        for _ in range(2 if self.random.random() < 0.1 else 1):
            recorded = len(self.entries)
            answer = self.start(
                name, "pq"[len(self.asked) % 2], job_count=jobs, after_each=first, max_failed_job_count=4
            )
            assert isinstance(answer, StartAnswer)
            if self.random.random() < 0.1:
                self.die(recorded)
        if oid(name) not in self.state.operations:
            del self.asked[name]

    def end_one(self) -> None:
        """An allocator leases what it may, and some of the jobs that are out end."""
        names = self.live()
        if not names:
            return
        name, recorded = self.random.choice(names), len(self.entries)
        operation = self.state.operations[oid(name)]
        if len(self.asked) < _ROWS and self.random.random() < 0.02:
            self.abort(name)
        if operation.state is OperationState.RUNNING:
            self.draw(name, self.random.randint(1, 20))
            out = [index for index in self.out(name) if self.random.random() < 0.7]
            ends = []
            for index in out:
                result = self.random.choices(list(JobResult), [60, 4, 3, 3, 3])[0]
                attempt = operation.ledger.attempts[index] or 1
                ends.append(ReportedEnd(NodeName("n"), JobEnd(oid(name), index, attempt, AllocationId("1-1"), result)))
            report = ReportEnds(TREE, 1, ends)
            self._done(self.engine.on_report(report, self._tick()))
            if self.random.random() < 0.05:
                self.die(recorded)
                # The allocator got no answer, so it reports again.
                self._done(self.engine.on_report(report, self._tick()))
        if oid(name) in self.state.live and self.state_of(name) in (OperationState.FAILING, OperationState.ABORTING):
            self.released(name)

    def out(self, name: str) -> list[int]:
        """The jobs that the allocator holds."""
        ledger = self.state.operations[oid(name)].ledger
        if ledger.owners is not None:
            return ledger.owners.indexes(TREE)
        over = ledger.completed_bits()
        return [index for index in range(ledger.block) if not over[index >> 3] >> (index & 7) & 1]

    def judge_jobs(self) -> int:
        """Judge the log. Return the number of operations that completed."""
        follows: dict[OperationId, OperationId | None] = {}
        completed: set[tuple[OperationId, int]] = set()
        states: dict[OperationId, OperationState] = {}
        for event in self.events:
            match event:
                case OperationStarted():
                    follows[event.operation] = event.spec.after_each
                case BlockDrawn():
                    first = follows[event.operation]
                    for run in event.runs if first is not None else ():
                        for index in range(run.first, run.below):
                            assert (first, index) in completed
                            assert (event.operation, index) not in completed
                case JobsEnded():
                    done = {one.end.index for one in event.ends if one.end.result is JobResult.COMPLETED}
                    assert not {(event.operation, index) for index in done} & completed
                    completed |= {(event.operation, index) for index in done}
                case OperationStateChanged():
                    states[event.operation] = event.state
        assert states.keys() == {oid(name) for name in self.asked}
        assert set(states.values()) <= FINAL_STATES
        return list(states.values()).count(OperationState.COMPLETED)


@pytest.mark.parametrize("seed", seeds(3, 300))
def test_each_job_is_leased_after_the_job_that_it_follows_completed(seed: int) -> None:
    rows = Rows(Random(seed))
    while len(rows.asked) < _ROWS:
        (rows.start_next if len(rows.state.live) < 12 and rows.random.random() < 0.5 else rows.end_one)()
        if rows.random.random() < 0.1:
            rows.go_on_saving()
    for _ in range(20_000):
        if not rows.state.live:
            break
        rows.end_one()
    Jobs.check(rows)
    assert rows.judge_jobs() > 10
