"""Describe what is wrong with a request, before it is sent."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from headrace.errors import BadInput
from headrace.wire.codec import BadMessage, decode, encode

#: The form of msgspec's error texts: the expected type, a bound, and then the path of the value.
_DEFECT: Final = re.compile(
    r"(?P<what>Expected `(?P<kind>[^`]+)`(?P<length> of length)?(?: (?P<sign><=|>=|<|>) (?P<bound>\S+))?(?:, got `[^`]*`)?|.*?)"
    r"(?: - at `\$\.?(?P<place>.*)`)?\Z"
)
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a map",
}
_UNITS: Final = {"str": " characters", "array": " entries", "object": " entries"}
_SIGNS: Final = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def encode_request(request: msgspec.Struct) -> bytes:
    """Return the request in msgpack.

    Raises `BadInput`, with the path and the value, for a value that no service would accept. Raises `MessageTooLarge`.
    """
    kind: Any = type(request)
    try:
        data = encode(request)
        decode(data, kind)
    except OverflowError:
        try:
            msgspec.convert(msgspec.to_builtins(request), kind)
        except msgspec.ValidationError as error:
            raise bad_input(request, str(error), kind.__name__) from None
        raise
    except BadMessage as error:
        raise bad_input(request, str(error), kind.__name__) from None
    return data


def bad_input(value: object, text: str, name: str) -> BadInput:
    """Return the error for a value that msgspec refused with the error text `text`. If the value as a whole is wrong, and not a
    part of it, the error names `name` as the place.
    """
    found = _DEFECT.match(text)
    assert found is not None
    place, wrong = _at(value, found["place"] or "")
    if found["sign"] is None:
        kinds = [_KINDS.get(kind, kind) for kind in (found["kind"] or "").split(" | ")]
        expected = "a smaller number" if "out of range" in text else " or ".join(filter(None, kinds)) or found["what"]
        expected = "a day such as 2026-11-28" if "RFC3339 encoded date" in text else expected
    else:
        figure = found["bound"] + (_UNITS.get(found["kind"], "") if found["length"] else "")
        joined = " of " if found["length"] else ", "
        expected = f"{_KINDS.get(found['kind'], found['kind'])}{joined}{_SIGNS[found['sign']]} {figure}"
    return BadInput(place or name, wrong, expected)


def _at(value: Any, place: str) -> tuple[str, object]:
    """Return the path to a part of `value` that msgspec reports, written with names of fields, and the part itself.

    msgspec does not report keys of maps. The path of a value in a map therefore ends at the map.
    """
    steps: list[str] = []
    for name, index in _STEP.findall(place):
        if index and isinstance(value, msgspec.Struct):  # A Struct that is sent as a list.
            name = value.__struct_fields__[int(index)]
        try:
            value = value[int(index)] if not name else value[name] if isinstance(value, dict) else getattr(value, name)
        except (AttributeError, LookupError, TypeError):
            break
        steps.append(f".{name}" if name else f"[{index}]")
    return "".join(steps).removeprefix("."), value
