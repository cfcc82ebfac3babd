"""Memory as a person writes it for a job or a node. Pure."""

from __future__ import annotations

from typing import Final

from headrace.errors import BadInput
from headrace.resources import parse_amount

#: No process runs in less, in bytes.
_LEAST: Final = 100_000


def parse_memory(text: str, place: str) -> int:
    """Bytes. Raises `BadInput`, also for so little that a unit was forgotten: other systems count megabytes."""
    memory = parse_amount("memory", text, place=place)
    if 0 < memory < _LEAST:
        near = f"{text.strip()}M" if text.strip().isdigit() else "64M"
        raise BadInput(
            place, text, f"a unit, such as {near}: without one it counts bytes, and no process runs in so few"
        )
    return memory
