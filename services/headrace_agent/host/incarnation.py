"""The number of this life of the agent, by which late messages of former lives are told apart.

It is one more than the last, and not less than the wall clock's milliseconds. So lives stay in order when the clock is set back. They
do as well when the file is lost, damaged or put back from a copy.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from pathlib import Path

from headrace.durable_files import replace_durably
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
        replace_durably(Path(path), f"{number:016}\n")
    return Incarnation(f"{number:016}-{secrets.token_hex(4)}")


def _last(path: str) -> int:
    """The number of the last life, 0 if nothing says it."""
    try:
        with open(path, "rb") as file:
            text = file.read(64)
    except OSError:
        return 0
    return int(text) if _NUMBER.fullmatch(text) and int(text) < _LARGEST else 0
