"""The number of this life of the agent, by which late messages of former lives are told apart.

It is one more than the last, and not less than the wall clock's milliseconds. So lives stay in order when the clock is set back. They
do as well when the file is lost, damaged or put back from a copy.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress

from headrace.ids import Incarnation

_NUMBER = re.compile(rb"[0-9]{16}\n")
_LARGEST = 10**16 - 1


def next_incarnation(state: str, now_ms: int) -> Incarnation:
    """Names a life that is greater than all before it, and keeps its number in the state folder first.

    In a folder that cannot be written the wall clock alone gives the order.
    """
    path = f"{state}/incarnation"
    number = min(max(_last(path) + 1, now_ms), _LARGEST)
    with suppress(OSError):
        _keep(path, number)
    return Incarnation(f"{number:016}-{secrets.token_hex(4)}")


def _last(path: str) -> int:
    """The number of the last life, 0 if nothing says it."""
    try:
        with open(path, "rb") as file:
            text = file.read(64)
    except OSError:
        return 0
    return int(text) if _NUMBER.fullmatch(text) and int(text) < _LARGEST else 0


def _keep(path: str, number: int) -> None:
    """Replaces the file as a whole, and returns when the disk has it."""
    new = f"{path}.new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(b"%016d\n" % number)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
