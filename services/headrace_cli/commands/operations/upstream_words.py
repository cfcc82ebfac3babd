"""The operations that an operation waits for, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.counted import counted
from headrace.ids import OperationId
from headrace.wire.operation_spec import OperationSpec, UpstreamEnd
from headrace.wire.operations import AwaitedOperation

#: Upper bound of the operations that are named in a line.
_MOST_NAMED: Final = 2
_MUST: Final = {
    UpstreamEnd.OK: "it must complete",
    UpstreamEnd.FAILED: "it must fail or be aborted",
    UpstreamEnd.ANY: "it must end",
    None: "each job waits for its job with the same index",
}


def ends_words(names: Sequence[OperationId]) -> str:
    """Return the operations whose ends are awaited.

    >>> ends_words(["a", "b", "c", "d"])
    'the end of a, b and 2 more operations'
    """
    more = len(names) - _MOST_NAMED
    named = ", ".join(names[:_MOST_NAMED])
    return f"the end of {named}" + (f" and {counted(more, 'more operation')}" if more > 0 else "")


def following_words(count: int, upstream: str = "") -> str:
    """Return how many jobs wait for jobs of another operation.

    >>> following_words(2, "array-one")
    '2 jobs wait for the same jobs of array-one'
    """
    waits = "waits" if count == 1 else "wait"
    same = "job" if count == 1 else "jobs"
    return f"{counted(count, 'job')} {waits} for the same {same}" + (
        f" of {upstream}" if upstream else " of another operation"
    )


def after_words(spec: OperationSpec) -> str:
    """Return what an operation was started after, such as `first:ok, each job of second`; empty: nothing."""
    each_job = [f"each job of {spec.after_each}"] if spec.after_each is not None else []
    return ", ".join([*(f"{one.operation}:{one.end.value}" for one in spec.after), *each_job])


def awaited_words(awaited: AwaitedOperation) -> tuple[str, str]:
    """Return two texts about an awaited operation: its state with the end that it must have, and the command that explains it."""
    state = f"operation {awaited.operation} of {awaited.user} in pool {awaited.pool} is {awaited.state.value}"
    jobs = f"{counted(awaited.open_jobs, 'job')} to complete"
    return f"{state} with {jobs}; {_MUST[awaited.end]}", f"→ headrace op explain {awaited.operation}"
