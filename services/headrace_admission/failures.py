"""The failures of an operation in words."""

from __future__ import annotations

from typing import Final

from headrace.wire.heartbeat import JobEnd, JobResult
from headrace_admission.state.life import is_final
from headrace_admission.state.operation import Operation

#: Nodes that could not start a live operation must be at least this many to be named in its view.
_NODES_TO_TELL: Final = 3
_MOST_CHARACTERS: Final = 4000


def failure_words(operation: Operation) -> str:
    """Return the reason of an operation that fails because too many attempts of its jobs have failed."""
    count = operation.ledger.counts[JobResult.FAILED]
    limit = operation.spec.max_failed_job_count
    words = f"{count} failed job{'' if count == 1 else 's'}, max_failed_job_count is {limit}"
    if operation.ledger.failures:
        words += (
            f"; {_never_ran_words(operation, 1) or 'the last failure: ' + _end_words(operation.ledger.failures[-1])}"
        )
    return words[:_MOST_CHARACTERS]


def trouble_words(operation: Operation) -> str:
    """Return a text that names the nodes which could not start a live operation.

    Empty while they are fewer than `_NODES_TO_TELL`, or if an attempt has ended in another way.
    """
    return "" if is_final(operation.state) else _never_ran_words(operation, _NODES_TO_TELL)[:_MOST_CHARACTERS]


def _never_ran_words(operation: Operation, least_nodes: int) -> str:
    nodes = operation.ledger.nodes_without_start()
    if len(nodes) < least_nodes:
        return ""
    where = f"node{'' if len(nodes) == 1 else 's'} {', '.join(nodes)}"
    last = _end_words(operation.ledger.failures[-1])
    # Nothing is known here about attempts that have not ended.
    return f"no attempt that ended had started: {where} could not start the command; the last failure: {last}"


def _end_words(end: JobEnd) -> str:
    how = end.reason or (f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}")
    where = f" on node {end.node}" if end.node else ""
    return f"job {end.index} attempt {end.attempt}{where}: {how}"
