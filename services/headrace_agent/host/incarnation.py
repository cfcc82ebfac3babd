"""The incarnation number of the agent process, by which the allocator recognizes late messages of earlier agent processes.

Each number is the previous number plus one, but at least the milliseconds of the wall clock. So the numbers stay in order when the
clock is set back, and also when the file with the previous number is lost, damaged or restored from a copy.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from pathlib import Path

from headrace.files.durable import replace_durably
from headrace.ids import Incarnation

_NUMBER = re.compile(rb"[0-9]{16}\n")
_LARGEST = 10**16 - 1


def next_incarnation(state: str, now_ms: int) -> Incarnation:
    """Save the next incarnation number in the state folder, and return the incarnation, which is greater than all earlier ones.

    If the folder cannot be written, the new incarnation is greater only as long as the wall clock is not set back.
    """
    path = f"{state}/incarnation"
    number = min(max(_last(path) + 1, now_ms), _LARGEST)
    with suppress(OSError):
        replace_durably(Path(path), f"{number:016}\n")
    return Incarnation(f"{number:016}-{secrets.token_hex(4)}")


def _last(path: str) -> int:
    """Return the last incarnation number, or 0 if it is not known."""
    try:
        with open(path, "rb") as file:
            text = file.read(64)
    except OSError:
        return 0
    return int(text) if _NUMBER.fullmatch(text) and int(text) < _LARGEST else 0
