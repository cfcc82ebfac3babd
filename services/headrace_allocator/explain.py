"""What people ask of the allocator: where jobs run, why others wait, what the nodes do. Data first, words from data."""

from __future__ import annotations

from headrace.resources import RESOURCE_NAMES, ZERO, Resources, format_amount
from headrace.wire.nodes import JobPlace, NodeList, NodeView, OperationPlaces
from headrace.wire.snapshots import Recovering
from headrace_allocator.engine import AllocatorEngine
from headrace_allocator.facts.facts import Books, Node, NodeStatus, OperationBook
from headrace_allocator.facts.limits import limit_in_words

__all__ = ["list_nodes", "operation_places", "waiting_reasons"]

_MOST_PLACES = 1_000


def operation_places(engine: AllocatorEngine, operation: OperationBook, now_s: float) -> OperationPlaces:
    """Where an operation's jobs run (at most 1,000 are told), and every reason why pending ones wait."""
    running: list[JobPlace] = []
    for allocation in operation.allocations.values():
        if allocation.job is not None and len(running) < _MOST_PLACES:
            age_ms = int((now_s - engine.books.nodes[allocation.node].heard_s) * 1000)
            job = allocation.job
            running.append(
                JobPlace(job.index, job.attempt, allocation.node, allocation.id, job.ran_ms + max(0, age_ms))
            )
    return OperationPlaces(
        operation=operation.id,
        running=sorted(running, key=lambda place: place.index),
        running_jobs=operation.running_jobs,
        pending_jobs=operation.slots.pending_count if operation.schedulable else 0,
        in_doubt_jobs=len(operation.slots.in_doubt),
        reasons=waiting_reasons(engine, operation),
    )


def waiting_reasons(engine: AllocatorEngine, operation: OperationBook) -> list[str]:
    """Every reason that holds jobs of the operation back at this moment, the heaviest first; empty when none does."""
    if not operation.schedulable:
        return [f"the operation is {'suspended' if operation.suspended else operation.state.value}"]
    if not operation.slots.pending_count and not operation.slots.in_doubt:
        return []
    reasons: list[str] = []
    progress = engine.recovery.progress()
    if not engine.recovery.done:
        reasons.append(_recovering_words(progress, operation))
    reasons += _limit_reasons(engine.books, operation)
    reasons += _room_reasons(engine.books, operation)
    if operation.drawing and not operation.slots.ready_count:
        reasons.append("more of its jobs are being recorded as given out; the log has not answered yet")
    if not operation.fits_somewhere:
        # It asks for no share either: what nobody can run is no demand.
        return reasons
    if max(operation.fair_share) == 0.0:
        reasons.append("its fair share is not known yet, or is zero; it is served after all others")
    elif (satisfaction := engine.scheduler.satisfaction(operation)) >= 1:
        reasons.append(f"it has {satisfaction:.2f} times its fair share already; those below theirs go first")
    return reasons


def list_nodes(engine: AllocatorEngine, first: int, limit: int, now_s: float) -> NodeList:
    """A page of the nodes, by name."""
    names = sorted(engine.books.nodes)
    progress = engine.recovery.progress()
    return NodeList(
        nodes=[_view(engine.books.nodes[name], now_s) for name in names[first : first + limit]],
        recovering="" if engine.recovery.done else f"{progress.heard}/{progress.enrolled}",
        more=first + limit < len(names),
    )


def _limit_reasons(books: Books, operation: OperationBook) -> list[str]:
    level = books.limits.full_level(operation)
    reasons = [] if level is None else [limit_in_words(level, operation.spec.resources)]
    if books.limits.is_full(operation):
        reasons.append("its own resource_limits leave no room for another job")
    return reasons


def _room_reasons(books: Books, operation: OperationBook) -> list[str]:
    size = operation.spec.resources
    online = [node for node in books.nodes.values() if node.status is NodeStatus.ONLINE]
    open_nodes = [node for node in online if node.accepts_jobs]
    if not open_nodes:
        states = ", ".join(f"{node.record.node} {_status(node)}" for node in list(books.nodes.values())[:5])
        return ["no node takes jobs" + (f" ({states})" if states else ": none is enrolled")]
    if not any(node.total.dominates(size) for node in open_nodes):
        return [_too_large_words(size, open_nodes)]
    if not any(node.free.dominates(size) for node in open_nodes):
        free = max((node.free for node in open_nodes), key=lambda room: (room.cpu, room.memory))
        return [
            f"no node has room for a job of {_words(size)}: {_nodes_take_jobs(len(open_nodes))}, "
            f"the emptiest has {_words(free)} free"
        ]
    return []


def _nodes_take_jobs(count: int) -> str:
    return "1 node takes jobs" if count == 1 else f"{count} nodes take jobs"


def _too_large_words(size: Resources, nodes: list[Node]) -> str:
    largest = max(nodes, key=lambda node: (node.total.cpu, node.total.memory))
    short = [
        f"{name} {format_amount(name, asked)} (the most any node has is {format_amount(name, most)})"
        for name, asked, most in zip(
            RESOURCE_NAMES,
            size.as_tuple(),
            (max(amounts) for amounts in zip(*(node.total.as_tuple() for node in nodes), strict=True)),
            strict=True,
        )
        if asked > most
    ]
    asks = ", ".join(short) if short else f"{_words(size)}, and no single node has all of it"
    return f"each job is larger than every node: it asks for {asks}; the largest node, {largest.record.node}, has {_words(largest.total)}"


def _recovering_words(progress: Recovering, operation: OperationBook) -> str:
    words = f"the allocator is recovering: {progress.heard} of {progress.enrolled} nodes have reported"
    doubt = len(operation.slots.in_doubt)
    return words + (f"; {doubt} jobs may still be running on the others" if doubt else "")


def _view(node: Node, now_s: float) -> NodeView:
    heard = node.status is not NodeStatus.UNHEARD
    return NodeView(
        node=node.record.node,
        state=_status(node),
        tags=node.record.tags,
        total=node.total,
        usage=node.used,
        allocations=len(node.allocations),
        running_jobs=sum(one.job is not None for one in node.allocations.values()),
        heartbeat_age_ms=int((now_s - node.heard_s) * 1000) if heard else None,
        isolation=node.isolation,
        trouble=node.trouble,
    )


def _status(node: Node) -> str:
    if node.status is NodeStatus.ONLINE:
        if node.outside and not node.record.drained:
            return "outside"
        return "drained" if node.record.drained else ("online" if node.state.value == "open" else node.state.value)
    return node.status.value


def _words(amount: Resources) -> str:
    figures = zip(RESOURCE_NAMES, amount.as_tuple(), ZERO.as_tuple(), strict=True)
    named = [f"{name} {format_amount(name, figure)}" for name, figure, nothing in figures if figure > nothing]
    return ", ".join(name for name in named if not name.startswith("user_slots")) or "nothing"
