"""One line of JSON per event on stderr, and never a wait for whoever reads them.

The runner's stderr may be a pipe of an agent that is gone or stuck: a line that would block is dropped and counted in the next one.
"""

from __future__ import annotations

import os
import select
import time

import msgspec

from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.settings import LogLevel

__all__ = ["JsonLog", "job_fields"]

#: A pipe that is writable takes this much at once.
_LINE_BYTES = 4096


class JsonLog:
    """Writes to `fd`, from `level` on."""

    def __init__(self, level: LogLevel = "info", fd: int = 2) -> None:
        self._fd = fd
        self._debug = level == "debug"
        self._encoder = msgspec.json.Encoder()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._dropped = 0

    def info(self, event: str, **fields: object) -> None:
        self._line("info", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._line("error", event, fields)

    def debug(self, event: str, **fields: object) -> None:
        if self._debug:
            self._line("debug", event, fields)

    def _line(self, level: str, event: str, fields: dict[str, object]) -> None:
        entry: dict[str, object] = {
            "at_ms": time.time_ns() // 1_000_000,
            "level": level,
            "service": "runner",
            "event": event,
        }
        if self._dropped:
            entry["lines_dropped"] = self._dropped
        line = (
            self._encoder.encode(entry | {name: _short(value) for name, value in fields.items()})[: _LINE_BYTES - 1]
            + b"\n"
        )
        ready = self._poll.poll(0)
        if not ready or not ready[0][1] & select.POLLOUT:
            self._dropped += 1
            return
        try:
            os.write(self._fd, line)
            self._dropped = 0
        except OSError:
            self._dropped += 1


def job_fields(job: JobKey, allocation: str = "") -> dict[str, object]:
    """By these an operation can be followed through the logs of all services."""
    fields: dict[str, object] = {"operation": job.operation, "index": job.index, "attempt": job.attempt}
    return fields | {"allocation": allocation} if allocation else fields


def _short(value: object) -> object:
    return value[:1000] if isinstance(value, str) else value
