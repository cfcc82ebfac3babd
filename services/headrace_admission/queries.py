"""Questions about the state, from users and from services that follow it.

Large answers are sent in pages or shortened. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from itertools import dropwhile, islice
from typing import Final

import msgspec

from headrace.counted import counted
from headrace.durations import exact_duration
from headrace.efficiency import unused_of
from headrace.errors import shortened
from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.suggestions import near
from headrace.wire import operations as wire
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, runs_within
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace.wire.ledger import LiveOperation, WholeOperations, WholeOperationsRequest
from headrace.wire.lost_work import GetLostWork, LostWorkTold
from headrace.wire.operation_spec import OperationSpec, UpstreamEnd
from headrace.wire.operations import OperationOrder, OperationState, OperationView
from headrace.wire.placements import PoolHolder, PoolLevel, TreePlacement, WaitingFor
from headrace.wire.refusals import BadRequest, NotFound
from headrace_admission.log.byte_budget import PAGE_OF_OPERATIONS_BYTES, PAGE_OF_WHOLE_BYTES, size_bytes
from headrace_admission.state.ledger import Ledger
from headrace_admission.state.operation import Operation
from headrace_admission.state.operation_states import is_ending, is_final
from headrace_admission.state.spec_size import without_command
from headrace_admission.state.state import State
from headrace_admission.state.tree_book import TreeBook

#: Largest number of attempts that are sent with their operation; each takes at most 11 bytes.
_ATTEMPTS_WITH_OPERATION: Final = 4_096
#: Largest number of attempts on a page that contains only attempts.
_ATTEMPTS_OF_PAGE: Final = 32_768
#: Upper bound of listed holders of one pool's slots.
_MOST_HOLDERS: Final = 20
#: Upper bound of the awaited operations that the explanation of an operation names.
_MOST_AWAITED: Final = 20
#: Bytes of an answer that are reserved for its fixed parts. Its other parts are shortened to the bytes that are left.
_FRAME_BYTES: Final = 1024
#: Similar ids are ids with the same first characters. These are the numbers of first characters that are compared, the largest first.
#: Ids begin with the time of the start, so two operations with the same first characters started at about the same time.
_BEGINNINGS: Final = (16, 10, 6)
#: Number of the newest operations among which similar names are looked for.
_MOST_COMPARED: Final = 2_000
#: Upper bound of the similar names in a refusal.
_MOST_SIMILAR: Final = 3
#: A view names the nodes that could not start a live operation if there are at least this many.
_NODES_TO_TELL: Final = 3
#: Upper bound of the characters of the reason of a failed operation, and of the text about nodes.
_MOST_CHARACTERS: Final = 4000
#: Name that list requests may use for the state `pending`.
_WAITING: Final = "waiting"


class Queues:
    """The positions of operations in the queues at one time. Each queue is counted once, when a position in it is first needed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._places: dict[tuple[TreeName, PoolName], dict[OperationId, int]] = {}

    def waiting(self, operation: Operation) -> list[WaitingFor]:
        """Return the limits that hold an operation back, by tree. An operation that is ending waits for nothing."""
        if operation.state not in (OperationState.PENDING, OperationState.RUNNING):
            return []
        found = []
        for placement in operation.placements.values():
            if placement.blocked_by:
                book, pool = self._state.books[placement.tree], placement.blocked_by
                place, waiting = self._place(placement.tree, pool, operation.id)
                found.append(
                    WaitingFor(
                        tree=placement.tree,
                        blocked_by=pool,
                        limit=book.max_running_operation_count(pool),
                        running=book.counts(pool).running,
                        place=place,
                        waiting=waiting,
                    )
                )
        return found

    def _place(self, tree: TreeName, pool: PoolName, operation: OperationId) -> tuple[int, int]:
        """Return the operation's position in a queue, and the length of the queue."""
        queue = self._state.books[tree].queues[pool]
        if next(reversed(queue)) == operation:
            # The last position, which a newly started operation has, is known without counting.
            return len(queue), len(queue)
        places = self._places.get((tree, pool))
        if places is None:
            places = self._places[tree, pool] = {name: place for place, name in enumerate(queue, 1)}
        return places[operation], len(queue)


def not_found(state: State, name: str) -> NotFound:
    """Return the refusal for an unknown operation. It names recent operations whose ids begin in the same way, if there are any."""
    newest = list(islice(reversed(state.operations), _MOST_COMPARED)) if name else []
    for letters in sorted({len(name), *(least for least in _BEGINNINGS if least < len(name))}, reverse=True):
        similar: list[str] = list(
            islice((other for other in newest if other.startswith(name[:letters])), _MOST_SIMILAR)
        )
        if similar:
            return NotFound("operation", name, near=similar[::-1])
    return NotFound("operation", name)


def get_operation(state: State, request: wire.GetOperation) -> OperationView | NotFound:
    """Return one operation as users see it."""
    operation = state.operations.get(request.operation)
    return view(state, operation) if operation else not_found(state, request.operation)


def list_operations(state: State, request: wire.ListOperations) -> wire.OperationList | BadRequest:
    """Return the operations that match, in the order asked for, after the operation that `request.after` names.

    Refuse the request if that operation was forgotten and the request does not say where the list goes on.
    """
    wanted = OperationState.PENDING.value if request.state == _WAITING else request.state
    if wanted and wanted not in list(OperationState):
        return BadRequest("state", request.state, "one of " + ", ".join([*OperationState, _WAITING]))
    chosen: list[OperationView] = []
    page_bytes = 0
    queues = Queues(state)
    ordered = _ordered(state, request)
    operations = _after(ordered, request) if request.after else ordered
    if isinstance(operations, BadRequest):
        return operations
    for operation in operations:
        if _matches(operation, request, wanted):
            shown = view_of(operation, queues.waiting(operation), short=True)
            page_bytes += size_bytes(shown)
            if len(chosen) == request.limit or (chosen and page_bytes > PAGE_OF_OPERATIONS_BYTES):
                return wire.OperationList(chosen, more=True)
            chosen.append(shown)
    return wire.OperationList(chosen)


def _ordered(state: State, request: wire.ListOperations) -> Iterable[Operation]:
    """Return the operations from which a list is made, in the order that the request names."""
    oldest_first = request.order is OperationOrder.OLDEST
    started = state.operations.values()
    operations: Iterable[Operation] = started if oldest_first else reversed(started)
    if request.operations:
        operations = [each for name in request.operations if (each := state.operations.get(name)) is not None]
        operations.sort(key=lambda each: each.started_at_ms, reverse=not oldest_first)
    if request.order.is_by_start:
        return operations
    at = 0 if request.order is OperationOrder.UNUSED_CPU else 1
    measured = (each for each in operations if each.ledger.used)
    return sorted(
        measured, key=lambda each: unused_of(each.spec, each.ledger.used, each.ledger.task_ends)[at], reverse=True
    )


def _after(operations: Iterable[Operation], request: wire.ListOperations) -> Iterable[Operation] | BadRequest:
    """Return the operations that follow `request.after` in the list, or in its place the time of its start."""
    ordered, since_ms = list(operations), request.after_started_at_ms
    for place, operation in enumerate(ordered, 1):
        if operation.id == request.after:
            return ordered[place:]
    if not since_ms or not request.order.is_by_start:
        return BadRequest("after", request.after, "an operation that the list still has; ask for the first page again")
    # Operations of the same millisecond are repeated: their order relative to the forgotten operation is not known, and none may be lost.
    if request.order is OperationOrder.OLDEST:
        return dropwhile(lambda each: each.started_at_ms < since_ms, ordered)
    return dropwhile(lambda each: each.started_at_ms > since_ms, ordered)


def jobs_of(state: State, request: wire.GetJobs) -> wire.JobPage | NotFound:
    """Return a page of an operation's jobs."""
    operation = state.operations.get(request.operation)
    if operation is None:
        return not_found(state, request.operation)
    rows = operation.ledger.rows(request.first, request.limit, request.results)
    return wire.JobPage(operation=operation.id, jobs=rows, job_count=operation.spec.job_count)


def explain_operation(state: State, request: wire.ExplainOperation) -> wire.OperationExplanation | NotFound:
    """Return an operation, and in each of its trees its pool and all pools above it, from the root down."""
    operation = state.operations.get(request.operation)
    if operation is None:
        return not_found(state, request.operation)
    over = is_final(operation.state)
    told = view(state, operation)
    levels = [
        (tree, pool)
        for tree, placement in operation.placements.items()
        for pool in reversed(list(state.books[tree].upwards(placement.pool)))
        if not over
    ]
    awaited = _awaited(state, operation)
    room = LARGEST_MESSAGE_BYTES - size_bytes(told) - sum(map(size_bytes, awaited)) - _FRAME_BYTES
    page = next(runs_within((_level(state, *level) for level in levels), room), [])
    book = state.books[operation.spec.tree]
    lightweight = not over and book.is_lightweight(operation.spec.pool, operation.is_vanilla)
    trees = {} if over else {tree: state.books[tree].rules.configured for tree in operation.placements}
    pauses = [f"tree {name}: {words}" for name, tree in trees.items() if tree for words in tree.options.pauses()]
    return wire.OperationExplanation(
        *(told, page, lightweight),
        levels_left_out=len(levels) - len(page),
        pauses=pauses,
        upstream=awaited,
    )


def count_pools(state: State, request: wire.CountPools) -> wire.PoolCounts | NotFound:
    """Return the pools of a tree by name, including ephemeral pools. Each has its counts of operations and the limits of these counts."""
    tree, configured = request.tree, state.configuration.trees
    if tree not in configured:
        return NotFound("tree", tree, near=near(tree, configured))
    book = state.books[tree]
    everybody = {ROOT_POOL, *book.rules.pools, *book.ephemeral.by_name}
    if request.pool and request.pool not in everybody:
        return NotFound("pool", request.pool, near=near(request.pool, [*book.rules.pools, *book.ephemeral.by_name]))
    names = [request.pool] if request.pool else sorted(name for name in everybody if name > request.after)
    levels = (_level(state, tree, name) for name in names[: request.limit])
    page = next(runs_within(levels, PAGE_OF_OPERATIONS_BYTES), [])
    held = state.configuration.held_back.get(tree)
    return wire.PoolCounts(
        tree=tree,
        pools=page,
        more=len(names) > len(page),
        held_back=held.reason if held is not None else "",
    )


def lost_work(state: State, request: GetLostWork) -> LostWorkTold | NotFound:
    """Return the work that a pool and all pools below it lost to preemption."""
    tree, configured = request.tree, state.configuration.trees
    if tree not in configured:
        return NotFound("tree", tree, near=near(tree, configured))
    # None stands for all pools. So the answer for a whole tree also counts the work lost in removed pools.
    pools = None if request.pool == ROOT_POOL else set(state.books[tree].with_all_below(request.pool))
    lost = state.lost_work.told(tree, pools, request.since_ms, request.until_ms)
    return LostWorkTold(request.pool, tree, lost, state.lost_work.kept_since_ms)


def whole_operations(state: State, request: WholeOperationsRequest, admission_term: int) -> WholeOperations:
    """Return the next page of a tree: first come the pages of its ephemeral pools, sorted by name, and then those of its live operations,
    sorted by id.
    """
    by_name = state.books[request.tree].ephemeral.by_name if request.tree in state.books else {}
    pools = (by_name[name] for name in sorted(by_name) if name > request.after_pool)
    page_of_pools = next(runs_within(pools, PAGE_OF_OPERATIONS_BYTES), [])
    if page_of_pools:
        return WholeOperations(state.sequence, admission_term, [], more=True, ephemeral_pools=page_of_pools)
    told = state.live.get(OperationId(request.after))
    if told is not None and request.next_index:
        attempts = told.ledger.attempt_slots(request.next_index, _ATTEMPTS_OF_PAGE)
        if attempts:
            return WholeOperations(state.sequence, admission_term, [], more=True, more_attempts=attempts)
    tree = request.tree
    names = sorted(filter(request.after.__lt__, state.live))
    known = (each for each in map(state.live.__getitem__, names) if _is_known_in(tree, each))
    page = next(runs_within((live_operation(each, tree) for each in known), PAGE_OF_WHOLE_BYTES), [])
    unfinished = (at for at, each in enumerate(page, 1) if len(each.attempts) == _ATTEMPTS_WITH_OPERATION)
    last = next(unfinished, None)
    # The remaining operations may all belong to other trees; then the next page is empty.
    more = last is not None or (bool(page) and page[-1].operation != names[-1])
    return WholeOperations(state.sequence, admission_term, page[:last], more=more)


def view(state: State, operation: Operation) -> OperationView:
    """Return an operation as users see it, with its positions in the queues."""
    return view_of(operation, Queues(state).waiting(operation))


def live_operation(operation: Operation, tree: TreeName) -> LiveOperation:
    """Return an operation as the allocator and fair_share of one of its trees need it."""
    ledger, owners = operation.ledger, operation.ledger.owners
    placement = operation.placements.get(tree)
    return LiveOperation(
        operation=operation.id,
        user=operation.user,
        spec=operation.spec.in_tree(tree, placement.pool if placement is not None else operation.spec.pool),
        state=_state_in(operation, placement),
        suspended=operation.suspended,
        ephemeral_pool=operation.ephemeral_pool,
        started_at_ms=operation.started_at_ms,
        block=ledger.block,
        # An operation in several trees has several allocators with different terms, so there is no single `block_term`.
        block_term=ledger.block_term if owners is None else 0,
        done=ledger.done_bits() if owners is None else owners.bits_of_others(tree, ledger.block),
        attempts=ledger.attempt_slots(0, _ATTEMPTS_WITH_OPERATION),
        ends_running_jobs=operation.ends_running_jobs,
        free=None if owners is None else owners.free,
        changes=0 if owners is None else owners.changes,
        # The allocator waits for failed jobs only if they belong to the gang: the other tasks go on without them.
        pausing=len(ledger.pausing) if operation.spec.gang_tasks is None else _pausing_in_gang(operation),
    )


def _pausing_in_gang(operation: Operation) -> int:
    return sum(map(operation.spec.is_of_gang, operation.ledger.pausing))


def _is_known_in(tree: TreeName, operation: Operation) -> bool:
    """True if an operation runs in a tree or is being ended there, so that the tree's allocator must know it."""
    owners, is_in_tree = operation.ledger.owners, tree in operation.placements
    if owners is None:
        return is_in_tree
    if owners.count(tree):
        return True
    # An ending operation is known only in trees that hold jobs of it. If no tree holds any, the operation stays known in its trees, so that
    # one of them releases it.
    return is_in_tree and not (is_ending(operation.state) and owners.owning_trees())


def _state_in(operation: Operation, placement: TreePlacement | None) -> OperationState:
    """Return the state of an operation in one tree.

    While the operation runs in other trees, it may wait in this tree, or end here because it was removed from this tree.
    """
    if placement is None:
        return OperationState.ABORTING
    waits = operation.state is OperationState.RUNNING and placement.blocked_by is not None
    return OperationState.PENDING if waits else operation.state


def published_view(operation: Operation) -> OperationView:
    """Return a changed operation as users see it, without its command, which never changes and may be long."""
    view = view_of(operation)
    return msgspec.structs.replace(view, spec=without_command(view.spec))


def view_of(operation: Operation, waiting: Sequence[WaitingFor] = (), *, short: bool = False) -> OperationView:
    """Return an operation as users see it. `short` leaves out the fields that lists do not show."""
    counts, spec = operation.ledger.counts, operation.spec.in_tree(operation.spec.tree, operation.spec.pool)
    named = [*spec.pool_trees, *spec.tentative_pool_trees]
    is_over = is_ending(operation.state) or is_final(operation.state)
    if short:
        spec = without_command(spec)
    return OperationView(
        operation=operation.id,
        user=operation.user,
        spec=spec,
        state=operation.state,
        suspended=operation.suspended,
        ephemeral_pool=operation.ephemeral_pool,
        started_at_ms=operation.started_at_ms,
        ended_at_ms=operation.ended_at_ms,
        completed_jobs=counts[JobResult.COMPLETED],
        failed_jobs=counts[JobResult.FAILED],
        aborted_jobs=counts[JobResult.ABORTED],
        lost_jobs=counts[JobResult.LOST],
        open_jobs=spec.job_count - counts[JobResult.COMPLETED] - operation.ledger.given_up,
        reason=operation.reason or trouble_words(operation),
        last_failures=[] if short else operation.ledger.failures[-3:],
        sequence=operation.sequence,
        placements=list(operation.placements.values()),
        waiting=list(waiting),
        accounts=[] if short else operation.ledger.accounts(),
        used=dict(operation.ledger.used),
        pausing_jobs=0 if is_over else len(operation.ledger.pausing),
        next_retry_at_ms=0 if is_over else operation.ledger.next_retry_at_ms,
        erased_trees=[tree for tree in named if tree not in operation.placements],
        given_up_jobs=operation.ledger.given_up,
        awaits=operation.awaits,
        awaiting_jobs=operation.awaiting_jobs,
        timed_out_jobs=counts[JobResult.TIMED_OUT],
        ends_by_ms=operation.ends_by_ms,
        out_of_memory_runs=operation.ledger.out_of_memory_runs,
        task_ends=dict(operation.ledger.task_ends),
        suspended_for="" if is_final(operation.state) else operation.suspended_for,
    )


def _awaited(state: State, operation: Operation) -> list[wire.AwaitedOperation]:
    """Return the first operations that an operation still waits for."""
    wanted: dict[OperationId, UpstreamEnd | None] = {each.operation: each.end for each in operation.spec.after}
    found = [state.operations[name] for name in operation.awaits[:_MOST_AWAITED]]
    if operation.spec.after_each is not None and operation.awaits_jobs:
        found.append(state.operations[operation.spec.after_each])
    return [
        wire.AwaitedOperation(
            each.id,
            wanted.get(each.id),
            each.state,
            each.user,
            each.spec.pool,
            each.spec.job_count - each.ledger.counts[JobResult.COMPLETED],
        )
        for each in found
    ]


def _level(state: State, tree: TreeName, pool: PoolName) -> PoolLevel:
    """Return one level: a pool with its counts and limits. A full pool also names the holders of its slots."""
    book = state.books[tree]
    counts, queue = book.counts(pool), book.queues.get(pool, {})
    full = not book.free_slots(pool)
    return PoolLevel(
        tree=tree,
        pool=pool,
        max_running_operation_count=book.max_running_operation_count(pool),
        running_operation_count=counts.running,
        lightweight_running_operation_count=counts.lightweight,
        max_operation_count=book.max_operation_count(pool),
        operation_count=counts.total,
        full=full,
        waiting=len(queue),
        first_waiting=list(islice(queue, _MOST_HOLDERS)),
        parent=book.parent(pool),
        ephemeral=book.is_ephemeral(pool),
        holders=_holders(state, book, pool) if full else [],
        more_holders=max(0, counts.running - _MOST_HOLDERS) if full else 0,
    )


def _holders(state: State, book: TreeBook, pool: PoolName) -> list[PoolHolder]:
    """Return the first operations that hold slots of a pool, the longest running first."""
    holders = (
        (state.live[member.operation].started_at_ms, member.operation)
        for member in book.slots_below(pool)
        if not book.is_lightweight(member.pool, member.vanilla)
    )
    return [
        PoolHolder(name, book.members[name].user, book.members[name].pool, started_at_ms)
        for started_at_ms, name in nsmallest(_MOST_HOLDERS, holders)
    ]


def _matches(operation: Operation, request: wire.ListOperations, wanted: str) -> bool:
    return (
        (not request.pool or operation.spec.pool == request.pool)
        and (not wanted or operation.state.value == wanted)
        and (not request.user or operation.user == request.user)
        and (not request.live or not is_final(operation.state))
    )


def failed_runs_of_gang(operation: Operation) -> int:
    """Return the number of failed runs of the jobs that form the operation's gang; 0 if it has no gang."""
    spec, ledger = operation.spec, operation.ledger
    if spec.is_gang:
        return ledger.counts[JobResult.FAILED]
    ends = (ledger.task_ends.get(number) for number in spec.gang_tasks or ())
    return sum(each.counts.get(JobResult.FAILED, 0) for each in ends if each is not None)


def failed_for_good(ledger: Ledger) -> int:
    """Return the number of jobs that failed and are not retried, without those that timed out."""
    return ledger.given_up - ledger.counts[JobResult.TIMED_OUT]


def failure_words(operation: Operation) -> str:
    """Return the reason of an operation that fails because too many attempts of its jobs have failed, or because jobs were given up."""
    spec, ledger = operation.spec, operation.ledger
    count, timed_out, jobs = ledger.counts[JobResult.FAILED], ledger.counts[JobResult.TIMED_OUT], spec.job_count
    if count >= spec.max_failed_job_count:
        words = f"{counted(count, 'failed job')}, max_failed_job_count is {spec.max_failed_job_count}"
    elif 0 < spec.tries <= (of_gang := failed_runs_of_gang(operation)):
        words = f"the gang failed {of_gang} times, tries is {spec.tries}"
    else:
        given_up = []
        if timed_out:
            limit = f", the time limit is {exact_duration(spec.time_limit_ms)}" if spec.time_limit_ms else ""
            given_up.append(f"{timed_out} of {counted(jobs, 'job')} timed out{limit}")
        if failed := failed_for_good(ledger):
            given_up.append(f"{failed} of {counted(jobs, 'job')} failed, {_retry_rule(spec)}")
        words = "; ".join(given_up)
    if operation.ledger.failures:
        words += (
            f"; {_never_ran_words(operation, 1) or 'the last failure: ' + end_words(operation.ledger.failures[-1])}"
        )
    return words[:_MOST_CHARACTERS]


def _retry_rule(spec: OperationSpec) -> str:
    """Return the fields of a spec that decide which failed jobs are given up, with their values."""
    names = ("tries", "retry_on", "no_retry_on", "memory_on_oom")
    rules = {name: getattr(spec, name) for name in names}
    return ", ".join(f"{name} is {shortened(str(value))}" for name, value in rules.items() if value)


def trouble_words(operation: Operation) -> str:
    """Return a text that names the nodes that could not start the command of a live operation.

    The text is empty while these are fewer than `_NODES_TO_TELL` nodes, or if any attempt was started and has ended.
    """
    return "" if is_final(operation.state) else _never_ran_words(operation, _NODES_TO_TELL)[:_MOST_CHARACTERS]


def _never_ran_words(operation: Operation, least_nodes: int) -> str:
    nodes = operation.ledger.nodes_without_start()
    if len(nodes) < least_nodes:
        return ""
    where = f"node{'' if len(nodes) == 1 else 's'} {', '.join(nodes)}"
    last = end_words(operation.ledger.failures[-1])
    # The ledger does not know whether attempts that have not ended were started, so the text speaks only of attempts that ended.
    return f"no attempt that ended had started: {where} could not start the command; the last failure: {last}"


def end_words(end: JobEnd) -> str:
    """Return which attempt ended, where and how."""
    how = end.reason or (f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}")
    where = f" on node {end.node}" if end.node else ""
    return f"job {end.index} attempt {end.attempt}{where}: {how}"
