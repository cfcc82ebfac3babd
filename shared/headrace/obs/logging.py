"""Structured logs: one JSON object a line on stderr, with the names that every service uses.

`service`, `event`, `level`, `at` stand in every line. `operation`, `node`, `allocation`, `version`, `trace` wherever they are known. An
operation's way through all services is `grep` for its id at level debug.
Written here because the well-kept library for it takes 0.2 s of every process's start, and of every command's.
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
    """The place that the lines of this process go to, and the lowest level that is written. A library says nothing below a warning."""

    service: str = ""
    threshold: int = LEVELS["warning"]
    #: The stderr of the moment, unless a file was given.
    stream: TextIO | None = None
    #: Lines that could not be written in this life, and those of them that no line has told of yet.
    lost: int = 0
    untold: int = 0


def _words(value: object) -> str:
    """A value that JSON knows nothing of, an exception with its traceback."""
    return "".join(traceback.format_exception(value)) if isinstance(value, BaseException) else str(value)


_output = _Output()
_encoder = msgspec.json.Encoder(enc_hook=_words)


def configure(service: str, level: str, stream: TextIO | None = None) -> None:
    """Sets up logging for a process. `level` is one of `LEVELS`, and KeyError is raised for another."""
    if stream is None and sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _unbuffered(sys.stderr)
    _output.service, _output.threshold, _output.stream = service, LEVELS[level], stream
    logging.basicConfig(level=logging.WARNING, stream=stream or sys.stderr)


def _unbuffered(stream: TextIO) -> TextIO:
    """A stream over the same descriptor that keeps nothing back.

    A buffer would keep a line that a full disk refused, and Python exits with status 120 if it cannot write that line at the end.
    """
    raw = io.FileIO(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


class Logger:
    """Writes lines that carry the fields bound to it."""

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
            # On a line of its own, whatever the last one got rid of.
            line = "\n" + _line("warning", "log lines lost", {"lines": _output.untold}) + line
        stream = _output.stream or sys.stderr
        # A full disk ends no process; the next line that there is room for is written again.
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
    """The number of lines that could not be written."""
    return _output.lost


def logger(**fields: object) -> Logger:
    """A logger of this process with the fields bound."""
    return Logger(fields)
