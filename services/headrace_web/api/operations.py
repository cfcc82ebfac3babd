"""Endpoints for operations and their jobs."""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Final

import msgspec

from headrace.client.asking import at_once
from headrace.client.errors import Unanswered
from headrace.client.following import HappeningFilter
from headrace.client.happenings import plain_happening
from headrace.client.logs import LogWishes
from headrace.client.run_options import is_image_file, named_keywords, operation_spec, task
from headrace.errors import BadInput
from headrace.ids import OperationId, TreeName
from headrace.wire.explanations import WaitingExplained
from headrace.wire.heartbeat import JobResult
from headrace.wire.nodes import OperationPlaces
from headrace.wire.operations import (
    FINAL_STATES,
    JobRow,
    OperationExplanation,
    OperationOrder,
    OperationSpec,
    OperationView,
    StartAnswer,
)
from headrace.wire.refusals import Refused
from headrace.wire.start_plans import StartPlanned
from headrace.wire.version import Counter
from headrace_web.api.context import Context
from headrace_web.api.endpoint import Endpoint, Event
from headrace_web.api.pages import cursor_of, read_cursor
from headrace_web.api.start_request import StartRequest, TaskRequest, options_of

#: Largest number of operations, or of jobs, on a page.
Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
#: Largest number of live operations of a pool whose events a reader that follows the pool gets.
_MOST_MEMBERS: Final = 100_000
#: Largest number of jobs whose output is sent as one stream. The stream keeps some 300 bytes for each output.
_MOST_JOBS_OF_LOG: Final = 1_000


class OneOperation(msgspec.Struct, frozen=True):
    """An operation."""

    #: Id of the operation.
    operation: str


class ListedOperations(msgspec.Struct, frozen=True):
    """Which operations to list."""

    #: Only operations of this pool, by its name or its path.
    pool: str = ""
    #: Only operations in this state; `waiting` stands for `pending`.
    state: str = ""
    #: Only operations of this user.
    user: str = ""
    #: True: only operations that have not ended.
    live: bool = False
    #: Only operations that have a job on this node now.
    node: str = ""
    #: `started`: the newest first. `oldest`: the oldest first. `unused_cpu` or `unused_memory`: first the operation that left most of this
    #: resource unused; operations without a measured run are left out.
    order: OperationOrder = OperationOrder.STARTED
    #: Largest number of operations on the page.
    limit: Limit = 100
    #: `next` of the page before; empty for the first page.
    cursor: str = ""


class OperationPage(msgspec.Struct, frozen=True):
    """A page of operations."""

    operations: list[OperationView]
    #: `cursor` of the next page; null on the last page.
    next: str | None


class ListedJobs(msgspec.Struct, frozen=True):
    """Which jobs to list."""

    operation: str
    #: Only jobs whose newest ended attempt has one of these results; empty: all jobs.
    results: list[JobResult] = []
    limit: Limit = 100
    #: `next` of the page before; 0 for the first page.
    cursor: Annotated[int, msgspec.Meta(ge=0)] = 0


class JobsPage(msgspec.Struct, frozen=True):
    """A page of jobs, in the order of their indexes."""

    jobs: list[JobRow]
    #: `cursor` of the next page; null on the last page.
    next: int | None


class Explained(msgspec.Struct, frozen=True):
    """Why an operation runs or waits."""

    #: The counts and limits at every level of pools.
    limits: OperationExplanation
    #: For each tree, what keeps the operation's jobs from starting there. Trees whose allocator does not answer or does not know the
    #: operation yet are left out.
    waiting: dict[TreeName, WaitingExplained]


class HistoryRequest(msgspec.Struct, frozen=True):
    """Which events of an operation to list."""

    operation: str
    #: Only ended runs of jobs with these indexes; empty: all events.
    jobs: list[int] = []
    #: Only events that were recorded after this point: the `after` of an event `read_to`. 0: all events.
    after: Counter = 0


class Streams(enum.StrEnum):
    """Output streams of jobs to read."""

    STDOUT = "stdout"
    STDERR = "stderr"
    BOTH = "both"


class LogRequest(msgspec.Struct, frozen=True):
    """Which output to read."""

    operation: str
    #: Index of the job; null: all jobs, of which there may be at most 1,000.
    job: int | None = None
    stream: Streams = Streams.STDOUT
    #: True: send new lines until the operation is over. False: end after the lines that are there now.
    follow: bool = False
    #: Number of the attempt; null: the newest attempt that ended, and the running attempt.
    attempt: int | None = None
    #: Number of bytes to read at the end of each output; null: everything that the nodes have.
    tail_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None


class UpdateRequest(msgspec.Struct, frozen=True):
    """Changes of a live operation. Fields that are not given stay as they are."""

    operation: str
    weight: float | None = None
    #: New pool, by its name or its path.
    pool: str | None = None
    #: Time limit of the operation, such as `2h`; `none` removes the time limit.
    operation_time_limit: str | None = None
    #: Tree to which the changes of weight and pool are limited; empty: all trees of the operation.
    tree: str = ""


class SuspendRequest(msgspec.Struct, frozen=True):
    """A suspension."""

    operation: str
    #: True: end running jobs, too. They run again when the operation is resumed.
    abort_running_jobs: bool = False


class AbortRequest(msgspec.Struct, frozen=True):
    """An abort."""

    operation: str
    #: Reason, for the record.
    reason: str = ""


class EventRequest(msgspec.Struct, frozen=True):
    """Which events to follow."""

    #: Only events of this pool's operations, and events about the starvation of the pool.
    pool: str = ""
    #: Only events of this operation.
    operation: str = ""
    #: Id of the last event that the reader got, as in the header `Last-Event-ID`.
    last_event_id: str = ""


async def list_operations(context: Context, request: ListedOperations) -> OperationPage:
    """List operations, the newest first unless `order` says otherwise."""
    client = context.client
    after_started_at_ms, after = read_cursor(request.cursor)
    pool = await client.pools.at(request.pool) if request.pool else ""
    views = await client.list(
        pool=pool,
        state=request.state,
        user=request.user,
        live=request.live,
        node=request.node,
        order=request.order,
        limit=request.limit + 1,
        after=after,
        after_started_at_ms=after_started_at_ms,
    )
    page = views[: request.limit]
    last = page[-1] if len(views) > request.limit else None
    return OperationPage(page, cursor_of(last.started_at_ms, last.operation) if last is not None else None)


async def start_operation(context: Context, request: StartRequest) -> StartAnswer:
    """Start an operation. The fields are the options of `headrace run`. `operation` is the id; if it is empty, one is made.

    A start that is sent again with the same id starts nothing new: the answer has `repeated`.
    """
    with named_keywords():
        started = await context.client.start(await _spec(context, request), operation=request.operation)
    assert started.answer is not None
    return started.answer


async def plan_start(context: Context, request: StartRequest) -> StartPlanned:
    """Say what a start would do, and record nothing."""
    with named_keywords():
        return await context.client.starts.plan(await _spec(context, request), operation=request.operation)


async def get_operation(context: Context, request: OneOperation) -> OperationView:
    """Return an operation."""
    return await context.client.get(request.operation)


async def list_jobs(context: Context, request: ListedJobs) -> JobsPage:
    """List the jobs of an operation: where the newest ended attempt of each job ran, and how that attempt ended."""
    found = [
        row
        async for row in context.client.jobs(
            request.operation, first=request.cursor, limit=request.limit + 1, results=request.results
        )
    ]
    page = found[: request.limit]
    return JobsPage(page, page[-1].slot.index + 1 if len(found) > request.limit else None)


async def get_places(context: Context, request: OneOperation) -> OperationPlaces:
    """Return where the jobs of an operation run, and why the other jobs wait."""
    return await context.client.places(request.operation)


async def explain_operation(context: Context, request: OneOperation) -> Explained:
    """Explain why an operation runs or waits, level by level, and what keeps its jobs from starting."""
    limits = await context.client.explain(request.operation)
    trees = [] if limits.view.state in FINAL_STATES else [each.tree for each in limits.view.placements]

    async def waiting(tree: TreeName) -> WaitingExplained | None:
        try:
            return await context.client.operation(request.operation).waiting(tree)
        except (Unanswered, Refused):
            return None

    found = await at_once(waiting, trees)
    return Explained(limits, {tree: told for tree, told in found.items() if told is not None})


async def get_history(context: Context, request: HistoryRequest) -> AsyncGenerator[Event, None]:
    """Send the events of an operation that are still in the log, the oldest first, then `end`.

    After some events, and at the end, an event `read_to` has the value of `after` with which a later request gets only what follows.
    """
    await context.client.get(request.operation)

    async def events() -> AsyncGenerator[Event, None]:
        async for page in context.client.happenings.history(request.operation, request.jobs, after=request.after):
            if page.begins_late:
                yield Event("begins_late", {})
            for happening in page.happenings:
                fields = plain_happening(happening)
                yield Event(str(fields["happened"]), fields)
            yield Event("read_to", {"after": page.read_to})

    return events()


async def read_logs(context: Context, request: LogRequest) -> AsyncGenerator[Event, None]:
    """Send the lines that jobs wrote as events `line`, then `end`. With `follow`, lines arrive as the jobs write them."""
    job_count = (await context.client.get(request.operation)).spec.job_count
    if request.job is None and job_count > _MOST_JOBS_OF_LOG:
        many = f"operation {request.operation} has {job_count} jobs, and one stream has the output of at most {_MOST_JOBS_OF_LOG} jobs"
        raise BadInput.because("job", f"{many}. Name the index of a job")
    wishes: LogWishes = {
        "stderr": request.stream is Streams.STDERR,
        "both": request.stream is Streams.BOTH,
        "follow": request.follow,
    }
    if request.attempt is not None:
        wishes["attempt"] = request.attempt
    if request.tail_bytes is not None:
        wishes["tail_bytes"] = request.tail_bytes

    async def lines() -> AsyncGenerator[Event, None]:
        async for line in context.client.logs(request.operation, request.job, **wishes):
            yield Event("line", {name: getattr(line, name) for name in line.__struct_fields__ if name != "raw"})

    return lines()


async def update_operation(context: Context, request: UpdateRequest) -> OperationView:
    """Change weight, pool or time limit of a live operation. Either all of the changes are made or none."""
    client = context.client
    pool = None if request.pool is None else await client.pools.at(request.pool)
    return await client.update(
        request.operation,
        weight=request.weight,
        pool=pool,
        operation_time_limit=request.operation_time_limit,
        tree=request.tree,
    )


async def suspend_operation(context: Context, request: SuspendRequest) -> OperationView:
    """Start no more jobs of an operation until it is resumed."""
    return await context.client.suspend(request.operation, abort_running_jobs=request.abort_running_jobs)


async def resume_operation(context: Context, request: OneOperation) -> OperationView:
    """Resume a suspended operation."""
    return await context.client.resume(request.operation)


async def complete_operation(context: Context, request: OneOperation) -> OperationView:
    """End a running operation as completed."""
    return await context.client.complete(request.operation)


async def abort_operation(context: Context, request: AbortRequest) -> OperationView:
    """End an operation: no new jobs start, running jobs are interrupted. Aborting twice is no error."""
    return await context.client.abort(request.operation, request.reason)


async def follow_events(context: Context, request: EventRequest) -> AsyncGenerator[Event, None]:
    """Send events of the tree as they happen: starts, ends, preemptions, starvation.

    After the event `following` no event is left out. A reader that comes back with `Last-Event-ID` gets the events that it missed, as far
    as they are kept. An event `missed` stands where events are missing.
    """
    client = context.client
    pool = await client.pools.at(request.pool) if request.pool else ""
    members: list[OperationId] = []
    if pool:
        members = [view.operation for view in await client.list(pool=pool, live=True, limit=_MOST_MEMBERS)]
    wanted = HappeningFilter(pool=pool, operation=request.operation, members=members)
    return context.events.read(wanted, request.last_event_id)


async def _spec(context: Context, request: StartRequest) -> OperationSpec:
    """Return the spec of a start. A job starts in its scratch folder unless the request names a folder. Raises what `Pools.at` raises."""
    options: dict[str, Any] = {"working_directory": "", **options_of(request)}
    refuse_relative_paths(options)
    tasks: list[TaskRequest] = options.get("tasks") or []
    # The fields of a task are the arguments of the function `task`.
    options["tasks"] = [task(**msgspec.structs.asdict(each)) for each in tasks]
    spec = operation_spec(request.argv, sends_files=True, is_remote=True, **options)
    return await context.client.pools.named_in(msgspec.structs.replace(spec, tree=context.client.place.tree))


def refuse_relative_paths(options: Mapping[str, Any]) -> None:
    """Refuse paths that would be completed by the folder of this service, which the caller does not know. Raises `BadInput`."""
    folder, image = str(options["working_directory"] or ""), str(options.get("image") or "")
    if folder and not folder.startswith("/"):
        raise BadInput("working_directory", folder, "the absolute path of a folder on the nodes")
    if is_image_file(image) and not image.startswith("/"):
        raise BadInput("image", image, "the absolute path of an image file on the nodes, or the name of an image")


ENDPOINTS: Final = (
    Endpoint("GET", "/operations", list_operations),
    Endpoint("POST", "/operations", start_operation, status=201),
    Endpoint("POST", "/operations/plan", plan_start),
    Endpoint("GET", "/operations/{operation}", get_operation),
    Endpoint("PATCH", "/operations/{operation}", update_operation),
    Endpoint("GET", "/operations/{operation}/jobs", list_jobs),
    Endpoint("GET", "/operations/{operation}/places", get_places),
    Endpoint("GET", "/operations/{operation}/explanation", explain_operation),
    Endpoint("GET", "/operations/{operation}/history", get_history),
    Endpoint("GET", "/operations/{operation}/logs", read_logs),
    Endpoint("POST", "/operations/{operation}/suspend", suspend_operation),
    Endpoint("POST", "/operations/{operation}/resume", resume_operation),
    Endpoint("POST", "/operations/{operation}/complete", complete_operation),
    Endpoint("POST", "/operations/{operation}/abort", abort_operation),
    Endpoint("GET", "/events", follow_events),
)
