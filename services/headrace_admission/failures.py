"""The failures of an operation in words."""

from __future__ import annotations

from typing import Final

from headrace.wire.heartbeat import JobEnd, JobResult
from headrace_admission.state.life import is_final
from headrace_admission.state.operation import Operation

#: So many nodes that cannot start it are told of an operation that still tries.
_NODES_TO_TELL: Final = 3
_MOST_CHARACTERS: Final = 4000


def failure_words(operation: Operation) -> str:
    """The reason of an operation that fails since too many runs of its jobs have failed."""
    count = operation.ledger.counts[JobResult.FAILED]
    limit = operation.spec.max_failed_job_count
    words = f"{count} failed job{'' if count == 1 else 's'}, max_failed_job_count is {limit}"
    if operation.ledger.failures:
        words += f"; {_never_ran_words(operation, 1) or 'the last: ' + _end_words(operation.ledger.failures[-1])}"
    return words[:_MOST_CHARACTERS]


def trouble_words(operation: Operation) -> str:
    """The nodes that could not start a live operation, once they are many and no run ended in another way. Else nothing."""
    return "" if is_final(operation.state) else _never_ran_words(operation, _NODES_TO_TELL)[:_MOST_CHARACTERS]


def _never_ran_words(operation: Operation, least_nodes: int) -> str:
    nodes = operation.ledger.nodes_without_start()
    if len(nodes) < least_nodes:
        return ""
    where = f"node{'' if len(nodes) == 1 else 's'} {', '.join(nodes)}"
    last = _end_words(operation.ledger.failures[-1])
    # A run that has not ended is nobody's knowledge here.
    return f"as far as its runs ended it never ran anywhere: {where} could not start it; the last: {last}"


def _end_words(end: JobEnd) -> str:
    how = end.reason or (f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}")
    where = f" on node {end.node}" if end.node else ""
    return f"job {end.index} attempt {end.attempt}{where}: {how}"
