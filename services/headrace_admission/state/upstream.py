"""The operations that wait for other operations, listed under the operations that they wait for.

When an operation ends, its end is recorded at once in each operation that waits for it, so nothing is lost when finished operations
are forgotten. Invariant (`check`): an operation waits only for live operations, and it is listed here under each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import Any, Final

from headrace.ids import OperationId
from headrace.wire.operation_spec import Upstream, UpstreamEnd
from headrace.wire.operations import OperationState
from headrace_admission.state.operation import Operation

_WANTED_WORDS: Final = {UpstreamEnd.OK: "completed", UpstreamEnd.FAILED: "failed or was aborted"}


class UpstreamBook:
    """Live operations that wait for other operations. Changed only by `State`."""

    def __init__(self) -> None:
        #: Operations that may run from now on, or can never complete: a decision must follow.
        self.due: dict[OperationId, None] = {}
        #: Number of ends that the live operations of each user wait for. An end that two operations wait for counts twice.
        self.awaited_of_user: Counter[str] = Counter()
        #: By awaited operation: the operations that wait for its end, each with the kind of end that it wants, in the order of their
        #: starts.
        self._downstream: dict[OperationId, dict[OperationId, Upstream]] = {}
        #: By followed operation: the operations whose jobs follow its jobs, in the order of their starts.
        self._by_job: dict[OperationId, dict[OperationId, None]] = {}

    def add(self, operation: Operation) -> None:
        """Add a live operation."""
        wanted = {upstream.operation: upstream for upstream in operation.spec.after}
        for name in operation.awaits:
            self._downstream.setdefault(name, {})[operation.id] = wanted[name]
        self.awaited_of_user[operation.user] += len(operation.awaits)
        if operation.awaits_jobs and operation.spec.after_each is not None:
            self._by_job.setdefault(operation.spec.after_each, {})[operation.id] = None
        self.judge(operation)

    def judge(self, operation: Operation) -> None:
        """Record whether a decision about an operation is due. To be called after each change of the operation."""
        if operation.may_be_judged:
            self.due[operation.id] = None
        else:
            self.due.pop(operation.id, None)

    def remove(self, operation: Operation) -> None:
        """Remove an operation that has ended."""
        self.due.pop(operation.id, None)
        for name in operation.awaits:
            _take_out(self._downstream, name, operation)
        self.awaited_of_user[operation.user] -= len(operation.awaits)
        if operation.awaits_jobs and operation.spec.after_each is not None:
            _take_out(self._by_job, operation.spec.after_each, operation)

    def waiting_for(self, name: OperationId) -> list[OperationId]:
        """Return the operations that wait for the end of this operation, or for its jobs."""
        return list({**self._downstream.get(name, {}), **self._by_job.get(name, {})})

    def waiting_for_jobs_of(self, name: OperationId) -> list[OperationId]:
        """Return the operations whose jobs wait for the jobs of this operation."""
        return list(self._by_job.get(name, ()))

    def end(self, ended: Operation, operation: Operation) -> None:
        """Record in `operation` that `ended`, an operation that it waits for, has ended.

        The other operations that it waits for are not examined, because thousands of operations may each wait for hundreds of operations.
        """
        wanted = self._downstream.get(ended.id, {}).get(operation.id)
        if wanted is None:
            _take_out(self._by_job, ended.id, operation)
            failure = uncompleted(ended, operation.spec.job_count)
            operation.awaits_jobs = False
        else:
            _take_out(self._downstream, ended.id, operation)
            self.awaited_of_user[operation.user] -= 1
            failure = unmet(wanted, ended.state)
            # The list is copied before it is changed, because an event or a checkpoint may hold the same list.
            operation.awaits = operation.awaits.copy()
            operation.awaits.remove(ended.id)
        operation.upstream_failure = operation.upstream_failure or failure
        self.judge(operation)

    def check(self, operation: Operation, live: Container[OperationId]) -> list[str]:
        """Return a description of each broken invariant of one live operation."""
        awaited: list[tuple[OperationId, Mapping[OperationId, Container[OperationId]]]] = [
            (name, self._downstream) for name in operation.awaits
        ]
        if operation.awaits_jobs and operation.spec.after_each is not None:
            awaited.append((operation.spec.after_each, self._by_job))
        broken = [
            f"{operation.id} awaits {name}, which is over or does not list it"
            for name, book in awaited
            if name not in live or operation.id not in book.get(name, ())
        ]
        if operation.may_be_judged or operation.id in self.due:
            broken.append(f"{operation.id} may run or must fail, and nothing was decided")
        if operation.awaiting_jobs and not operation.awaits_jobs and not operation.upstream_failure:
            broken.append(
                f"{operation.awaiting_jobs} jobs of {operation.id} wait for jobs of an operation that is over"
            )
        if operation.awaits and not operation.is_held_back:
            broken.append(f"{operation.id} awaits {operation.awaits}, but is not held back")
        return broken


def unmet(wanted: Upstream, state: OperationState) -> str:
    """Return why the state in which an operation ended is not the wanted end; empty if it is."""
    if wanted.end is UpstreamEnd.ANY or (wanted.end is UpstreamEnd.OK) == (state is OperationState.COMPLETED):
        return ""
    words = _WANTED_WORDS[wanted.end]
    return f"upstream failed: operation {wanted.operation} is {state.value}; this operation runs only if it {words}"


def uncompleted(ended: Operation, job_count: int) -> str:
    """Return a text that some of the first `job_count` jobs of an ended operation did not complete; empty if all of them completed."""
    bits = int.from_bytes(ended.ledger.completed_bits(), "little") & ((1 << job_count) - 1)
    missing = job_count - bits.bit_count()
    if not missing:
        return ""
    jobs = (
        f"{missing} of the jobs that the jobs of this operation follow"
        if missing > 1
        else "a job that a job of this operation follows"
    )
    return f"upstream failed: operation {ended.id} is {ended.state.value}, and {jobs} did not complete"


def _take_out(book: dict[OperationId, dict[OperationId, Any]], name: OperationId, operation: Operation) -> None:
    below = book.get(name, {})
    below.pop(operation.id, None)
    if not below:
        book.pop(name, None)
