"""Whole numbers that people give as options."""

from __future__ import annotations

from typing import Final

from headrace.errors import BadInput

_MOST: Final = 2**62


def at_least(place: str, value: object, least: int) -> int:
    """Return the number unchanged. Raises `BadInput` if it is no whole number, below `least` or above 2**62."""
    if not isinstance(value, int) or value < least:
        raise BadInput(place, value, f"a whole number, {least} or more")
    if value > _MOST:
        raise BadInput(place, value, f"a whole number, at most {_MOST}")
    return value
