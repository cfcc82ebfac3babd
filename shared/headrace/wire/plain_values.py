"""Answers as plain JSON values: what `--json` prints.

Keys are the field names of the wire. Amounts of resources become objects with `cpu` in cores and `memory` in bytes.
Shares become objects with one key for each resource. Bytes become text.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from headrace.pools import PartialResources
from headrace.resources import RESOURCE_NAMES, Resources


def plain(value: object) -> object:
    """Return the value as dicts, lists, strings and numbers."""
    kind: Any = type(value)
    convert = _converter(kind)
    return value if convert is None else convert(value)


@cache
def _converter(kind: type) -> Callable[[Any], object] | None:
    """Return the function that converts values of a type; None for values that stay as they are.

    The function is cached for each type, because a list of 10,000 operations has a million values.
    """
    by_type: dict[type | tuple[type, ...], Callable[[Any], object]] = {
        Resources: lambda value: _amounts(dict(zip(RESOURCE_NAMES, value.as_tuple(), strict=True))),
        PartialResources: lambda value: _amounts(value.named()),
        msgspec.Struct: _fields,
        enum.Enum: lambda value: value.value,
        dict: lambda value: {str(key): plain(item) for key, item in value.items()},
        (list, tuple, set, frozenset): lambda value: [plain(item) for item in value],
        bytes: lambda value: value.decode(errors="replace"),
    }
    return next((convert for base, convert in by_type.items() if issubclass(kind, base)), None)


def _fields(value: msgspec.Struct) -> dict[str, object]:
    """Return the fields of a Struct. Most fields are texts and numbers, which stay as they are and cost no call."""
    found = msgspec.structs.asdict(value)
    for name in _converted(type(value)):
        # Most fields that may need a conversion are empty lists or dicts, which stay as they are.
        if (field := found[name]) or type(field) not in (list, dict):
            found[name] = _field(field)
    return found


@cache
def _converted(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of the fields whose values may have to be converted, by their types."""
    hints = typing.get_type_hints(kind)
    return tuple(name for name in kind.__struct_fields__ if not _is_plain(hints[name]))


def _is_plain(hint: Any) -> bool:
    """Return whether all values of a type are texts, numbers, truth values or null."""
    if isinstance(hint, typing.NewType):
        return _is_plain(hint.__supertype__)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return all(map(_is_plain, typing.get_args(hint)))
    return hint in (str, int, float, bool, types.NoneType)


def _amounts(amounts: dict[str, int]) -> dict[str, float]:
    return {name: plain_amount(name, amount) for name, amount in amounts.items()}


def plain_amount(resource: str, amount: int) -> float:
    """Return an amount of the wire in the units of `--json`: cores, bytes, or whole units."""
    return amount / 100 if resource == "cpu" else amount


def _field(value: object) -> object:
    if type(value) is tuple and len(value) == len(RESOURCE_NAMES) and set(map(type, value)) == {float}:
        return dict(zip(RESOURCE_NAMES, value, strict=True))
    return plain(value)


def indented_json(value: object) -> bytes:
    """Return one JSON document, indented by two spaces."""
    return msgspec.json.format(msgspec.json.encode(plain(value)), indent=2)
