"""Reading many operations at once, for people and for services that keep up; pages, so that no answer grows too large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.ids import OperationId
from headrace.wire.ledger import LiveOperation, WholeOperationsRequest
from headrace.wire.operations import ListOperations, OperationList, OperationState, OperationView
from headrace.wire.refusals import BadRequest
from headrace_admission.operation import Operation
from headrace_admission.states import is_final

__all__ = ["list_operations", "page_of_live"]

#: Bytes of a page of live operations.
_PAGE_BYTES: Final = 256 * 1024


def list_operations(operations: dict[OperationId, Operation], request: ListOperations) -> OperationList | BadRequest:
    """Operations that match, newest first, behind the one that `request` names; `operations` stand in the order of their starts."""
    if request.state and request.state not in list(OperationState):
        return BadRequest("state", request.state, "one of " + ", ".join(OperationState))
    chosen: list[OperationView] = []
    reached = not request.after
    for operation in reversed(operations.values()):
        if not reached:
            reached = operation.id == request.after
        elif _matches(operation, request):
            if len(chosen) == request.limit:
                return OperationList(chosen, more=True)
            chosen.append(operation.view(short=True))
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


def _matches(operation: Operation, request: ListOperations) -> bool:
    return (
        (not request.pool or operation.spec.pool == request.pool)
        and (not request.state or operation.state.value == request.state)
        and (not request.user or operation.user == request.user)
        and (not request.live or not is_final(operation.state))
    )
