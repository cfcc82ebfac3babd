"""Reading what a person writes on a pool: a JSON object with only the keys to change, figures as people write them; pure.

`null` takes a key back to its default. A map of resources is replaced as a whole (a resource that is left out is not guaranteed);
`integral_guarantees` is merged key by key. Everything else is refused with the key, what stood there and what would do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace.errors import BadInput
from headrace.resources import RESOURCE_NAMES, ZERO, Resources, parse_resources
from headrace.wire.pools import IntegralGuarantees, IntegralType, PoolSettings
from headrace.wire.refusals import BadRequest
from headrace_fair_share.tree import near

__all__ = ["LARGEST_WEIGHT", "SMALLEST_WEIGHT", "with_changes"]

SMALLEST_WEIGHT: Final = 2.0**-26
LARGEST_WEIGHT: Final = 2.0**26
_LONGEST_SHOWN: Final = 100


def with_changes(settings: PoolSettings, changes: bytes) -> PoolSettings | BadRequest:
    """The settings with the keys of a JSON object changed."""
    try:
        plain = msgspec.json.decode(changes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return BadRequest("settings", _shown(changes.decode("utf-8", "replace")), f"a JSON object ({error})")
    try:
        changed: PoolSettings = _changed(settings, plain, "settings", _SETTINGS)
    except BadInput as error:
        return BadRequest(error.place, _shown(error.value), error.expected)
    return changed


def _changed(before: Any, plain: object, place: str, readers: dict[str, Callable[[Any, object, str], object]]) -> Any:
    if not isinstance(plain, dict):
        raise BadInput(place, plain, "an object with the keys to change")
    values = msgspec.structs.asdict(before)
    defaults = msgspec.structs.asdict(type(before)())
    for key, value in plain.items():
        if key not in readers:
            hint = near(key, readers)
            words = f"did you mean {' or '.join(hint)}?" if hint else "one of " + ", ".join(readers)
            raise BadInput(f"{place}.{key}", value, words)
        values[key] = defaults[key] if value is None else readers[key](values[key], value, f"{place}.{key}")
    return type(before)(**values)


def _weight(_before: object, value: object, place: str) -> float:
    expected = f"a number from {SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadInput(place, value, expected)
    try:
        weight = float(value)
    except (ValueError, OverflowError):
        raise BadInput(place, value, expected) from None
    if not (math.isfinite(weight) and SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT):
        raise BadInput(place, value, expected)
    return weight


def _resources(_before: object, value: object, place: str) -> Resources:
    if not isinstance(value, dict):
        raise BadInput(place, value, "an object such as " + '{"cpu": "10", "memory": "4G"}')
    for key, figure in value.items():
        if key not in RESOURCE_NAMES:
            hint = near(key, RESOURCE_NAMES)
            words = f"did you mean {' or '.join(hint)}?" if hint else "one of " + ", ".join(RESOURCE_NAMES)
            raise BadInput(f"{place}.{key}", figure, words)
        if figure is not None and (isinstance(figure, bool) or not isinstance(figure, int | float | str)):
            raise BadInput(f"{place}.{key}", figure, "a figure")
    present = {key: figure for key, figure in value.items() if figure is not None}
    return parse_resources(present, place=place) if present else ZERO


def _type(_before: object, value: object, place: str) -> IntegralType:
    try:
        return IntegralType(str(value))
    except ValueError:
        raise BadInput(place, value, "one of " + ", ".join(IntegralType)) from None


def _integral(before: Any, value: object, place: str) -> IntegralGuarantees:
    result = _changed(before, value, place, _INTEGRAL)
    assert isinstance(result, IntegralGuarantees)
    return result


_INTEGRAL: Final[dict[str, Callable[[Any, object, str], object]]] = {
    "guarantee_type": _type,
    "resource_flow": _resources,
    "burst_guarantee_resources": _resources,
}
_SETTINGS: Final[dict[str, Callable[[Any, object, str], object]]] = {
    "weight": _weight,
    "strong_guarantee_resources": _resources,
    "integral_guarantees": _integral,
}


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
