"""What the tests of the runner are made of."""

from __future__ import annotations

import uuid

from headrace.ids import OperationId
from headrace.runtime.engine import NS_PER_MS, Moment
from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.protocol import Run

#: Another one in every test process: a runner that looks for processes of a former one finds them by this, anywhere on the host.
OPERATION = OperationId(f"op-{uuid.uuid4().hex[:12]}")


def a_job(index: int = 0, attempt: int = 1, operation: str = OPERATION) -> JobKey:
    return JobKey(OperationId(operation), index, attempt)


def a_run(index: int = 0, *argv: str, **changes: object) -> Run:
    fields: dict[str, object] = {
        "job": a_job(index),
        "allocation": "alloc-1",
        "argv": list(argv) or ["true"],
        "environment": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        "working_directory": "",
        "cpu": 100,
        "memory_bytes": 0,
    }
    return Run(**{**fields, **changes})  # type: ignore[arg-type]


def at(length_ms: int) -> Moment:
    """So many milliseconds after the beginning."""
    return Moment((1_000_000 + length_ms) * NS_PER_MS, 1_700_000_000_000 + length_ms)
