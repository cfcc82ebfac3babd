"""Starts of operations. An operation runs in each of its trees in which it has a slot; without any slot it waits in all its trees."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace.errors import BadInput, shortened
from headrace.ids import PoolName, TreeName, operation_id, pool_name, tree_name
from headrace.images import parse_image
from headrace.job_indexes import parse_indexes
from headrace.job_lines import check_lines
from headrace.job_tasks import check_tasks
from headrace.pools.node_filter import parse_formula
from headrace.resources import exact_amount
from headrace.retry_rules import check_memory_on_oom, parse_failures
from headrace.wire.log import FIRST_BLOCK, EphemeralPoolSet, OperationStarted
from headrace.wire.operation_spec import LONGEST_INTERRUPTION_MS, USUAL_LARGEST_LOG_CAP, OperationSpec
from headrace.wire.operations import OperationState, StartAnswer, StartOperation
from headrace.wire.placements import UPSTREAM, EphemeralPool, TreePlacement, WaitingFor
from headrace.wire.refusals import BadRequest, Exists, Refusal
from headrace.wire.start_plans import PlannedPlace, StartPlanned
from headrace.wire.trace import read_trace
from headrace_admission.decisions.limits import blocking_pool
from headrace_admission.decisions.start_plan import StartPlan, plan_start
from headrace_admission.decisions.target_pool import Target
from headrace_admission.decisions.transaction import Transaction
from headrace_admission.decisions.upstream import judge_held_back, refused_upstream, standing
from headrace_admission.log.byte_budget import LARGEST_SPEC_BYTES, size_bytes
from headrace_admission.queries import Queues
from headrace_admission.state.operation import Operation
from headrace_admission.state.state import State
from headrace_admission.state.tree_book import TreeBook

#: Fields of a spec that never change while the operation lives, with their names in messages.
_WHAT_RUNS: Final = {
    "argv": "command",
    "job_count": "number of jobs",
    "resources": "size of jobs",
    "environment": "environment",
    "working_directory": "folder",
    "files": "files",
    "indexes": "indexes",
    "lines": "lines",
    "output": "output file",
    "error": "error file",
    "stdin": "input file",
    "terminal": "terminal",
    "image": "image",
    "tasks": "tasks",
    "after": "operations to wait for",
    "after_each": "operation whose jobs its jobs follow",
}


def start(transaction: Transaction, request: StartOperation, user: str) -> StartAnswer | Refusal:
    """Start an operation. If this user has started the same operation with this id before, return the answer to the earlier start again."""
    state = transaction.state
    repeated = _repeated(state, request, user)
    if repeated is not None:
        return repeated
    plan = unusable_request(request) or refused_upstream(state, request, user) or plan_start(state, request.spec, user)
    if not isinstance(plan, StartPlan):
        return plan
    operation = _start(transaction, request, user, plan)
    return _answer(state, operation, waiting=Queues(state).waiting(operation), erased_trees=plan.erased)


def plan(state: State, request: StartOperation, user: str) -> StartPlanned | Refusal:
    """Return a dry run of `start`: it checks everything that `start` checks, and reports the pool in each tree."""
    repeated = _repeated(state, request, user)
    if isinstance(repeated, Refusal):
        return repeated
    if repeated is not None:
        return StartPlanned([], repeated=True)
    decided = (
        unusable_request(request) or refused_upstream(state, request, user) or plan_start(state, request.spec, user)
    )
    if not isinstance(decided, StartPlan):
        return decided
    vanilla, upstream = request.spec.is_vanilla, standing(state, request)
    places = [
        _place(tree, state.books[tree], target, vanilla, queues=not upstream.holds_back)
        for tree, target in decided.targets.items()
    ]
    first = next((each for each in places if each.waiting is None), places[0])
    book = state.books[first.tree]
    return StartPlanned(
        places,
        decided.erased,
        _similar(book, first.pool, first.made[-1] if first.made else _ephemeral(book, first.pool)),
        warnings=_warnings(book, first.pool, request.spec),
        awaits=upstream.awaits,
        upstream_failure=upstream.failure,
        awaiting_jobs=0 if upstream.failure else request.spec.job_count - upstream.free,
        time_limit_ms=decided.limits.of_jobs_ms,
        operation_time_limit_ms=decided.limits.of_operation_ms,
    )


def _place(tree: TreeName, book: TreeBook, target: Target, vanilla: bool, *, queues: bool) -> PlannedPlace:
    waiting = _waiting(tree, book, target, vanilla) if queues else None
    return PlannedPlace(tree, target.pool, list(target.made), target.rule, waiting)


def _waiting(tree: TreeName, book: TreeBook, target: Target, vanilla: bool) -> WaitingFor | None:
    for made in reversed(target.made):
        own, usual = made.max_running_operation_count, book.rules.max_running_operation_count_per_pool
        if (usual if own is None else own) == 0:
            return WaitingFor(tree, made.name, limit=0, running=0, place=1, waiting=1)
    blocked_by = blocking_pool(book, target.nearest_existing, vanilla=vanilla and not target.made)
    if blocked_by is None:
        return None
    limit, place = book.max_running_operation_count(blocked_by), len(book.queues.get(blocked_by, {})) + 1
    return WaitingFor(tree, blocked_by, limit, book.counts(blocked_by).running, place, waiting=place)


def _repeated(state: State, request: StartOperation, user: str) -> StartAnswer | Exists | None:
    """Return the answer to a request whose id is known already, or None if the id is new."""
    known = state.operations.get(request.operation)
    if known is None:
        return None
    if known.user != user:
        return Exists(what="operation", name=request.operation, where="of another user")
    if other := _differences(known, request.spec):
        return Exists(what="operation", name=request.operation, where=f"with another {' and '.join(other)}")
    return _answer(state, known, repeated=True)


def _differences(known: Operation, spec: OperationSpec) -> list[str]:
    """Return the names of the fields in which a repeated request differs from the start, without the values, which may be confidential."""
    chosen = known.placements[known.spec.tree].rule if known.spec.tree in known.placements else known.spec.pool
    differ = [words for name, words in _WHAT_RUNS.items() if getattr(known.spec, name) != getattr(spec, name)]
    if spec.pool and not chosen and known.spec.pool != spec.pool:
        differ.append(f"pool ({known.spec.pool})")
    return differ


def unusable_request(request: StartOperation) -> BadRequest | None:
    """Return the refusal of a request that no tree could accept because of its id, resources, options or size; else None."""
    spec = request.spec
    try:
        operation_id(request.operation)
        for tree in (*spec.pool_trees, *spec.tentative_pool_trees, *spec.scheduling_options_per_pool_tree):
            tree_name(tree)
        for options in spec.scheduling_options_per_pool_tree.values():
            if options.pool:
                pool_name(options.pool)
        check_tasks(spec)
        check_memory_on_oom(spec)
    except BadInput as error:
        return BadRequest.of(error)
    if spec.max_unpreemptible_allocation_count:
        value, expected = str(spec.max_unpreemptible_allocation_count), "0, or no value"
        return BadRequest("spec.max_unpreemptible_allocation_count", value, expected)
    # The types of these fields allow longer times, because the log may contain an operation that an older version started with a longer
    # time.
    for name in ("allocation_preemption_timeout_ms", "allocation_graceful_preemption_timeout_ms"):
        if (getattr(spec, name) or 0) > LONGEST_INTERRUPTION_MS:
            expected = f"at most {LONGEST_INTERRUPTION_MS}, an hour in milliseconds"
            return BadRequest(f"spec.{name}", str(getattr(spec, name)), expected)
    try:
        parse_formula(spec.scheduling_tag_filter)
    except BadInput as error:
        return BadRequest.of(error.at("spec.scheduling_tag_filter"))
    wrong = _unusable_jobs(spec) or _unusable_retries(spec)
    if wrong is not None:
        return wrong
    if spec.trace and read_trace(spec.trace) is None:
        return BadRequest(
            "spec.trace", spec.trace, "a W3C Trace Context traceparent whose flags say that the trace is recorded"
        )
    size = size_bytes(spec)
    if size > LARGEST_SPEC_BYTES:
        parts = "command, environment, lines and indexes"
        return BadRequest.because(
            "spec", f"{parts} have {size} bytes together; at most {LARGEST_SPEC_BYTES} are allowed"
        )
    return None


def _unusable_jobs(spec: OperationSpec) -> BadRequest | None:
    """Return the refusal of a spec with unusable jobs, or None.

    For example, the number of indexes differs from the number of jobs, an index has no line, or the image is invalid.
    """
    for name in ("output", "error", "stdin") if spec.terminal else ():
        if getattr(spec, name):
            return BadRequest(
                "spec." + name, shortened(getattr(spec, name)), "no file, because the job uses the terminal"
            )
    if spec.terminal and spec.job_count > 1:
        return BadRequest.because("spec.job_count", f"an operation with a terminal has one job, not {spec.job_count}")
    if spec.terminal and spec.image:
        return BadRequest.because(
            "spec.image",
            "a job with a terminal runs without a container. Start a job in the image by "
            "`headrace run`, and a shell beside the job by `headrace op exec`",
        )
    highest = spec.job_count - 1
    if spec.indexes:
        try:
            indexes = parse_indexes(spec.indexes)
        except BadInput as error:
            return BadRequest.of(error.at("spec.indexes"))
        if len(indexes) != spec.job_count:
            return BadRequest.because(
                "spec.indexes",
                f"there are {len(indexes)} indexes for {spec.job_count} jobs. Name one index for each job",
            )
        highest = indexes.highest()
    if spec.lines and len(spec.lines) <= highest:
        return BadRequest.because(
            "spec.lines", f"there are {len(spec.lines)} lines, but indexes up to {highest}. Each index needs a line"
        )
    try:
        check_lines(spec.argv, spec.lines)
    except BadInput as error:
        return BadRequest.of(error.at("spec.lines"))
    if "\0" in "".join((*spec.lines, spec.output, spec.error, spec.stdin)):
        return BadRequest.because("spec", "a line or a file name contains a NUL character")
    try:
        if spec.image:
            parse_image(spec.image, place="spec.image")
    except BadInput as error:
        return BadRequest.of(error)
    return None


def _unusable_retries(spec: OperationSpec) -> BadRequest | None:
    """Return the refusal of a spec if `retry_on` or `no_retry_on` cannot be read, or if both are given; else None."""
    if spec.retry_on and spec.no_retry_on:
        return BadRequest.because(
            "spec.no_retry_on", "`retry_on` and `no_retry_on` cannot be combined. Leave out one of them"
        )
    for place, text in (("spec.retry_on", spec.retry_on), ("spec.no_retry_on", spec.no_retry_on)):
        try:
            if text:
                parse_failures(text)
        except BadInput as error:
            return BadRequest.of(error.at(place))
    return None


def _start(transaction: Transaction, request: StartOperation, user: str, plan: StartPlan) -> Operation:
    spec, state = request.spec, transaction.state
    upstream = standing(state, request)
    placements = []
    for tree, target in plan.targets.items():
        for made in target.made:
            transaction.record(EphemeralPoolSet(tree, made))
        book = state.books[tree]
        blocked_by = blocking_pool(book, target.pool, vanilla=spec.is_vanilla)
        if upstream.holds_back:
            blocked_by = UPSTREAM
        placements.append(TreePlacement(tree, target.pool, book.next_ticket(), blocked_by, rule=target.rule))
    runs = next((each for each in placements if each.blocked_by is None), None)
    where = runs or placements[0]
    # If the operation has several trees, the allocator of each tree leases its part of the jobs later.
    block = min(FIRST_BLOCK, spec.job_count) if len(placements) == 1 and spec.after_each is None else 0
    transaction.record(
        OperationStarted(
            operation=request.operation,
            user=user,
            spec=msgspec.structs.replace(
                spec,
                tree=where.tree,
                pool=where.pool,
                time_limit_ms=plan.limits.of_jobs_ms,
                operation_time_limit_ms=plan.limits.of_operation_ms,
            ),
            state=OperationState.RUNNING if runs else OperationState.PENDING,
            ephemeral_pool=state.books[where.tree].is_ephemeral(where.pool),
            block=block,
            block_term=state.allocator_terms.get(where.tree, 0),
            at_ms=transaction.now_ms,
            placements=placements,
            awaits=upstream.awaits,
            upstream_failure=upstream.failure,
            awaits_jobs=upstream.awaits_jobs,
            free=upstream.free if spec.after_each is not None else 0,
        )
    )
    judge_held_back(transaction)
    return state.operations[request.operation]


def _answer(state: State, operation: Operation, **more: Any) -> StartAnswer:
    pool, book = operation.spec.pool, state.books[operation.spec.tree]
    made = _ephemeral(book, pool)
    return StartAnswer(
        operation=operation.id,
        state=operation.state,
        pool=pool,
        ephemeral_pool=operation.ephemeral_pool,
        near=_similar(book, pool, made),
        warnings=_warnings(book, pool, operation.spec),
        parent=made.parent if made is not None else PoolName(""),
        rule=operation.placements[operation.spec.tree].rule,
        awaits=operation.awaits,
        upstream_failure=operation.upstream_failure,
        awaiting_jobs=operation.awaiting_jobs,
        **more,
    )


def _ephemeral(book: TreeBook, pool: PoolName) -> EphemeralPool | None:
    return book.ephemeral.by_name.get(pool) if book.is_ephemeral(pool) else None


def _similar(book: TreeBook, pool: PoolName, made: EphemeralPool | None) -> list[str]:
    """Return the configured pools with similar names, for an operation in an ephemeral pool.

    Empty for a pool of a hub, whose name is not a typing error.
    """
    return [*book.similar_pools(pool)] if made is not None and not made.of_hub else []


def _warnings(book: TreeBook, pool: PoolName, spec: OperationSpec) -> list[str]:
    """Return warnings about a start that is accepted.

    They say that nodes may not keep as much output as the operation asks for, or that the operation does not suit a pool for lightweight
    operations.
    """
    return [*_log_cap_warnings(spec), *_lightweight_warnings(book, pool, spec)]


def _log_cap_warnings(spec: OperationSpec) -> list[str]:
    if spec.log_cap_bytes <= USUAL_LARGEST_LOG_CAP:
        return []
    usual = exact_amount("memory", USUAL_LARGEST_LOG_CAP)
    return [
        f"log_cap_bytes: a node keeps at most {usual} of each output stream, unless its setting largest_log_cap_bytes allows more; "
        "a file of --output has no cap"
    ]


def _lightweight_warnings(book: TreeBook, pool: PoolName, spec: OperationSpec) -> list[str]:
    if not book.rules_of(pool).for_lightweight_operations:
        return []
    meant = f"pool {pool} is for lightweight operations"
    if not spec.is_vanilla:
        return [f"{meant}; an operation of type {spec.type} is not lightweight and counts like any other operation"]
    if spec.job_count > 1:
        return [f"{meant} with one small job; this operation has {spec.job_count} jobs"]
    return []
