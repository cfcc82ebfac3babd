"""The client: the requests of one user over one connection, and a handle for an operation."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

import anyio
import anyio.to_thread
import msgspec

from headrace.bus import Bus, BusClosed, PermissionRefused
from headrace.client.admission import DryRuns, Files, Groups, Hosts, Persons
from headrace.client.asking import LONGEST_ABSENCE_S, Asker, Pauses, Silence, at_once
from headrace.client.consumption import Consumption
from headrace.client.errors import Unanswered
from headrace.client.finished import FinishedOperations
from headrace.client.following import Follower
from headrace.client.happenings import Happenings
from headrace.client.logs import JobLogReader, LogLine, LogWishes
from headrace.client.news import newer, news_of
from headrace.client.operation_id import new_operation_id
from headrace.client.place import Place, full_disk, trace_of_caller
from headrace.client.pools import Pools
from headrace.client.processes import Processes
from headrace.client.run_options import RunOptions, named_keywords, operation_spec
from headrace.client.sessions import Sessions
from headrace.client.tokens import Tokens
from headrace.client.trees import Trees
from headrace.durations import parse_time_limit_ms
from headrace.errors import BadInput
from headrace.ids import OperationId, PoolName, TreeName, UserName, node_name, operation_id
from headrace.installation.extras import MissingExtra
from headrace.obs.trace_sinks import begin_tracing, with_otel_variables
from headrace.obs.tracing import SpanKind, start_of_operation
from headrace.runtime.clock import Clock
from headrace.wire import subjects
from headrace.wire.explanations import ExplainWaiting, WaitingExplained
from headrace.wire.heartbeat import JobResult
from headrace.wire.nodes import (
    ChangedNode,
    ChangeNode,
    ListNodes,
    NodeChange,
    NodeList,
    OperationPlaces,
    WhereRequest,
)
from headrace.wire.operations import (
    FINAL_STATES,
    LARGEST_JOB_COUNT,
    AbortOperation,
    CompleteOperation,
    CountPools,
    ExplainOperation,
    GetJobs,
    GetOperation,
    JobPage,
    JobRow,
    ListOperations,
    OperationExplanation,
    OperationList,
    OperationOrder,
    OperationSpec,
    OperationView,
    PerTree,
    PoolCounts,
    ResumeOperation,
    Scanned,
    ScanQueues,
    StartAnswer,
    StartOperation,
    SuspendOperation,
    UpdateOperation,
)
from headrace.wire.placements import PoolLevel
from headrace.wire.refusals import Refused
from headrace.wire.trace import HeartbeatTraced, TraceHeartbeat

#: Seconds for which a start is retried under its id.
START_TIMEOUT_S = 30.0
#: Seconds without news after which a wait asks for the view again.
_LOOK_AGAIN_S = 5.0


class DrainWishes(TypedDict, total=False):
    """Options for draining a node. Each has the meaning of the field of `ChangeNode` with the same name. Times are milliseconds of Unix
    time.
    """

    reason: str
    from_ms: int
    until_ms: int
    abort_after_ms: int | None


class Client:
    """The requests that a person can make to Headrace. Made by `connect`."""

    def __init__(
        self, bus: Bus, clock: Clock, place: Place, user: UserName, *, timeout_s: float, patience_s: float | None = None
    ) -> None:
        self._bus = bus
        self._clock = clock
        self.place = place
        self.user = user
        self.silence = Silence(clock, place.tree, patience_s)
        self._asker = Asker(
            bus, clock, lambda verb: subjects.user(user, verb), timeout_s, self.silence, partial(full_disk, place)
        )
        self.pools = Pools(self._asker, place.tree)
        self.trees = Trees(self._asker, place.tree)
        self.processes = Processes(bus, user)
        self.persons = Persons(self._asker)
        self.groups = Groups(self._asker)
        self.starts = DryRuns(self._asker, clock, self.pools)
        self.files = Files(self._asker)
        self.hosts = Hosts(self._asker)
        self.tokens = Tokens(self._asker, place, user)
        self.consumption = Consumption(self._asker, clock, place.tree)
        self.sessions = Sessions(self._asker, self)
        follower = Follower(bus, clock, place, self.pools.starving)
        self.happenings = Happenings(self._asker, follower)
        self.finished = FinishedOperations(self._asker, bus, clock)

    async def run(
        self,
        argv: Sequence[str] = (),
        *,
        upload: Sequence[str | Path] = (),
        operation: str = "",
        timeout_s: float = START_TIMEOUT_S,
        **options: Unpack[RunOptions],
    ) -> Operation:
        """Start an operation whose jobs run `argv`. The options are those of `headrace run`: see `RunOptions`.

        With `tasks`, made by `task`, the operation has jobs of several kinds, and `argv`, `jobs`, `cpu`, `memory` and `gpu` are left out.
        `upload` names files, and folders whose contents are sent; the jobs start in the folder of these files. `operation` is the id; the
        client makes one if it is empty. If this user has started an operation with this id before, nothing new is started. Raises
        `Refused`, `Unanswered`, `BadInput`, and `OSError` for a file that cannot be read.
        """
        with named_keywords():
            spec = operation_spec(argv, sends_files=bool(upload), **options)
            if isinstance(upload, str) or (upload and spec.files is not None):
                raise BadInput("upload", upload, "a list of paths, and no files besides")
            spec = await self.pools.named_in(msgspec.structs.replace(spec, tree=self.place.tree))
            if upload:
                # `pack` is imported here, because the import takes longer than most commands run.
                from headrace.archives import pack

                packed = await anyio.to_thread.run_sync(pack, [Path(path) for path in upload])
                spec = msgspec.structs.replace(spec, files=await self.files.send(packed))
            return await self.start(spec, operation=operation, timeout_s=timeout_s)

    async def start(self, spec: OperationSpec, *, operation: str = "", timeout_s: float = START_TIMEOUT_S) -> Operation:
        """Start the operation of `spec`. The request is retried with the same id until the start is recorded or
        refused, or until the timeout.

        Raises `Refused`, `Unanswered`, `BadInput`.
        """
        name = operation_id(operation) if operation else new_operation_id(self._clock)
        with suppress(BadInput, MissingExtra):  # An operation can be started even if spans cannot be written.
            begin_tracing("client", with_otel_variables(self.place.traces, os.environ))
        subject = subjects.user("*", "op.start")
        with start_of_operation(
            "start request", name, spec.trace or trace_of_caller(), kind=SpanKind.CLIENT, subject=subject
        ) as trace:
            spec = msgspec.structs.replace(spec, trace=trace)
            request = StartOperation(operation=name, spec=spec, min_revision=self.pools.revision)
            answer = await self._asker.ask("op.start", request, StartAnswer, timeout_s=timeout_s)
        return Operation(self, name, answer)

    def operation(self, operation: str) -> Operation:
        """Return a handle for an operation by its id, without a request. Raises `BadInput`."""
        return Operation(self, operation_id(operation))

    async def get(self, operation: str) -> OperationView:
        """Return the view of one operation. Raises `Unanswered`, and `Refused`, which names up to three operations with similar ids."""
        request = GetOperation(operation=OperationId(operation))
        return await self._asker.ask("op.get", request, OperationView)

    async def _operations_on(self, node: str) -> list[OperationId]:
        """Return the operations with an allocation on a node. If the client's own tree does not have the node, look in the first tree that
        has it.
        """
        try:
            return await self._operations_in(self.place.tree, node)
        except Refused as refused:
            for each in (await self.trees.list()).trees:
                with suppress(Refused):
                    if each.tree != self.place.tree:
                        return await self._operations_in(each.tree, node)
            raise refused

    async def _operations_in(self, tree: TreeName, node: str) -> list[OperationId]:
        return (await self.hosts.get(node, tree)).operations

    async def list(
        self,
        *,
        pool: str = "",
        state: str = "",
        user: str = "",
        live: bool = False,
        limit: int = 100,
        node: str = "",
        order: OperationOrder = OperationOrder.STARTED,
        after: str = "",
        after_started_at_ms: int = 0,
    ) -> list[OperationView]:
        """Return at most `limit` operations, sorted by `order`, beginning after the operation `after`. If `live` is True, ended operations
        are left out.

        Admission forgets old ended operations. If it forgot the operation `after`, the list goes on at the time
        `after_started_at_ms` at which that operation started, and operations of the same millisecond may be
        repeated. Without this time, or in another order than that of the starts, the request is refused.

        With `node`, return only operations that have a job on this node now. Raises `Refused` if no tree has the node.
        """
        found: list[OperationView] = []
        wanted = await self._operations_on(node) if node else []
        if node and not wanted:
            return []
        while len(found) < limit:
            page = min(500, limit - len(found))
            request = ListOperations(pool, state, user, live, page, after, wanted, order, after_started_at_ms)
            answer = await self._asker.ask("op.list", request, OperationList)
            found.extend(answer.operations)
            if not answer.more or not answer.operations:
                break
            after, after_started_at_ms = answer.operations[-1].operation, answer.operations[-1].started_at_ms
        return found

    async def abort(self, operation: str, reason: str = "") -> OperationView:
        """End an operation: no new jobs start, running jobs are interrupted. Aborting twice is no error."""
        request = AbortOperation(operation=operation_id(operation), reason=reason)
        return await self._asker.ask("op.abort", request, OperationView)

    async def explain(self, operation: str) -> OperationExplanation:
        """Return every level from the root down to the operation's pool, with counts and limits, and what holds the operation back."""
        request = ExplainOperation(operation=operation_id(operation))
        return await self._asker.ask("op.explain", request, OperationExplanation)

    async def update(
        self,
        operation: str,
        *,
        weight: float | None = None,
        pool: str | None = None,
        operation_time_limit: str | None = None,
        tree: str = "",
    ) -> OperationView:
        """Change the weight, the pool and the time limit of a live operation. Either all given changes are made or none.

        `tree` limits a change of weight and pool to one tree. The time limit counts from the first running slot; "none" takes it away.
        Raises `Refused` with the reason, for example if the operation could not run at once in its new pool.
        """
        moved = PoolName(pool) if pool is not None else None
        name, revision = operation_id(operation), self.pools.revision
        limit_ms = (
            0 if operation_time_limit == "none" else parse_time_limit_ms(operation_time_limit, "operation_time_limit")
        )
        request = UpdateOperation(name, weight, moved, min_revision=revision, operation_time_limit_ms=limit_ms)
        if tree and (weight is not None or moved is not None):
            said = {TreeName(tree): PerTree(moved or PoolName(""), weight)}
            request = msgspec.structs.replace(request, weight=None, pool=None, scheduling_options_per_pool_tree=said)
        return await self._asker.ask("op.update", request, OperationView)

    async def suspend(self, operation: str, *, abort_running_jobs: bool = False) -> OperationView:
        """Start no more jobs of the operation until `resume`. Running jobs go on unless `abort_running_jobs` is True."""
        request = SuspendOperation(operation_id(operation), abort_running_jobs)
        return await self._asker.ask("op.suspend", request, OperationView)

    async def resume(self, operation: str) -> OperationView:
        """Resume a suspended operation. Raises `Refused` if it is not suspended."""
        request = ResumeOperation(operation_id(operation))
        return await self._asker.ask("op.resume", request, OperationView, repeatable=False)

    async def complete(self, operation: str) -> OperationView:
        """End a running operation as completed. Raises `Refused` in any other state."""
        request = CompleteOperation(operation_id(operation))
        return await self._asker.ask("op.complete", request, OperationView, repeatable=False)

    async def scan(self) -> Scanned:
        """Make admission check again, for every operation that waits for a running slot, whether it may run. For administrators."""
        return await self._asker.ask("op.scan", ScanQueues(), Scanned)

    async def counts(self, pool: str = "", tree: str = "") -> Sequence[PoolLevel]:
        """Return the counts that are compared with the operation limits of one pool, or of all pools, the root first."""
        found: list[PoolLevel] = []
        while True:
            after = found[-1].pool if found else ""
            request = CountPools(PoolName(pool), TreeName(tree) if tree else self.place.tree, after)
            page = await self._asker.ask("pool.counts", request, PoolCounts)
            found.extend(page.pools)
            if not page.more or not page.pools:
                return found

    async def wait(
        self,
        operation: str,
        progress: Callable[[OperationView], None] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> OperationView:
        """Wait until the operation is over. `progress` is called with each new view.

        Tolerates a server that is unavailable for a minute. Raises `TimeoutError` after `timeout_s`, `Refused`, `Unanswered`.
        """
        name = operation_id(operation)
        with anyio.fail_after(timeout_s):
            inbox = await news_of(self._bus, self.user, name)
            try:
                view = await self._look(name)
                if view.user != self.user:
                    # If this user may not subscribe to the owner's news, the wait only requests the view every few
                    # seconds.
                    with suppress(PermissionRefused):
                        own, inbox = inbox, await news_of(self._bus, view.user, name)
                        await own.close()
                        view = await self._look(name)
                while True:
                    if progress is not None:
                        progress(view)
                    if view.state in FINAL_STATES:
                        return view
                    news: OperationView | None = None
                    with anyio.move_on_after(_LOOK_AGAIN_S):
                        message = await anext(inbox, None)
                        if message is None:
                            raise BusClosed("the client was closed")
                        news = newer(view, message.data)
                        if news is None:
                            continue
                    view = news or await self._look(name)
            finally:
                with anyio.CancelScope(shield=True):
                    await inbox.close()

    async def _look(self, operation: OperationId) -> OperationView:
        gone_at: float | None = None
        pauses = Pauses()
        while True:
            try:
                return await self.get(operation)
            except Unanswered as error:
                now = self._clock.steady_s()
                gone_at = now - error.waited_s if gone_at is None else gone_at
                if now - gone_at >= LONGEST_ABSENCE_S:
                    raise
            await anyio.sleep(pauses.next_s())

    async def jobs(
        self, operation: str, *, first: int = 0, limit: int = LARGEST_JOB_COUNT, results: Sequence[JobResult] = ()
    ) -> AsyncIterator[JobRow]:
        """Yield the jobs of an operation from index `first` on, at most `limit`, each with the result and node of its
        newest ended attempt.

        With `results`, yield only jobs whose newest ended attempt has one of these results. `happenings.ends` returns
        what each attempt used.
        """
        name = operation_id(operation)
        while limit > 0:
            request = GetJobs(operation=name, first=first, limit=min(1000, limit), results=list(results))
            page = await self._asker.ask("op.jobs", request, JobPage)
            for row in page.jobs:
                yield row
            if len(page.jobs) < request.limit or page.jobs[-1].slot.index + 1 >= page.job_count:
                return
            limit -= len(page.jobs)
            first = page.jobs[-1].slot.index + 1

    async def places(self, operation: str, trees: Sequence[TreeName] = ()) -> OperationPlaces:
        """Return the allocations of running jobs and every reason why pending jobs wait, in `trees` or in all trees that answer."""
        request = WhereRequest(operation=operation_id(operation))
        asked = trees or [each.tree for each in (await self.get(operation)).placements]
        missing: list[Refused | Unanswered] = []

        async def ask(tree: TreeName) -> OperationPlaces | None:
            try:
                return await self._asker.ask(subjects.of_tree("op.where", tree), request, OperationPlaces)
            except (Refused, Unanswered) as error:
                missing.append(error)
                return None

        told = await at_once(ask, asked or [self.place.tree])
        found = [each for each in told.values() if each is not None]
        if not found:
            raise missing[-1]
        return OperationPlaces.joined(found)

    async def nodes(self, tree: str = "") -> NodeList:
        """Return all nodes of a tree, by name. Raises `Refused` if `tree` names another tree than the client's own, and
        that tree does not exist.
        """
        if tree and tree != self.place.tree:
            # If nobody answers a request for nodes, either the tree does not exist, or its allocator is still starting. `trees.list` shows
            # which of the two is true.
            with suppress(Unanswered):
                await self.trees.list(tree)
        answer = NodeList(nodes=[])
        while True:
            request = ListNodes(first=len(answer.nodes))
            page = await self.hosts.page(TreeName(tree) if tree else self.place.tree, request)
            answer = NodeList(nodes=answer.nodes + page.nodes, recovering=page.recovering)
            if not page.more or not page.nodes:
                return answer

    async def change_node(self, node: str, change: NodeChange, **drain: Unpack[DrainWishes]) -> ChangedNode:
        """Drain, undrain or remove a node. For administrators. Raises `Refused`, `Unanswered`, `BadInput`."""
        request = ChangeNode(node_name(node), change, **drain)
        return await self._asker.ask("node.change", request, ChangedNode)

    async def trace_heartbeat(self, node: str) -> HeartbeatTraced:
        """Make a node send a heartbeat and trace it. For administrators. Raises `Refused`, `Unanswered`, `BadInput`."""
        name = node_name(node)
        return await self._asker.ask(f"debug.heartbeat.{name}", TraceHeartbeat(name), HeartbeatTraced)

    def logs(self, operation: str, job: int | None = None, **wishes: Unpack[LogWishes]) -> AsyncIterator[LogLine]:
        """Yield the lines that the jobs of an operation wrote, or only the lines of `job`. For the options see `LogWishes`."""
        return JobLogReader(self, self._asker, operation_id(operation), job, wishes).read()


class Operation:
    """A handle for one operation, started by this client or named by its id."""

    def __init__(self, client: Client, operation: OperationId, answer: StartAnswer | None = None) -> None:
        self._client = client
        self.id = operation
        #: Answer of admission to the start; None if the handle was made from an id.
        self.answer = answer

    def __repr__(self) -> str:
        return f"<Operation {self.id}>"

    async def view(self) -> OperationView:
        """Return the operation's present view. Raises the errors of `Client.get`."""
        return await self._client.get(self.id)

    async def wait(
        self, progress: Callable[[OperationView], None] | None = None, *, timeout_s: float | None = None
    ) -> OperationView:
        """Wait until the operation is over. Raises the errors of `Client.wait`."""
        return await self._client.wait(self.id, progress, timeout_s=timeout_s)

    async def abort(self, reason: str = "") -> OperationView:
        """End the operation. Aborting twice is no error."""
        return await self._client.abort(self.id, reason)

    async def jobs(self) -> list[JobRow]:
        """Return the jobs of the operation and where they ran. `Client.happenings.ends` has the start, end, CPU time and peak memory of
        each run.
        """
        return [row async for row in self._client.jobs(self.id)]

    async def places(self) -> OperationPlaces:
        """Return the allocations of the operation's running jobs, and why its other jobs do not run."""
        return await self._client.places(self.id)

    async def waiting(self, tree: TreeName) -> WaitingExplained:
        """Return everything that keeps the operation's jobs from starting in one tree. Raises `Refused`, `Unanswered`."""
        return await self._client._asker.ask(
            subjects.of_tree("op.why", tree), ExplainWaiting(self.id), WaitingExplained
        )

    def logs(self, job: int | None = None, **wishes: Unpack[LogWishes]) -> AsyncIterator[LogLine]:
        """Yield the output of the operation's jobs, as `Client.logs` does."""
        return self._client.logs(self.id, job, **wishes)
