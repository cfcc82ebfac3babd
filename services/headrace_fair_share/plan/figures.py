"""Reading what people write as values: each reader returns what it read, or complains with the place and returns None."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.near import near
from headrace.pools.pool_config import LARGEST_WEIGHT, SMALLEST_WEIGHT
from headrace.resources import RESOURCE_NAMES, parse_amount
from headrace.wire.plan import PlanProblem
from headrace_fair_share.hdrf.model import NO_LIMIT, FifoKey, Limits
from headrace_fair_share.plan.file import Listing, Map, Text, Value

__all__ = [
    "Desk",
    "Reader",
    "amounts",
    "count",
    "fifo_keys",
    "flag",
    "length_s",
    "number",
    "read_map",
    "text_of",
    "weight",
    "word",
]

E = TypeVar("E", bound=enum.StrEnum)
#: Reads a value that stands under a key such as `pools.research.weight`.
Reader = Callable[["Desk", Value, str], object | None]

_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_LONGEST_NUMBER: Final = 60
_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})


class Desk:
    """Where complaints are collected."""

    def __init__(self, problems: list[PlanProblem]) -> None:
        self.problems = problems

    def refuse(self, value: Value, key: str, expected: str, wrong: str = "") -> None:
        """Complains of a value."""
        shown = value.shown()
        self.say(value.line, key, wrong or f"{shown} cannot be used", expected, shown)

    def say(self, line: int, key: str, wrong: str, expected: str, shown: str = "") -> None:
        """Complains of a place."""
        self.problems.append(PlanProblem(line, key, shown, wrong, expected))


def hint(name: str, known: Iterable[str]) -> str:
    """What may have been meant, or all that there is."""
    names = list(known)
    similar = near(name, names)
    return f"{' or '.join(similar)}, perhaps" if similar else "one of " + ", ".join(names)


def read_map(desk: Desk, value: Value, key: str, readers: Mapping[str, Reader]) -> dict[str, object]:
    """What could be read of a map by name; null counts as left out, an unknown key is refused."""
    if not isinstance(value, Map):
        desk.refuse(value, key, "a map with keys such as " + ", ".join(list(readers)[:4]))
        return {}
    found: dict[str, object] = {}
    for name, (line, item) in value.entries.items():
        place = f"{key}.{name}" if key else name
        reader = readers.get(name)
        if reader is None:
            desk.say(line, place, "unknown key", hint(name, readers), name)
        elif not (isinstance(item, Text) and item.is_null):
            read = reader(desk, item, place)
            if read is not None:
                found[name] = read
    return found


def text_of(desk: Desk, value: Value, key: str) -> str | None:
    """A text, quoted or not."""
    if isinstance(value, Text):
        return value.text
    desk.refuse(value, key, "a text")
    return None


def number(low: float, high: float, expected: str) -> Reader:
    """A reader of numbers from `low` to `high`."""

    def read(desk: Desk, value: Value, key: str) -> float | None:
        figure = _figure(value)
        if figure is None or not low <= figure <= high:
            desk.refuse(value, key, expected)
            return None
        return figure

    return read


def _figure(value: Value) -> float | None:
    if not isinstance(value, Text) or len(value.text) > _LONGEST_NUMBER or not _NUMBER.match(value.text):
        return None
    figure = float(value.text)
    return figure if math.isfinite(figure) else None


weight: Final = number(
    SMALLEST_WEIGHT, LARGEST_WEIGHT, f"a number above 0, from {SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:.0f}"
)


def count(most: int) -> Reader:
    """A reader of whole numbers from 0 to `most`."""

    def read(desk: Desk, value: Value, key: str) -> int | None:
        if isinstance(value, Text) and len(value.text) < _LONGEST_NUMBER and re.fullmatch("[0-9]+", value.text):
            figure = int(value.text)
            if figure <= most:
                return figure
        desk.refuse(value, key, f"a whole number from 0 to {most}")
        return None

    return read


def flag(desk: Desk, value: Value, key: str) -> bool | None:
    """True or false, not quoted."""
    if isinstance(value, Text) and not value.quoted and value.text.lower() in _TRUE | _FALSE:
        return value.text.lower() in _TRUE
    desk.refuse(value, key, "true or false")
    return None


def word(kind: type[E]) -> Reader:
    """A reader of one of some words."""

    def read(desk: Desk, value: Value, key: str) -> E | None:
        try:
            return kind(value.text if isinstance(value, Text) else "")
        except ValueError:
            desk.refuse(value, key, "one of " + ", ".join(kind))
            return None

    return read


def fifo_keys(desk: Desk, value: Value, key: str) -> tuple[FifoKey, ...] | None:
    """What a fifo pool ranks by: a list, not empty, each once."""
    expected = "a list, each once, of " + ", ".join(FifoKey)
    if not isinstance(value, Listing) or not value.items:
        desk.refuse(value, key, expected)
        return None
    read = word(FifoKey)
    found = [item for at, each in enumerate(value.items) if (item := read(desk, each, f"{key}[{at}]")) is not None]
    if len(set(map(str, found))) != len(found):
        desk.refuse(value, key, expected, "something stands twice")
        return None
    return tuple(FifoKey(str(item)) for item in found) or None


def length_s(desk: Desk, value: Value, key: str) -> float | None:
    """A length of time above 0, in seconds."""
    try:
        ms = parse_duration_ms(value.text if isinstance(value, Text) else "", place=key)
    except BadInput as error:
        desk.refuse(value, key, error.expected)
        return None
    if ms <= 0:
        desk.refuse(value, key, "a length of time above 0, such as 60s")
        return None
    return ms / 1000


def amounts(desk: Desk, value: Value, key: str) -> Limits | None:
    """Amounts by resource; None for those that are left out."""
    if not isinstance(value, Map):
        desk.refuse(value, key, "a map such as {cpu: 10, memory: 4G}")
        return None
    read = read_map(desk, value, key, dict.fromkeys(RESOURCE_NAMES, _amount))
    found = [read.get(name) for name in RESOURCE_NAMES]
    u, c, g, m, n = (figure if isinstance(figure, int) else None for figure in found)
    return (u, c, g, m, n) if value.entries else NO_LIMIT


def _amount(desk: Desk, value: Value, key: str) -> int | None:
    try:
        return parse_amount(key.rpartition(".")[2], value.text if isinstance(value, Text) else "?", place=key)
    except BadInput as error:
        desk.refuse(value, key, error.expected)
        return None
