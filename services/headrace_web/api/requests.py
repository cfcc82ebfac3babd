"""Reads the request Struct of an endpoint from path, query and body. Pure.

Every value that cannot be used is refused with its place, the value, and what is accepted.
"""

from __future__ import annotations

import enum
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from headrace.errors import BadInput
from headrace.suggestions import hint
from headrace.wire.defects import bad_input

R = TypeVar("R", bound=msgspec.Struct)

#: Largest body of a request, in bytes. A larger body could not be used, since a message of the bus must be smaller.
LARGEST_BODY_BYTES: Final = 1024 * 1024
#: A name of a field in a place such as `changes[0].change`.
_NAMES: Final = re.compile(r"[A-Za-z_]\w*")
#: Text of msgspec about a field that an object lacks.
_MISSING: Final = re.compile(r"missing required field `(\w+)`")


def read_request(
    kind: type[R],
    in_path: Mapping[str, str],
    query: Iterable[tuple[str, str]],
    body: bytes | None,
) -> R:
    """Return the request. `body` is None for an endpoint that reads its fields from the query.

    A list in the query is given by a parameter that occurs several times, or by one value with commas. Raises `BadInput`.
    """
    fields: dict[str, object] = dict(in_path)
    known = [name for name in kind.__struct_fields__ if name not in in_path]
    given = _of_query(kind, query) if body is None else _of_body(body)
    for name, _ in query if body is not None else ():
        raise BadInput.because(f"query: {name}", "this request takes its fields from the body and has no query")
    for name, value in given.items():
        if name not in known:
            where = "query" if body is None else "body"
            raise BadInput(where, name, hint(name, known) if known else "no field")
        fields[name] = value
    try:
        # Path and query give numbers and booleans as text, which a conversion that is not strict accepts. In JSON the types must be right.
        read = msgspec.convert(fields, kind, strict=body is not None)
    except msgspec.ValidationError as error:
        raise _explained(bad_input(fields, str(error), "request"), kind, str(error)) from None
    return read


def _explained(error: BadInput, kind: type[msgspec.Struct], text: str) -> BadInput:
    """Return an error that says what is accepted.

    If a field is missing or a value is no member of an enumeration, msgspec's own text does not say it.
    """
    if missing := _MISSING.search(text):
        place = missing[1] if error.place == "request" else f"{error.place}.{missing[1]}"
        return BadInput.because(place, "this field is required")
    if "enum" in text:
        return BadInput(error.place, error.value, hint(str(error.value), _choices(_type_at(kind, error.place))))
    return error


def _type_at(kind: Any, place: str) -> Any:
    """Return the type at a place such as `changes[0].change`."""
    for name in _NAMES.findall(place):
        while not hasattr(kind, "__struct_fields__"):
            kind = typing.get_args(kind)[0]
        kind = typing.get_type_hints(kind)[name]
    return kind


def _choices(kind: Any) -> list[str]:
    """Return the members of the enumeration in a type, or the values of its literal."""
    if typing.get_origin(kind) is Literal:
        return list(typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return [str(member.value) for member in kind]
    return [choice for part in typing.get_args(kind) for choice in _choices(part)]


def _of_body(body: bytes) -> dict[str, object]:
    if not body.strip():
        return {}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("body", body[:100].decode(errors="replace"), f"a JSON object ({error})") from None
    if not isinstance(value, dict):
        raise BadInput("body", value, "a JSON object")
    return value


def _of_query(kind: type[msgspec.Struct], query: Iterable[tuple[str, str]]) -> dict[str, object]:
    given: dict[str, list[str]] = {}
    for name, value in query:
        given.setdefault(name, []).append(value)
    hints = typing.get_type_hints(kind)
    return {name: _value(name, values, is_list=_is_list(hints.get(name))) for name, values in given.items()}


def _value(name: str, values: Sequence[str], *, is_list: bool) -> object:
    if is_list:
        return [part for value in values for part in value.split(",") if part]
    if len(values) > 1:
        raise BadInput(name, ", ".join(values), "one value")
    return values[0]


def _is_list(hint: Any) -> bool:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return any(map(_is_list, typing.get_args(hint)))
    return typing.get_origin(hint) in (list, tuple)
