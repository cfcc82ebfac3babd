"""Counts in messages: `1 node`, `2 nodes`."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or plural. The plural ends in `s`; for `process` it is
    `processes`.
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith('s') else 's'}"
