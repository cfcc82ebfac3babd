"""Structured logs: one JSON object a line on stderr, with the names that every service uses.

`service`, `event`, `level`, `at` stand in every line; `operation`, `node`, `allocation`, `version` wherever they are known. An
operation's way through all services is `grep` for its id at level debug.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, TextIO

import msgspec
import structlog

__all__ = ["LEVELS", "configure", "logger"]

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def _default(value: object) -> object:
    return str(value)


_encoder = msgspec.json.Encoder(enc_hook=_default)


def _to_json(_logger: Any, _method: str, event: structlog.types.EventDict) -> str:
    return _encoder.encode(dict(event)).decode()


def configure(service: str, level: str, stream: TextIO | None = None) -> None:
    """Sets up logging for a process. `level` is one of `LEVELS`, and KeyError is raised for another."""
    threshold = LEVELS[level]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            _to_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    _SERVICE["service"] = service
    logging.basicConfig(level=logging.WARNING, stream=stream or sys.stderr)


_SERVICE: dict[str, str] = {}


def logger(**fields: object) -> structlog.typing.FilteringBoundLogger:
    """A logger of this process with the fields bound."""
    return structlog.get_logger(**_SERVICE, **fields)  # type: ignore[no-any-return]
