"""The recorded log: the past before the replay, requests of users, and runs of jobs. Pure.

Only operations of one tree are replayed. Operations that several trees ran, or whose start is no longer in the log, are not replayed but
counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from headrace.ids import NodeName, OperationId, PoolName, TreeName
from headrace.wire import operations as wire
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.log import (
    AllocatorAttached,
    ClockMoved,
    EphemeralPoolAdopted,
    EphemeralPoolSet,
    Event,
    JobsEnded,
    LoggedEnd,
    OperationPlaced,
    OperationStarted,
    OperationStateChanged,
    OperationSuspended,
    ParametersChanged,
    StateCause,
    concerned,
)
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.replay import ReplayTask, ToldEntry
from headrace_simulator.outages import Outage

Request = (
    wire.StartOperation
    | wire.AbortOperation
    | wire.CompleteOperation
    | wire.SuspendOperation
    | wire.ResumeOperation
    | wire.UpdateOperation
)


class Action(msgspec.Struct, frozen=True):
    """A request of a user that was accepted."""

    at_ms: int
    user: str
    request: Request


class JobRun(msgspec.Struct, frozen=True, gc=False):
    """A run of a job according to the log."""

    operation: OperationId
    index: int
    attempt: int
    node: NodeName | str
    started_at_ms: int
    #: Time of the end in milliseconds; None if the run has not ended.
    ended_at_ms: int | None
    result: JobResult | None

    def length_ms(self, until_ms: int) -> int:
        """Return the length of the run in milliseconds; for a run that has not ended, the length up to `until_ms`."""
        return max(0, (until_ms if self.ended_at_ms is None else self.ended_at_ms) - self.started_at_ms)


class Recording:
    """The log of one tree, divided at the beginning of the replayed period."""

    def __init__(self, task: ReplayTask) -> None:
        self.tree: TreeName = task.tree
        self.since_ms, self.until_ms = task.since_ms, task.until_ms
        #: Entries from before the period, from which the state at its beginning is built.
        self.past: list[ToldEntry] = []
        self.actions: list[Action] = []
        self.runs: list[JobRun] = []
        self.users: dict[OperationId, str] = {}
        self.specs: dict[OperationId, OperationSpec] = {}
        #: Operations that are not replayed because they run in several trees, or because the log does not contain their start.
        self.of_several_trees: set[OperationId] = set()
        self.forgotten: set[OperationId] = set()
        self._hubs: dict[PoolName, PoolName] = {}
        self._pools: dict[OperationId, PoolName] = {}
        self._others: set[OperationId] = set()
        self._at_ms = 0
        #: A replay remembers all operations, since its results are compared operation by operation.
        self.keeps_finished = 10**9
        for entry in task.entries:
            self._take(entry)
        self.runs += [
            JobRun(each.operation, each.index, each.attempt, each.node, each.started_at_ms, None, None)
            for each in task.running
            if each.operation in self.specs
        ]
        self.lengths = JobLengths(self)

    @property
    def started(self) -> int:
        """The number of operations that were started in the period."""
        return sum(isinstance(each.request, wire.StartOperation) for each in self.actions)

    def pool_of(self, operation: OperationId) -> PoolName:
        """Return the last pool of an operation."""
        return self._pools[operation]

    def requests(self) -> Iterator[Action]:
        """Yield the requests of the period."""
        return iter(self.actions)

    def following(self, operation: OperationId, now_ms: int) -> Iterator[Action]:
        """Yield nothing: the log has the time of each request."""
        return iter(())

    def outages(self) -> Iterator[Outage]:
        """Yield nothing: nodes do not fail in a replay."""
        return iter(())

    def length_of(self, operation: OperationId, index: int, run: int) -> tuple[int, JobResult]:
        """Return the length in milliseconds and the result of a run of a job."""
        return self.lengths.of(operation, index, run)

    def kept_fraction(self, operation: OperationId) -> float:
        """Return 1 if the next run of a job continues where the interrupted run stopped, else 0."""
        return float(self.specs[operation].interruptible)

    def forget(self, operation: OperationId) -> None:
        """Do nothing: a replay remembers all operations."""

    def _take(self, entry: ToldEntry) -> None:
        self._at_ms = max([self._at_ms, *map(_at_ms, entry.events)])
        events = [event for event in entry.events if self._is_ours(event)]
        for event in events:
            if isinstance(event, JobsEnded):
                self.runs += [_run(logged) for logged in event.ends if logged.end.started_at_ms]
        if self._at_ms < self.since_ms:
            self.past.append(msgspec.structs.replace(entry, events=events))
        elif self._at_ms <= self.until_ms:
            for event in events:
                self._act(event)
        for event in events:
            self._note(event)

    def _is_ours(self, event: Event) -> bool:
        """True if an event is about this tree, or about an operation that runs in this tree only."""
        operation = concerned(event)
        if isinstance(event, ClockMoved):
            return True
        if operation is None:
            assert isinstance(event, EphemeralPoolSet | EphemeralPoolAdopted | AllocatorAttached)
            return event.tree == self.tree
        if isinstance(event, OperationStarted):
            trees = {each.tree for each in event.placements} or {event.spec.tree}
            if trees != {self.tree}:
                (self.of_several_trees if self.tree in trees else self._others).add(operation)
                return False
            self.specs[operation], self.users[operation] = event.spec, event.user
        elif operation not in self.specs and operation not in self.of_several_trees | self._others:
            self.forgotten.add(operation)
        return operation in self.specs

    def _note(self, event: Event) -> None:
        """Remember hubs and the pools of operations. They are needed to interpret later events."""
        match event:
            case EphemeralPoolSet(pool=pool) if pool.of_hub:
                self._hubs[pool.name] = pool.parent
            case OperationStarted():
                self._pools[event.operation] = event.spec.pool
            case OperationPlaced():
                self._pools[event.operation] = event.placement.pool

    def _act(self, event: Event) -> None:
        match event:
            case OperationStarted():
                self._add(event.at_ms, wire.StartOperation(event.operation, self._asked(event)))
            case OperationStateChanged(cause=StateCause.ABORTED_BY_USER | StateCause.TREE_REMOVED):
                self._add(event.at_ms, wire.AbortOperation(event.operation))
            case OperationStateChanged(cause=StateCause.COMPLETED_BY_USER):
                self._add(event.at_ms, wire.CompleteOperation(event.operation))
            case OperationSuspended(suspended=True):
                self._add(event.at_ms, wire.SuspendOperation(event.operation, event.abort_running_jobs))
            case OperationSuspended():
                self._add(event.at_ms, wire.ResumeOperation(event.operation))
            case ParametersChanged():
                limit_ms = event.operation_time_limit_ms
                self._add(
                    event.at_ms, wire.UpdateOperation(event.operation, event.weight, operation_time_limit_ms=limit_ms)
                )
            case OperationPlaced(placement=placement) if placement.pool != self._pools.get(event.operation):
                pool = self._hubs.get(placement.pool, placement.pool)
                self._add(self._at_ms, wire.UpdateOperation(event.operation, pool=pool))

    def _add(self, at_ms: int, request: Request) -> None:
        at_ms = min(max(at_ms, self.since_ms), self.until_ms)
        self.actions.append(Action(at_ms, self.users[request.operation], request))

    def _asked(self, event: OperationStarted) -> OperationSpec:
        """Return the spec as the user gave it, as far as the log shows. It has no pool if a placement rule chose the pool."""
        pool = self._hubs.get(event.spec.pool, event.spec.pool)
        if any(each.rule for each in event.placements):
            pool = PoolName("")
        # The operation waits only for operations that are replayed. Any other operation would never end.
        after = [each for each in event.spec.after if each.operation in self.specs]
        after_each = event.spec.after_each if event.spec.after_each in self.specs else None
        return msgspec.structs.replace(event.spec, pool=pool, files=None, trace="", after=after, after_each=after_each)


class JobLengths:
    """Lengths and results of the runs of jobs in the replayed period, according to the log.

    A run that was aborted or lost shows only that the job would have taken longer than that run. If a new run of a job continues where the
    previous run stopped (`interruptible`), the length of the job is the sum of its runs.
    """

    def __init__(self, recording: Recording) -> None:
        self._until_ms = recording.until_ms
        self._forever_ms = recording.until_ms - recording.since_ms + 1
        self._ends: defaultdict[tuple[OperationId, int], list[tuple[int, JobResult]]] = defaultdict(list)
        self._at_least: defaultdict[tuple[OperationId, int], int] = defaultdict(int)
        of_operation: defaultdict[OperationId, list[int]] = defaultdict(list)
        #: Jobs whose length is assumed, because the log has no further run of the job that ended by itself.
        self.guessed: set[tuple[OperationId, int]] = set()
        for run in sorted(recording.runs, key=lambda each: (each.ended_at_ms or recording.until_ms, each.attempt)):
            key, ran_ms = (run.operation, run.index), run.length_ms(recording.until_ms)
            goes_on = recording.specs[run.operation].interruptible
            if run.result in (JobResult.COMPLETED, JobResult.FAILED, JobResult.TIMED_OUT):
                whole_ms = ran_ms + (self._at_least.pop(key, 0) if goes_on else 0)
                of_operation[run.operation].append(whole_ms)
                if run.ended_at_ms is not None and run.ended_at_ms >= recording.since_ms:
                    self._ends[key].append((whole_ms, run.result))
            elif goes_on:
                self._at_least[key] += ran_ms
            else:
                self._at_least[key] = max(self._at_least[key], ran_ms)
        self._usual_ms = {name: sorted(each)[len(each) // 2] for name, each in of_operation.items()}

    def of(self, operation: OperationId, index: int, run: int) -> tuple[int, JobResult]:
        """Return the length in milliseconds and the result of a run of the job.

        `run` numbers the runs of the job that end by themselves, from 0.
        """
        key = (operation, index)
        known = self._ends.get(key, [])
        if run < len(known):
            return known[run]
        self.guessed.add(key)
        usual_ms = self._usual_ms.get(operation, self._forever_ms)
        return max(usual_ms, self._at_least.get(key, 0)), JobResult.COMPLETED


def running_at(runs: Iterable[JobRun], at_ms: int, nodes: Sequence[NodeName]) -> dict[NodeName, list[JobRun]]:
    """Return the runs that were running at a time, by node."""
    there: dict[NodeName, list[JobRun]] = {node: [] for node in nodes}
    for run in runs:
        if run.started_at_ms < at_ms and (run.ended_at_ms is None or run.ended_at_ms >= at_ms):
            there.get(NodeName(run.node), []).append(run)
    return there


def _run(logged: LoggedEnd) -> JobRun:
    end: JobEnd = logged.end
    return JobRun(end.operation, end.index, end.attempt, logged.node, end.started_at_ms, end.ended_at_ms, end.result)


def _at_ms(event: Event) -> int:
    at_ms: int = getattr(event, "at_ms", 0)
    return at_ms
