"""The most bytes that a message takes by its type alone: names at their longest, texts and lists at the bounds of their types."""

from __future__ import annotations

import enum
import math
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from headrace.ids import AllocationId, Incarnation, NodeName, OperationId, PoolName, TreeName, UserName

__all__ = ["most_bytes"]

#: Of names that their rules let through, or that we make.
_NAMES: dict[Any, int] = {
    OperationId: 64,
    NodeName: 63,
    TreeName: 63,
    UserName: 63,
    PoolName: 400,
    AllocationId: 200,
    Incarnation: 100,
}
#: Of anything before its contents, and of any number.
_HEAD = 5
_NUMBER = 9


def most_bytes(kind: Any) -> float:
    """Infinite if the type says nothing of it."""
    if kind in _NAMES:
        return _HEAD + _NAMES[kind]
    if get_origin(kind) is Annotated:
        inner, *bounds = get_args(kind)
        length = min((one.max_length for one in bounds if getattr(one, "max_length", None) is not None), default=None)
        return most_bytes(inner) if length is None else min(most_bytes(inner), _of_length(inner, length))
    if get_origin(kind) in (Union, types.UnionType):
        return max(map(most_bytes, get_args(kind)))
    if get_origin(kind) is Literal:
        return max(_HEAD + len(str(one)) for one in get_args(kind))
    if get_origin(kind) is tuple and get_args(kind)[-1] is not Ellipsis:
        return _HEAD + sum(map(most_bytes, get_args(kind)))
    if isinstance(kind, type):
        return _of_class(kind)
    return math.inf


def _of_length(kind: Any, length: int) -> float:
    if kind is str:
        return _HEAD + 4 * length
    if kind is bytes:
        return _HEAD + length
    if get_origin(kind) is list:
        return _HEAD + length * most_bytes(get_args(kind)[0])
    return math.inf


def _of_class(kind: type) -> float:
    if issubclass(kind, enum.Enum):
        return max(_HEAD + len(str(one.value)) for one in kind)
    if kind in (int, float, bool, type(None)):
        return _NUMBER
    if issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, include_extras=True)
        named = sum(_HEAD + len(name) for name in kind.__struct_fields__)
        return _HEAD + named + 40 + sum(most_bytes(hints[name]) for name in kind.__struct_fields__)
    return math.inf
