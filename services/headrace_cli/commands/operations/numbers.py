"""Whole numbers among the options of commands."""

from __future__ import annotations

from headrace.errors import BadInput


def at_least(option: str, value: int, least: int) -> int:
    """The number as it is. Raises `BadInput` for a smaller one."""
    if value < least:
        raise BadInput(option, value, f"a whole number, {least} or more")
    return value
