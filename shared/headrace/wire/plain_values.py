"""Answers as plain JSON values: what `--json` prints.

Keys are the field names of the wire. Amounts of resources become objects with `cpu` in cores and `memory` in bytes.
Shares become objects with one key for each resource. Bytes become text.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from headrace.pools import PartialResources
from headrace.resources import RESOURCE_NAMES, Resources

_ATOMS: Final = frozenset({str, int, float, bool, type(None)})


def plain(value: object) -> object:
    """Return the value as dicts, lists, strings and numbers."""
    # An answer may have a million numbers, which no pattern needs to be tried on.
    if type(value) in _ATOMS:
        return value
    match value:
        case Resources():
            return _amounts(dict(zip(RESOURCE_NAMES, value.as_tuple(), strict=True)))
        case PartialResources():
            return _amounts(value.named())
        case msgspec.Struct():
            return {name: _field(name, getattr(value, name)) for name in value.__struct_fields__}
        case enum.Enum():
            return value.value
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case bytes():
            return value.decode(errors="replace")
        case _:
            return value


def _amounts(amounts: dict[str, int]) -> dict[str, float]:
    return {name: plain_amount(name, amount) for name, amount in amounts.items()}


def plain_amount(resource: str, amount: int) -> float:
    """Return an amount of the wire in the units of `--json`: cores, bytes, or whole units."""
    return amount / 100 if resource == "cpu" else amount


def _field(name: str, value: object) -> object:
    if (
        isinstance(value, tuple)
        and len(value) == len(RESOURCE_NAMES)
        and all(isinstance(item, float) for item in value)
    ):
        return dict(zip(RESOURCE_NAMES, value, strict=True))
    return plain(value)


def indented_json(value: object) -> bytes:
    """Return one JSON document, indented by two spaces."""
    return msgspec.json.format(msgspec.json.encode(plain(value)), indent=2)
