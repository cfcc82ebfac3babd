"""Structured logs: one JSON object per line on stderr, with field names that all services share.

Every line has `service`, `event`, `level` and `at`. Lines have `operation`, `node`, `allocation`, `version` and `trace` if
they are known. To follow an operation through all services, `grep` for its id at level debug.
The usual library for structured logs is not used, because it adds 0.2 s to the start of every process and every command.
"""

from __future__ import annotations

import io
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from headrace.obs.tracing import current

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Output(msgspec.Struct):
    """The stream to which this process writes log lines, and the lowest level that is written.

    Before `configure` is called, as in a program that uses Headrace as a library, only warnings and errors are written.
    """

    service: str = ""
    threshold: int = LEVELS["warning"]
    #: The stream to write to; None means the current `sys.stderr`.
    stream: TextIO | None = None
    #: Number of lines that could not be written since the process started.
    lost: int = 0
    #: Number of lost lines that the log does not report yet.
    untold: int = 0


def _words(value: object) -> str:
    """Convert a value that JSON does not support to text. An exception becomes its traceback."""
    return "".join(traceback.format_exception(value)) if isinstance(value, BaseException) else str(value)


_output = _Output()
_encoder = msgspec.json.Encoder(enc_hook=_words)


def configure(service: str, level: str, stream: TextIO | None = None) -> None:
    """Set up logging for a process. `level` is one of `LEVELS`; another level raises `KeyError`."""
    if stream is None and sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _unbuffered(sys.stderr)
    _output.service, _output.threshold, _output.stream = service, LEVELS[level], stream
    logging.basicConfig(level=logging.WARNING, stream=stream or sys.stderr)


def _unbuffered(stream: TextIO) -> TextIO:
    """Return an unbuffered stream over the same file descriptor.

    A buffer would keep a line that could not be written to a full disk. Python would try to write that line again when the
    process ends and, if the disk is still full, exit with status 120.
    """
    raw = io.FileIO(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


class Logger:
    """Writes log lines that carry the fields bound to this logger."""

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields

    def debug(self, event: str, **fields: object) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        if LEVELS[level] < _output.threshold:
            return
        line = _line(level, event, self._fields | fields)
        if _output.untold:
            # The report of lost lines begins with a newline, because the line before may have been written in part.
            line = "\n" + _line("warning", "log lines lost", {"lines": _output.untold}) + line
        stream = _output.stream or sys.stderr
        # A full disk must not end the process. Later lines are written again as soon as there is space.
        try:
            stream.write(line)
            stream.flush()
            _output.untold = 0
        except OSError:
            _output.lost += 1
            _output.untold += 1


def _line(level: str, event: str, fields: dict[str, object]) -> str:
    line = {"at": datetime.now(UTC), "level": level, "service": _output.service, "event": event}
    if (context := current()) is not None:
        line["trace"] = context.trace_id
    return _encoder.encode(line | fields).decode() + "\n"


def lost_lines() -> int:
    """Return the number of lines that could not be written."""
    return _output.lost


def logger(**fields: object) -> Logger:
    """Return a logger of this process with these fields bound."""
    return Logger(fields)
