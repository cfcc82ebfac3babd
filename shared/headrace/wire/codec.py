"""Bytes to Structs and back, with every defect of foreign bytes turned into one error.

msgspec checks types, tags and bounds. What it cannot say in a type is checked here once for all messages:
the size, and that no float without bounds is NaN or infinite (msgpack carries both; `headrace.resources.Finite` has bounds).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec

from headrace.errors import HeadraceError

#: The largest message that is encoded or decoded; leaves room for headers under the bus's own limit of 512 KiB.
LARGEST_MESSAGE_BYTES = 500 * 1024

T = TypeVar("T")
Item = TypeVar("Item", bound=msgspec.Struct)


class BadMessage(HeadraceError):
    """Bytes that are not the message they should be."""


class MessageTooLarge(HeadraceError):
    """A message is larger than the wire carries, and nothing was sent."""

    def __init__(self, kind: str, size_bytes: int) -> None:
        self.kind = kind
        self.size_bytes = size_bytes
        super().__init__(f"{kind}: {size_bytes} bytes, at most {LARGEST_MESSAGE_BYTES} are carried; nothing was sent")


#: A float in msgpack, of eight bytes and of four, of which all bits of the exponent are set.
_DOUBLE_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
_SINGLE_NOT_FINITE = re.compile(rb"\xca[\x7f\xff][\x80-\xff]")
#: How a schema says the bounds of a number.
_LOWEST = {"minimum", "exclusiveMinimum"}
_HIGHEST = {"maximum", "exclusiveMaximum"}

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}
#: Kinds of messages that are known to have no float without bounds: the bytes of these need not be looked at.
_bounded: set[Any] = set()


def encode(message: msgspec.Struct) -> bytes:
    """The message in msgpack. Raises `MessageTooLarge`."""
    data = _encoder.encode(message)
    if len(data) > LARGEST_MESSAGE_BYTES:
        raise MessageTooLarge(type(message).__name__, len(data))
    return data


def runs_within(items: Iterable[Item], most_bytes: int) -> Iterator[list[Item]]:
    """Cuts items into runs of at most `most_bytes` in msgpack each, in their order. An item above that has a run of its own."""
    return _runs(((item, len(_encoder.encode(item))) for item in items), most_bytes)


def runs_of_bytes(items: Iterable[bytes], most_bytes: int) -> Iterator[list[bytes]]:
    """Cuts what is encoded already into runs, as `runs_within` does."""
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
    """Reads a message of `kind` (a Struct or a union of tagged ones), strictly.

    Raises `BadMessage` for anything else: other types, unknown tags, bounds passed, a NaN, too many bytes, rubbish.
    """
    if len(data) > LARGEST_MESSAGE_BYTES:
        raise BadMessage(f"{len(data)} bytes, at most {LARGEST_MESSAGE_BYTES} are read")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        message = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise BadMessage(str(error)) from None
    if kind not in _bounded and _maybe_not_finite(data):
        if _has_unbounded_float(kind):  # type: ignore[arg-type]
            _refuse_not_finite(message)
        else:
            _bounded.add(kind)
    return message  # type: ignore[no-any-return]


def _maybe_not_finite(data: bytes) -> bool:
    """True if bytes look like a float that is NaN or infinite: all bits of its exponent are set.

    They may be something else, but where there are none nothing needs to be walked through, which would take longer than decoding.
    """
    # A byte is found 20 times as fast by itself as by an expression, and most messages have neither.
    return (b"\xcb" in data and _DOUBLE_NOT_FINITE.search(data) is not None) or (
        b"\xca" in data and _SINGLE_NOT_FINITE.search(data) is not None
    )


@cache
def _has_unbounded_float(kind: Any) -> bool:
    # Only asked where the bytes look so: a schema takes 10 ms to make.
    return _mentions_unbounded(msgspec.json.schema(kind))


def _mentions_unbounded(schema: Any) -> bool:
    """True if a schema has a number without both bounds. Where a float has them, msgspec refuses NaN and infinity itself."""
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
