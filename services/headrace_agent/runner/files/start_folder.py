"""The name of the folder for one start of an operation. Pure."""

from __future__ import annotations


def folder_of_start(operation: str, started_at_ms: int) -> str:
    """Return the name of the folder of an operation. It differs from the names for earlier operations with the same id.

    An id can be used again, also by another person, once admission has forgotten the operation that had it. `started_at_ms` is the Unix
    time of the operation's start; 0: not known.
    """
    return f"{operation}.{started_at_ms}" if started_at_ms else operation
