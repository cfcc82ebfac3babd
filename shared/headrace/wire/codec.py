"""Encode Structs to bytes and decode bytes to Structs; every defect of received bytes raises the same error.

msgspec checks types, tags and bounds. This module checks what a type cannot express: the size of each message, and that
no float is NaN or infinite, which msgpack allows. msgspec itself refuses NaN and infinity in a float with bounds, such
as `headrace.resources.Finite`; this module checks the floats without bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from headrace.errors import HeadraceError

#: Largest message that is encoded or decoded, in bytes. This leaves space for headers below the bus's own limit of 512
#: KiB.
LARGEST_MESSAGE_BYTES = 500 * 1024

#: Errors that msgspec raises for stored or received bytes that it cannot decode. All but the first are errors of Python, such as
#: those for texts that are not UTF-8 and for values that are nested too deep.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)

T = TypeVar("T")
Item = TypeVar("Item", bound=msgspec.Struct)


class BadMessage(HeadraceError):
    """The bytes are not a valid message of the expected kind."""


class MessageTooLarge(HeadraceError):
    """A message is larger than the bus carries; nothing was sent."""

    def __init__(self, kind: str, size_bytes: int) -> None:
        self.kind = kind
        self.size_bytes = size_bytes
        super().__init__(
            f"{kind}: {size_bytes} bytes, but a message has at most {LARGEST_MESSAGE_BYTES}; nothing was sent"
        )


#: Pattern of an eight-byte float in msgpack whose exponent bits are all set (NaN or infinity).
_DOUBLE_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
#: Pattern of a four-byte float whose exponent bits are all set.
_SINGLE_NOT_FINITE = re.compile(rb"\xca[\x7f\xff][\x80-\xff]")
#: JSON schema keys that set the lower bound of a number.
_LOWEST = {"minimum", "exclusiveMinimum"}
#: JSON schema keys that set the upper bound of a number.
_HIGHEST = {"maximum", "exclusiveMaximum"}

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}
#: Message kinds whose floats all have both bounds. msgspec refuses NaN and infinity in such floats, so the bytes of these
#: messages need not be searched for them.
_bounded: set[Any] = set()


def encode(message: msgspec.Struct) -> bytes:
    """Return the message in msgpack. Raises `MessageTooLarge`."""
    data = _encoder.encode(message)
    if len(data) > LARGEST_MESSAGE_BYTES:
        raise MessageTooLarge(type(message).__name__, len(data))
    return data


def runs_within(items: Iterable[Item], most_bytes: int) -> Iterator[list[Item]]:
    """Yield the items, in their order, in lists of at most `most_bytes` of msgpack. A larger item gets a list of its own."""
    return _runs(((item, len(_encoder.encode(item))) for item in items), most_bytes)


def runs_of_bytes(items: Iterable[bytes], most_bytes: int) -> Iterator[list[bytes]]:
    """Yield already encoded items in lists of at most `most_bytes`, as `runs_within` does for Structs."""
    return _runs(((item, len(item)) for item in items), most_bytes)


def _runs(items: Iterable[tuple[T, int]], most_bytes: int) -> Iterator[list[T]]:
    run: list[T] = []
    size_bytes = 0
    for item, length in items:
        if run and size_bytes + length > most_bytes:
            yield run
            run, size_bytes = [], 0
        run.append(item)
        size_bytes += length
    if run:
        yield run


def decode(data: bytes, kind: type[T]) -> T:
    """Return the message of `kind` (a Struct or a union of tagged Structs) that the bytes hold. Values are not converted: a value
    of another type is refused.

    Raises `BadMessage` for anything else: a wrong type, an unknown tag, a value out of bounds, a NaN, too many bytes, or
    bytes that are not msgpack.
    """
    if len(data) > LARGEST_MESSAGE_BYTES:
        raise BadMessage(f"{len(data)} bytes, at most {LARGEST_MESSAGE_BYTES} are read")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        message = decoder.decode(data)
    except UNREADABLE as error:
        raise BadMessage(str(error)) from None
    if kind not in _bounded and _maybe_not_finite(data):
        if _has_unbounded_float(kind):  # type: ignore[arg-type]
            _refuse_not_finite(message)
        else:
            _bounded.add(kind)
    return message  # type: ignore[no-any-return]


def _maybe_not_finite(data: bytes) -> bool:
    """True if the bytes contain a pattern that may be a NaN or an infinite float, whose exponent bits are all set.

    The pattern may also be other data. If the pattern is absent, `decode` need not walk through the message, which
    would take longer than decoding.
    """
    # Look for the first byte of a float (0xcb or 0xca) before the whole pattern: `in` is 20 times as fast as the
    # regular expression, and most messages contain neither byte.
    return (b"\xcb" in data and _DOUBLE_NOT_FINITE.search(data) is not None) or (
        b"\xca" in data and _SINGLE_NOT_FINITE.search(data) is not None
    )


@cache
def _has_unbounded_float(kind: Any) -> bool:
    # `decode` calls this only when the bytes look like a NaN or infinity, because making a schema takes 10 ms.
    return _mentions_unbounded(msgspec.json.schema(kind))


def _mentions_unbounded(schema: Any) -> bool:
    """True if a JSON schema has a number that lacks a bound, for which msgspec does not refuse NaN and infinity."""
    if isinstance(schema, list):
        return any(map(_mentions_unbounded, schema))
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "number":
        return not (_LOWEST & schema.keys() and _HIGHEST & schema.keys())
    return any(map(_mentions_unbounded, schema.values()))


def _refuse_not_finite(value: object) -> None:
    match value:
        case float():
            if not math.isfinite(value):
                raise BadMessage(f"{value} where a finite number was expected")
        case msgspec.Struct():
            for name in value.__struct_fields__:
                _refuse_not_finite(getattr(value, name))
        case list() | tuple() | set() | frozenset():
            for item in value:
                _refuse_not_finite(item)
        case dict():
            for key, item in value.items():
                _refuse_not_finite(key)
                _refuse_not_finite(item)
