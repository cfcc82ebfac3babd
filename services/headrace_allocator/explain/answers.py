"""Answers to users: where jobs run, why other jobs wait, and what the nodes do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.ids import NodeName, OperationId
from headrace.runtime.engine import Moment
from headrace.suggestions import near
from headrace.wire.codec import runs_within
from headrace.wire.explanations import ExplainWaiting, WaitingExplained
from headrace.wire.heartbeat import RunningJob
from headrace.wire.nodes import (
    JobPlace,
    ListNodes,
    ListProgress,
    NodeGpu,
    NodeJob,
    NodeList,
    NodeView,
    OperationPlaces,
    OperationProgress,
    ProgressList,
    TaskPlaces,
    WhereRequest,
)
from headrace.wire.operations import MOST_OPERATIONS
from headrace.wire.refusals import BadRequest, NotFound
from headrace.wire.start_plans import FitOperation, OperationFit
from headrace_allocator.decision.least_satisfied import LeastSatisfied
from headrace_allocator.explain.waiting import waiting_reasons
from headrace_allocator.explain.waiting_operation import explain_waiting, fit_of
from headrace_allocator.explain.words import words_of, words_of_isolation, words_of_left_out
from headrace_allocator.explain.words_of_failing import words_of_failures
from headrace_allocator.explain.words_of_reservations import words_of_reservation
from headrace_allocator.facts.allocations import Allocation
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node, NodeCondition
from headrace_allocator.facts.operations import Operation
from headrace_allocator.preemption.audit.alarms import PreemptionAlarms

Question = ListNodes | ListProgress | WhereRequest | ExplainWaiting | FitOperation
AnswerToQuestion = NodeList | ProgressList | OperationPlaces | WaitingExplained | OperationFit | NotFound | BadRequest


#: State of an online node on which jobs fail, although jobs of the same operations complete on other nodes.
_SUSPECT: Final = "suspect"
#: States of nodes as people see them.
_STATES: Final = (*NodeCondition, _SUSPECT)
#: Upper bound of the allocations in one answer.
_MOST_PLACES: Final = 1_000
#: Upper bound of the bytes of the allocations in one answer: each job may have a hundred GPU devices.
_PLACES_BYTES: Final = 384 * 1024
#: Upper bound of the bytes of a page of nodes; the text of one node's trouble may have 4,000 characters.
_PAGE_BYTES: Final = 256 * 1024


def answer_to(
    question: Question, facts: Facts, order: LeastSatisfied, alarms: PreemptionAlarms, now: Moment
) -> AnswerToQuestion:
    """Answer a question of a user."""
    if isinstance(question, ListNodes):
        if question.operations_of:
            return _one_node(facts, question.operations_of, now)
        if question.state and question.state not in _STATES:
            return BadRequest("state", question.state, f"one of {', '.join(_STATES)}")
        return list_nodes(facts, question, now)
    if isinstance(question, ListProgress):
        known = (facts.operations.get(name) for name in question.operations)
        return ProgressList([told for each in known if each is not None and (told := _progress(each)) is not None])
    if isinstance(question, FitOperation):
        return fit_of(facts, question.spec, now)
    operation = facts.operations.get(OperationId(question.operation))
    if operation is None:
        return NotFound("operation", question.operation)
    if isinstance(question, WhereRequest):
        return operation_places(facts, order, operation, now)
    return explain_waiting(facts, order, operation, alarms.of(operation.id, now), now)


def operation_places(facts: Facts, order: LeastSatisfied, operation: Operation, now: Moment) -> OperationPlaces:
    """Return where an operation's running jobs are, and every reason why its pending jobs wait.

    At most 1,000 jobs are listed, and no more than fit into a message.
    """
    running: list[JobPlace] = []
    for allocation in operation.allocations.values():
        job = allocation.job
        if job is not None and len(running) < _MOST_PLACES:
            node = facts.nodes[allocation.node]
            ran_ms = _ran_ms(node, job, now)
            running.append(
                JobPlace(
                    job.index,
                    job.attempt,
                    allocation.node,
                    allocation.id,
                    ran_ms,
                    job.account,
                    job.progress,
                    node.limits,
                    allocation.stage,
                    allocation.start,
                    [name for name, holder in node.gpus.items() if holder == allocation.id],
                )
            )
    slots = operation.slots
    # No node knows the jobs for which resources are held, so they are pending.
    holds = operation.gang.holds if operation.gang is not None else ()
    held = Counter(slots.task_of(index) for hold in holds for index in hold.slots)
    return OperationPlaces(
        operation=operation.id,
        running=next(runs_within(sorted(running, key=lambda place: place.index), _PLACES_BYTES), []),
        running_jobs=operation.running_jobs,
        pending_jobs=operation.pending_jobs + held.total(),
        in_doubt_jobs=operation.slots.in_doubt_count,
        reasons=[words_of(reason) for reason in waiting_reasons(facts, order, operation, now)],
        progress=_progress(operation),
        tasks=[
            TaskPlaces(slots.out_of(n) - held[n], slots.pending_of(n) + held[n])
            for n in range(len(operation.spec.tasks))
        ],
    )


def _progress(operation: Operation) -> OperationProgress | None:
    jobs, thousandths = operation.progress
    return OperationProgress(operation.id, jobs, thousandths) if jobs else None


def list_nodes(facts: Facts, request: ListNodes, now: Moment) -> NodeList:
    """Return a page of the nodes that match, sorted by name."""
    names = [
        name
        for name in sorted(facts.nodes)
        if name > request.after
        and name.startswith(request.name_prefix)
        and (not request.state or _state(facts, facts.nodes[name]) == request.state)
        and (not request.tag or request.tag in facts.nodes[name].record.tags)
    ]
    views = (_view(facts, facts.nodes[name], now) for name in names[request.first : request.first + request.limit])
    page = next(runs_within(views, _PAGE_BYTES), [])
    heard, enrolled = facts.recovery.progress()
    return NodeList(
        nodes=page,
        recovering="" if facts.recovery.complete else f"{heard}/{enrolled}",
        more=request.first + len(page) < len(names),
    )


def _one_node(facts: Facts, name: str, now: Moment) -> NodeList | NotFound:
    """Return one node with its jobs and with the operations that hold an allocation there, including operations that are over while
    their jobs still run.
    """
    node = facts.nodes.get(NodeName(name))
    if node is None:
        return NotFound("node", name, near=near(name, facts.nodes))
    names = {each.operation or each.orphan_of for each in node.allocations.values()}
    operations = sorted(filter(None, names), reverse=True)[:MOST_OPERATIONS]
    jobs = sorted(_jobs_on(facts, node, now), key=lambda job: -job.ran_ms)[:_MOST_PLACES]
    shown = next(runs_within(jobs, _PAGE_BYTES), [])
    return NodeList([msgspec.structs.replace(_view(facts, node, now), operations=operations, jobs=shown)])


def _jobs_on(facts: Facts, node: Node, now: Moment) -> Iterator[NodeJob]:
    """Yield the jobs that run on a node."""
    for allocation in node.allocations.values():
        job, name = allocation.job, allocation.operation or allocation.orphan_of
        if job is None or not name:
            continue
        known, ran_ms = facts.operations.get(name), _ran_ms(node, job, now)
        spec = None if known is None else known.spec
        limit_ms = None if spec is None else spec.time_limit_ms
        yield NodeJob(
            name,
            job.index,
            job.attempt,
            ran_ms,
            None if limit_ms is None else max(0, limit_ms - ran_ms),
            "" if spec is None else spec.title,
            "" if spec is None else spec.pool,
            job.account,
            job.progress,
        )


def _state(facts: Facts, node: Node) -> str:
    """Return the state of a node in the words of `NodeView`."""
    is_suspect = node.record.node in facts.failing.suspect and node.condition is NodeCondition.ONLINE
    return _SUSPECT if is_suspect else node.condition.value


def _view(facts: Facts, node: Node, now: Moment) -> NodeView:
    return NodeView(
        node=node.record.node,
        state=_state(facts, node),
        tags=node.record.tags,
        # A drained node that is empty counts with zero resources in the tree. People are shown the resources that the node has.
        total=node.reported if node.condition is NodeCondition.DRAINED else node.total,
        usage=node.used.within_wire(),
        allocations=len(node.allocations),
        running_jobs=sum(one.job is not None for one in node.allocations.values()),
        heartbeat_age_ms=None if node.incarnation is None else _age_ms(node, now),
        isolation="full" if node.record.isolated else "none",
        isolation_detail=words_of_isolation(node.record),
        limits=node.limits,
        trouble=node.trouble,
        cut=node.offered - node.reported,
        cut_tags=node.record.cut_tags,
        left_out=words_of_left_out(node),
        reserved=words_of_reservation(node, now),
        held_back=words_of_failures(facts, node),
        gpus=[_gpu(name, node.allocations.get(holder)) for name, holder in node.gpus.items()],
        drain=node.record.drain,
    )


def _gpu(name: str, holder: Allocation | None) -> NodeGpu:
    job = holder.job if holder is not None else None
    return NodeGpu(name) if holder is None or job is None else NodeGpu(name, holder.operation, job.index)


def _ran_ms(node: Node, job: RunningJob, now: Moment) -> int:
    """Return how long a job of the node has run, in milliseconds."""
    return job.ran_ms(node.boottime_ms) + max(0, _age_ms(node, now))


def _age_ms(node: Node, now: Moment) -> int:
    return int((now.steady_s - node.heard_s) * 1000)
