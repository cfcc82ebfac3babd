"""Durations as people write and read them: `30s`, `500ms`, `1.5h`."""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import BadInput

#: Longest duration in options and messages, in milliseconds: about thirty years.
LONGEST_MS: Final = 10**12
_DURATION = re.compile(r"(?P<figure>[0-9]{1,15}(?:\.[0-9]{1,15})?)\s*(?P<unit>ms|s|m|h|d)?\Z")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str | int, *, place: str) -> int:
    """Read `30s`, `500ms` or `1.5h`, up to `LONGEST_MS`. Raises `BadInput`.

    An int is milliseconds, but a text without a unit is refused unless it is 0.
    """
    written = f"{text}ms" if isinstance(text, int) else text.strip()
    match = _DURATION.match(written)
    if match is None or not (match["unit"] or float(match["figure"]) == 0):
        raise BadInput(place, text, "a length of time with a unit, such as 30s, 500ms or 10m")
    ms = int(float(match["figure"]) * _UNIT_MS[match["unit"] or "ms"])
    if ms > LONGEST_MS:
        raise BadInput(place, text, f"a length of time of at most {format_duration(LONGEST_MS)}")
    return ms


def parse_time_limit_ms(text: str | int | None, place: str) -> int | None:
    """Read a time limit of at least 1 ms. None stays None, which stands for the default of the pool. Raises `BadInput`."""
    if text is None:
        return None
    ms = parse_duration_ms(text, place=place)
    if not ms:
        raise BadInput(place, text, "a length of time above 0, such as 30s or 2h")
    return ms


def exact_duration(ms: int) -> str:
    """Write a duration in the largest unit that needs no fraction. `parse_duration_ms` reads the same value back."""
    unit = next((unit for unit in ("d", "h", "m", "s") if ms and ms % _UNIT_MS[unit] == 0), "ms")
    return f"{ms // _UNIT_MS[unit]}{unit}"


def format_duration(ms: int) -> str:
    """Return a duration as text for people, with at most two units."""
    seconds, rest_ms = divmod(ms, 1000)
    if seconds == 0:
        return f"{rest_ms}ms"
    for unit, size, lower, lower_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // lower_size
            return f"{seconds // size}{unit}" + (f"{rest}{lower}" if rest else "")
    return f"{seconds}s"
