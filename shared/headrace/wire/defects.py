"""Describe what is wrong with a request, before it is sent."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from headrace.errors import BadInput
from headrace.wire.codec import BadMessage, decode, encode

#: The form of msgspec's error texts: the expected type, a bound, and then the path of the value.
_DEFECT: Final = re.compile(
    r"(?P<what>Expected `(?P<kind>\w+)`(?P<length> of length)?(?: (?P<sign><=|>=|<|>) (?P<bound>\S+))?|.*?)"
    r"(?: - at `\$\.?(?P<place>.*)`)?\Z"
)
_KINDS: Final = {"int": "a whole number", "float": "a number", "str": "a text", "array": "a list", "object": "a map"}
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
            raise _bad_input(request, str(error)) from None
        raise
    except BadMessage as error:
        raise _bad_input(request, str(error)) from None
    return data


def _bad_input(request: msgspec.Struct, text: str) -> BadInput:
    found = _DEFECT.match(text)
    assert found is not None
    place, value = _at(request, found["place"] or "")
    if found["sign"] is None:
        expected = "a smaller number" if "out of range" in text else found["what"]
    else:
        figure = found["bound"] + (_UNITS.get(found["kind"], "") if found["length"] else "")
        joined = " of " if found["length"] else ", "
        expected = f"{_KINDS.get(found['kind'], found['kind'])}{joined}{_SIGNS[found['sign']]} {figure}"
    return BadInput(place or type(request).__name__, value, expected)


def _at(value: Any, place: str) -> tuple[str, object]:
    """Return the path with names of fields, and the value at that path.

    msgspec does not report keys of maps. The path of a value in a map therefore ends at the map.
    """
    steps: list[str] = []
    for name, index in _STEP.findall(place):
        if index and isinstance(value, msgspec.Struct):  # A Struct that is sent as a list.
            name = value.__struct_fields__[int(index)]
        try:
            value = getattr(value, name) if name else value[int(index)]
        except (AttributeError, LookupError, TypeError):
            break
        steps.append(f".{name}" if name else f"[{index}]")
    return "".join(steps).removeprefix("."), value
