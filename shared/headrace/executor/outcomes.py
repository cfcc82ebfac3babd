"""Outcomes of calls, read from the end of a job's stdout. Pure."""

from __future__ import annotations

import base64
import binascii
import pickle
from typing import Any, Final

from headrace.errors import HeadraceError
from headrace.executor.job import MARK

#: Bytes of stdout that are read first; the outcome of most calls is shorter.
FIRST_TAIL_BYTES: Final = 16 * 1024
#: Upper bound of the bytes after the line with the outcome: two line ends, and the line that contains the length of the outcome's line.
LONGEST_TRAILER_BYTES: Final = 64

#: Upper bound of the digits of the length of an outcome. What a call leaves running can write longer numbers.
_MOST_DIGITS: Final = 12


class JobFailed(HeadraceError):
    """The job of a call ended without an outcome: it was killed, ran out of memory or time, or its operation was aborted."""


class RemoteTraceback(Exception):
    """The traceback of an exception on the node where it was raised. It is set as the cause of that exception."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def needed_bytes(tail: bytes) -> int:
    """Return how many bytes at the end of stdout hold the outcome; 0: there is no outcome.

    >>> needed_bytes(b"headrace-outcome gASI\\nheadrace-outcome-bytes 21\\n")
    85
    """
    words = tail[-LONGEST_TRAILER_BYTES:].rpartition(MARK + b"-bytes ")[2].split()
    if (
        len(words) != 1
        or not words[0].isdigit()
        or len(words[0]) > _MOST_DIGITS
        or MARK + b"-bytes " not in tail[-LONGEST_TRAILER_BYTES:]
    ):
        return 0
    return int(words[0]) + LONGEST_TRAILER_BYTES


def outcome_in(tail: bytes) -> tuple[bool, Any]:
    """Return (True, result) or (False, exception) from the last bytes of stdout. Raises `JobFailed` if they have no outcome."""
    line = tail.rpartition(b"\n" + MARK + b"-bytes ")[0].rpartition(b"\n")[2]
    try:
        if not line.startswith(MARK + b" "):
            raise ValueError("the output does not end with an outcome")
        succeeded, value = pickle.loads(base64.b64decode(line[len(MARK) + 1 :], validate=True))
    except (ValueError, binascii.Error) as error:
        raise JobFailed(f"the outcome of the call cannot be read: {error}") from None
    except BaseException as error:
        # A class of the result cannot be imported here, or its constructor raises an exception, which may be SystemExit.
        raise JobFailed(f"the outcome of the call cannot be unpickled: {type(error).__name__}: {error}") from error
    if succeeded:
        return True, value
    exception = _exception_in(value[0])
    exception.__cause__ = RemoteTraceback(value[1])
    return False, exception


def _exception_in(pickled: bytes) -> BaseException:
    """Return the exception that a call raised, or `JobFailed` if it cannot be unpickled here."""
    try:
        exception = pickle.loads(pickled)
    except BaseException as error:
        # Often the constructor of the class takes other arguments than `Exception.args` has.
        return JobFailed(f"the exception of the call cannot be unpickled: {type(error).__name__}: {error}")
    if not isinstance(exception, BaseException):
        return JobFailed(f"the call raised an exception that was unpickled as {type(exception).__name__}")
    return exception
