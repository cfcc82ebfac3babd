"""Reading operations, for people and for services that keep up; pages, so that no answer grows too large."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.wire.ledger import LiveOperation, WholeOperationsRequest
from headrace.wire.operations import (
    CountPools,
    ListOperations,
    OperationList,
    OperationState,
    OperationView,
    PoolCounts,
)
from headrace.wire.placements import PoolHolder, PoolLevel, WaitingFor
from headrace.wire.refusals import BadRequest
from headrace_admission.state.life import is_final
from headrace_admission.state.operation import Operation
from headrace_admission.state.state import AdmissionState
from headrace_admission.state.tree_book import TreeBook

__all__ = ["Queues", "counted_pools", "levels_of", "list_operations", "page_of_live"]

#: Bytes of a page of live operations.
_PAGE_BYTES: Final = 256 * 1024
#: Holders of one level that are listed.
_MOST_HOLDERS: Final = 20
#: What people call it.
_WAITING: Final = "waiting"


class Queues:
    """The places in the queues, counted once for each queue that is asked for; of one moment."""

    def __init__(self, state: AdmissionState) -> None:
        self._state = state
        self._places: dict[tuple[TreeName, PoolName], dict[OperationId, int]] = {}

    def view(self, operation: Operation, *, short: bool = False) -> OperationView:
        """For people, with what it waits for and at which place."""
        return operation.view(self.waiting(operation), short=short)

    def waiting(self, operation: Operation) -> list[WaitingFor]:
        """What holds a pending operation back, by tree; nothing for one that is not pending."""
        if operation.state is not OperationState.PENDING:
            return []
        found = []
        for placement in operation.placements.values():
            if placement.blocked_by is not None:
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
        """The place in a queue, and how many are in it."""
        queue = self._state.books[tree].queues[pool]
        if next(reversed(queue)) == operation:
            # Who came last, as everybody just did who started and waits, is not counted through.
            return len(queue), len(queue)
        return self._of(tree, pool)[operation], len(queue)

    def _of(self, tree: TreeName, pool: PoolName) -> dict[OperationId, int]:
        places = self._places.get((tree, pool))
        if places is None:
            queue = self._state.books[tree].queues[pool]
            places = self._places[tree, pool] = {name: place for place, name in enumerate(queue, 1)}
        return places


def levels_of(state: AdmissionState, operation: Operation) -> list[PoolLevel]:
    """Every pool from the root down to the operation's, in each of its trees; a full one with who holds its slots."""
    return [
        _level(state, tree, state.books[tree], pool)
        for tree, placement in operation.placements.items()
        for pool in reversed(list(state.books[tree].upwards(placement.pool)))
    ]


def counted_pools(state: AdmissionState, request: CountPools) -> PoolCounts:
    """One pool, or those behind the one named, in the order of their names, the root first."""
    book = state.books[request.tree]
    if request.pool:
        names = [request.pool]
    else:
        everybody = {ROOT_POOL, *book.rules.pools, *book.ephemeral}
        names = sorted(name for name in everybody if name > request.after)
    page = names[: request.limit]
    return PoolCounts(
        tree=request.tree,
        pools=[_level(state, request.tree, book, name) for name in page],
        more=len(names) > len(page),
        held_back=state.held_back[request.tree][1] if request.tree in state.held_back else "",
    )


def list_operations(state: AdmissionState, request: ListOperations) -> OperationList | BadRequest:
    """Operations that match, newest first, behind the one that `request` names."""
    wanted = OperationState.PENDING.value if request.state == _WAITING else request.state
    if wanted and wanted not in list(OperationState):
        return BadRequest("state", request.state, "one of " + ", ".join([*OperationState, _WAITING]))
    chosen: list[OperationView] = []
    queues = Queues(state)
    reached = not request.after
    for operation in reversed(state.operations.values()):
        if not reached:
            reached = operation.id == request.after
        elif _matches(operation, request, wanted):
            if len(chosen) == request.limit:
                return OperationList(chosen, more=True)
            chosen.append(queues.view(operation, short=True))
    return OperationList(chosen)


def page_of_live(
    live: Mapping[OperationId, Operation], request: WholeOperationsRequest
) -> tuple[list[LiveOperation], bool]:
    """Live operations of the tree behind the one named, in the order of their ids, and whether there are more."""
    page: list[LiveOperation] = []
    size = 0
    for name in sorted(name for name in live if name > request.after):
        operation = live[name]
        if operation.spec.tree != request.tree:
            continue
        one = operation.live()
        size += len(msgspec.msgpack.encode(one))
        if page and size > _PAGE_BYTES:
            return page, True
        page.append(one)
    return page, False


def _level(state: AdmissionState, tree: TreeName, book: TreeBook, pool: PoolName) -> PoolLevel:
    counts, limit = book.counts(pool), book.max_running_operation_count(pool)
    full = counts.running >= limit
    holders = _holders(state, book, pool) if full else []
    return PoolLevel(
        tree=tree,
        pool=pool,
        max_running_operation_count=limit,
        running_operation_count=counts.running,
        lightweight_running_operation_count=counts.lightweight,
        max_operation_count=book.max_operation_count(pool),
        operation_count=counts.total,
        full=full,
        waiting=len(book.queues.get(pool, ())),
        first_waiting=list(islice(book.queues.get(pool, ()), _MOST_HOLDERS)),
        parent=book.parent(pool),
        ephemeral=book.is_ephemeral(pool),
        holders=holders[:_MOST_HOLDERS],
        more_holders=max(0, len(holders) - _MOST_HOLDERS),
    )


def _holders(state: AdmissionState, book: TreeBook, pool: PoolName) -> list[PoolHolder]:
    holders = [
        PoolHolder(member.operation, member.user, member.pool, state.live[member.operation].started_at_ms)
        for member in book.slots_below(pool)
        if not book.is_lightweight(member.pool, vanilla=member.vanilla)
    ]
    return sorted(holders, key=lambda holder: (holder.started_at_ms, holder.operation))


def _matches(operation: Operation, request: ListOperations, wanted: str) -> bool:
    return (
        (not request.pool or operation.spec.pool == request.pool)
        and (not wanted or operation.state.value == wanted)
        and (not request.user or operation.user == request.user)
        and (not request.live or not is_final(operation.state))
    )
