"""Short words for tests of limits: operations by name, pools by their settings, and what is to be seen of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Pool, PoolConfig, Tree, TreeOptions
from headrace.resources import Resources
from headrace.runtime.engine import Moment
from headrace.wire import ledger
from headrace.wire import operations as wire
from headrace.wire.codec import decode, encode
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import Event, LogBatch
from headrace.wire.operations import OperationSpec, OperationState
from headrace.wire.placements import UPSTREAM
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace.wire.refusals import Refusal
from headrace.wire.start_plans import StartPlanned
from headrace_admission.decisions import starts
from headrace_admission.engine import AdmissionEngine, Decision
from headrace_admission.state.rules import GlobalRules, rules_of
from headrace_admission.state.state import State
from tests.support.clocks import at

__all__ = ["TREE", "Desk", "oid"]

TREE = TreeName("default")


def oid(name: str) -> OperationId:
    return OperationId(f"operation-{name}")


class Desk:
    """An engine, its configuration, and everything that it recorded."""

    def __init__(
        self, pools: dict[str, Any] | None = None, *, everywhere: GlobalRules | None = None, **options: Any
    ) -> None:
        self.everywhere = everywhere or GlobalRules()
        self.engine = AdmissionEngine(self.everywhere)
        #: Recorded events, an entry for each decision.
        self.entries: list[list[Event]] = []
        self.trees: dict[TreeName, Tree] = {}
        self.now_ms = 0
        self.configure(pools or {}, **options)

    @property
    def state(self) -> State:
        return self.engine.state

    def configure(self, pools: dict[str, Any], tree: TreeName = TREE, **options: Any) -> None:
        """The whole configuration of a tree; `parent` stands among a pool's settings."""
        self.trees[tree] = Tree(
            tree,
            [
                Pool(
                    PoolName(name),
                    PoolName(given.get("parent", ROOT_POOL)),
                    POOL_ATTRIBUTES.changed(
                        PoolConfig(), {key: value for key, value in given.items() if key != "parent"}
                    ).value,
                )
                for name, given in pools.items()
            ],
            TREE_ATTRIBUTES.changed(TreeOptions(), options).value,
        )
        self.record(self.engine.on_configuration(tree, rules_of(self.trees[tree]), self._tick()).effects)

    def start(self, name: str, pool: str = "", user: str = "anna", **spec: Any) -> Any:
        """The answer, or the refusal."""
        fields: dict[str, Any] = {"argv": ["true"], "resources": Resources(user_slots=1, cpu=100), **spec}
        wanted = OperationSpec(PoolName(pool), **fields)
        request = wire.StartOperation(oid(name), wanted)
        tried = starts.plan(self.state, request, user)
        answer = self._done(self.engine.on_start(request, user, self._tick()))
        self._compare(tried, answer)
        return answer

    def _compare(self, tried: StartPlanned | Refusal, answer: Any) -> None:
        """A dry run tells what comes of every start of every test, and changes nothing."""
        if not isinstance(tried, StartPlanned) or not isinstance(answer, wire.StartAnswer):
            assert tried == answer
            return
        assert (tried.repeated, tried.warnings) == (answer.repeated, [] if answer.repeated else answer.warnings)
        if tried.repeated:
            return
        assert (tried.erased_trees, tried.near) == (answer.erased_trees, answer.near)
        assert [each.waiting for each in tried.places if each.waiting is not None] == answer.waiting
        there = self.state.operations[answer.operation].placements
        blocked = {each.tree: each.waiting and each.waiting.blocked_by for each in tried.places}
        operation = self.state.operations[answer.operation]
        if operation.is_held_back:
            blocked = dict.fromkeys(blocked, UPSTREAM)
        assert tried.upstream_failure == operation.upstream_failure
        assert tried.awaits == answer.awaits or operation.upstream_failure
        assert tried.awaiting_jobs == answer.awaiting_jobs
        assert blocked == {tree: each.blocked_by for tree, each in there.items()}
        assert [(each.pool, each.rule) for each in tried.places] == [(each.pool, each.rule) for each in there.values()]
        for place in tried.places:
            known = self.state.books[place.tree].ephemeral.by_name
            assert [known[made.name] for made in place.made] == place.made

    def started(self, *names: str, pool: str = "", **spec: Any) -> None:
        for name in names:
            assert isinstance(self.start(name, pool, **spec), wire.StartAnswer)

    def finish(self, name: str) -> None:
        """Its job completes."""
        self.end_run(name, JobResult.COMPLETED)

    def preempt(self, name: str, *, ran_s: float = 1.0) -> None:
        """Its job loses its place after so long."""
        record = PreemptionRecord(PreemptionReason.PREEMPTION, oid("other"))
        self.end_run(name, JobResult.ABORTED, preemption=record, started_at_ms=5, ended_at_ms=5 + int(1000 * ran_s))

    def end_run(self, name: str, result: JobResult, **fields: Any) -> None:
        """The newest run of its only job ends."""
        operation = self.state.operations[oid(name)]
        attempt = operation.ledger.attempts[0] or 1
        end = JobEnd(oid(name), 0, attempt, AllocationId("1-1"), result, **fields)
        report = ledger.ReportEnds(operation.spec.tree, 1, [ledger.ReportedEnd(NodeName("n1"), end)])
        self._done(self.engine.on_report(report, self._tick()))

    def abort(self, name: str, reason: str = "") -> Any:
        return self._done(self.engine.on_abort(wire.AbortOperation(oid(name), reason), "anna", self._tick()))

    def released(self, name: str) -> None:
        """No node holds anything of it any more."""
        tree = self.state.operations[oid(name)].spec.tree
        self._done(self.engine.on_released(ledger.Released(tree, 1, [oid(name)]), self._tick()))

    def suspend(self, name: str, *, abort_running_jobs: bool = False) -> Any:
        return self._done(
            self.engine.on_suspend(wire.SuspendOperation(oid(name), abort_running_jobs), "anna", self._tick())
        )

    def resume(self, name: str) -> Any:
        return self._done(self.engine.on_resume(wire.ResumeOperation(oid(name)), "anna", self._tick()))

    def complete(self, name: str) -> Any:
        return self._done(self.engine.on_complete(wire.CompleteOperation(oid(name)), "anna", self._tick()))

    def update(self, name: str, user: str = "anna", **changes: Any) -> Any:
        return self._done(self.engine.on_update(wire.UpdateOperation(oid(name), **changes), user, self._tick()))

    def move(self, name: str, pool: str) -> Any:
        return self.update(name, pool=PoolName(pool))

    def scan(self) -> None:
        self.record(self.engine.on_scan(self._tick()).effects)

    def state_of(self, name: str) -> OperationState:
        return self.state.operations[oid(name)].state

    def running(self) -> list[str]:
        return self._in_state(OperationState.RUNNING)

    def waiting(self) -> list[str]:
        return self._in_state(OperationState.PENDING)

    def queue(self, pool: str, tree: TreeName = TREE) -> list[str]:
        queue = self.state.books[tree].queues.get(PoolName(pool), {})
        return [name.removeprefix("operation-") for name in queue]

    def counts(self, pool: str, tree: TreeName = TREE) -> tuple[int, int, int]:
        return self.state.books[tree].counts(PoolName(pool)).as_tuple()

    def replayed(self) -> AdmissionEngine:
        """Another engine that has read all the events as the log holds them, and has the configuration since."""
        engine = AdmissionEngine(self.everywhere)
        self.replay(engine)
        for tree in self.trees.values():
            assert engine.on_configuration(tree.tree, rules_of(tree), at(self.now_ms / 1000)).effects == []
        return engine

    def replay(self, engine: AdmissionEngine, first: int = 1) -> None:
        """Gives an engine the entries from `first` on, as the log holds them."""
        for sequence, events in enumerate(self.entries[first - 1 :], first):
            engine.on_entry(decode(encode(LogBatch(1, events)), LogBatch).events, sequence, 1, at(self.now_ms / 1000))

    def record(self, events: Sequence[Event]) -> None:
        """Makes what was decided an entry."""
        if events:
            self.entries.append(list(events))
            self.engine.on_recorded(events, len(self.entries), at(self.now_ms / 1000))
        self.check()

    @property
    def events(self) -> list[Event]:
        return [event for events in self.entries for event in events]

    def check(self) -> None:
        assert self.engine.check() == []

    def _in_state(self, state: OperationState) -> list[str]:
        found = [name for name, operation in self.state.operations.items() if operation.state is state]
        return sorted(name.removeprefix("operation-") for name in found)

    def _done(self, decision: Decision) -> msgspec.Struct:
        self.record(decision.effects)
        return decision.answer

    def _tick(self) -> Moment:
        self.now_ms += 1
        return at(self.now_ms / 1000)
