"""Parse an amount of memory that a user wrote for a job or a node. Pure."""

from __future__ import annotations

from typing import Final

from headrace.errors import BadInput
from headrace.resources import parse_amount

#: Smallest plausible amount of memory, in bytes. No process runs in less.
_LEAST: Final = 100_000


def parse_memory(text: str, place: str) -> int:
    """Return the amount in bytes. Raises `BadInput`.

    An amount from 1 to 99,999 bytes is refused too, because the unit was probably forgotten: other systems count
    megabytes.
    """
    memory = parse_amount("memory", text, place=place)
    if 0 < memory < _LEAST:
        near = f"{text.strip()}M" if text.strip().isdigit() else "64M"
        raise BadInput(
            place,
            text,
            f"an amount with a unit, such as {near}: without a unit it is in bytes, and no process runs in so few bytes",
        )
    return memory
