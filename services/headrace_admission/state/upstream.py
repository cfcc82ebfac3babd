"""The operations that wait for other operations to end, by the operation that they wait for.

An operation records the end of each operation that it waits for as soon as that operation ends, so nothing is lost when finished
operations are forgotten. Invariant (`check`): an operation awaits live operations only, and each of them lists it.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from headrace.ids import OperationId
from headrace.wire.operation_spec import Upstream, UpstreamEnd
from headrace.wire.operations import OperationState
from headrace_admission.state.operation import Operation

_WANTED_WORDS: Final = {UpstreamEnd.OK: "completed", UpstreamEnd.FAILED: "failed or was aborted"}


class UpstreamBook:
    """Live operations that wait for others. Changed only by `State`."""

    def __init__(self) -> None:
        #: Operations that are held back, and may run or can never run: a decision must follow.
        self.due: dict[OperationId, None] = {}
        self._downstream: dict[OperationId, dict[OperationId, None]] = {}

    def add(self, operation: Operation) -> None:
        """Add an operation that is held back."""
        for name in operation.awaits:
            self._downstream.setdefault(name, {})[operation.id] = None
        if operation.may_be_judged:
            self.due[operation.id] = None

    def remove(self, operation: Operation) -> None:
        """Remove an operation that has ended or is held back no longer."""
        self.due.pop(operation.id, None)
        for name in operation.awaits:
            below = self._downstream.get(name, {})
            below.pop(operation.id, None)
            if not below:
                self._downstream.pop(name, None)

    def waiting_for(self, name: OperationId) -> list[OperationId]:
        """Return the operations that wait for this operation, in the order of their starts."""
        return list(self._downstream.get(name, ()))

    def end(self, ended: Operation, operation: Operation) -> None:
        """Record in an operation that one of the operations that it waits for has ended."""
        wanted = next(each for each in operation.spec.after if each.operation == ended.id)
        operation.upstream_failure = operation.upstream_failure or unmet(wanted, ended.state)
        self.remove(operation)
        operation.awaits = [name for name in operation.awaits if name != ended.id]
        self.add(operation)

    def check(self, operation: Operation, live: Container[OperationId]) -> list[str]:
        """Return a description of each broken invariant of one live operation."""
        broken = [
            f"{operation.id} awaits {name}, which is over or does not list it"
            for name in operation.awaits
            if name not in live or operation.id not in self._downstream.get(name, ())
        ]
        if operation.may_be_judged or operation.id in self.due:
            broken.append(f"{operation.id} is held back although its wait is over")
        if operation.awaits and not operation.is_held_back:
            broken.append(f"{operation.id} awaits {operation.awaits}, but is not held back")
        return broken


def unmet(wanted: Upstream, state: OperationState) -> str:
    """Return why the end of an operation in this final state is not the end that is wanted; empty if it is."""
    if wanted.end is UpstreamEnd.ANY or (wanted.end is UpstreamEnd.OK) == (state is OperationState.COMPLETED):
        return ""
    words = _WANTED_WORDS[wanted.end]
    return f"upstream failed: operation {wanted.operation} is {state.value}; this operation runs only if it {words}"
