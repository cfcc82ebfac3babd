"""Starts of operations that wait for other operations (`run --after`): what is refused, and what is known at the start.

An operation can name only operations that exist, and never names more later, so no cycle can arise but an operation that names
itself.
"""

from __future__ import annotations

import msgspec

from headrace.ids import OperationId
from headrace.wire.operations import StartOperation
from headrace.wire.refusals import BadRequest, NotFound
from headrace_admission import queries
from headrace_admission.state.life import is_final
from headrace_admission.state.state import State
from headrace_admission.state.upstream import unmet


class Standing(msgspec.Struct, frozen=True):
    """What is known of the operations that a new operation waits for."""

    #: The operations that have not ended.
    awaits: list[OperationId]
    #: Why the operation can never run; empty: it can.
    failure: str

    @property
    def holds_back(self) -> bool:
        """True if the operation is in no queue at first."""
        return bool(self.awaits or self.failure)


def refused_upstream(state: State, request: StartOperation) -> BadRequest | NotFound | None:
    """Return the refusal of the operations that a new operation is to wait for, or None."""
    seen: set[OperationId] = set()
    for upstream in request.spec.after:
        name = upstream.operation
        if name == request.operation:
            return BadRequest("spec.after", name, "another operation: an operation cannot wait for itself")
        if name in seen:
            return BadRequest("spec.after", f"{name} twice", "each operation once")
        if name not in state.operations:
            return queries.not_found(state, name)
        seen.add(name)
    return None


def standing(state: State, request: StartOperation) -> Standing:
    """Return what is known of the operations that a new operation waits for. Each of them must be known."""
    known = [(upstream, state.operations[upstream.operation]) for upstream in request.spec.after]
    awaits = [each.id for _, each in known if not is_final(each.state)]
    failures = (unmet(upstream, each.state) for upstream, each in known if is_final(each.state))
    return Standing(awaits, next(filter(None, failures), ""))
