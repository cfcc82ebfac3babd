"""Bytes that are almost a message: what hypothesis throws at every handler.

`mutated(kind)` draws a valid message of a Struct type (or of a union) and damages it: bits flipped, bytes cut, doubled, put in; values
of other types, huge numbers, NaN in its places; keys missing or foreign. Some draws stay valid: a handler must live with those too.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st

from headrace.resources import MOST_OF_A_NODE, Resources
from headrace.runtime.endpoints import Endpoints
from headrace.wire.codec import BadMessage, decode
from headrace.wire.heartbeat import AllocationReport, Heartbeat, Start
from headrace.wire.refusals import BadRequest

__all__ = ["answers_to", "damaged", "mutated", "mutated_for", "mutated_several", "reads", "valid"]

H = TypeVar("H", bound=tuple[Any, ...])

#: Values for a place where another value was expected.
_ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**64 - 1, -(2**63)]),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e308, 5e-324]),
    st.sampled_from(["", "\x00", "a.b", "*", ">", "../..", "<Root>", "x" * 5000, "\ud7ff", "é"]),
    st.binary(max_size=8),
    st.just([]),
    st.just({}),
    st.just([[[[[[]]]]]]),
)


@cache
def valid(kind: Any) -> st.SearchStrategy[Any]:
    """Messages of `kind`, drawn from its annotations; every bound that msgspec checks holds."""
    return _of(msgspec.inspect.type_info(kind))


def mutated(kind: Any) -> st.SearchStrategy[bytes]:
    """Encoded messages of `kind`, damaged in one of many ways."""
    return valid(kind).flatmap(lambda message: damaged(message))


def mutated_several(kind: Any) -> st.SearchStrategy[list[bytes]]:
    """As many as one life of a service is sent in a test of its endpoints."""
    return st.lists(mutated(kind), min_size=5, max_size=25)


def mutated_for(handlers: Sequence[H]) -> st.SearchStrategy[list[tuple[H, bytes]]]:
    """Damaged messages for handlers, which are tuples that end with the kind of message that each expects."""
    to_one = st.sampled_from(handlers).flatmap(lambda handler: st.tuples(st.just(handler), mutated(handler[-1])))
    return st.lists(to_one, min_size=5, max_size=40)


def reads(data: bytes, kind: Any) -> bool:
    """True if the bytes are a whole message of that kind."""
    try:
        decode(data, kind)
    except BadMessage:
        return False
    return True


async def answers_to(
    messages: Sequence[bytes],
    kind: Any,
    answer: Any,
    endpoints: Endpoints,
    ask: Callable[[bytes], Awaitable[bytes | None]],
) -> list[Any]:
    """The answers to all messages, of which the endpoints has refused and counted those that are none, and only those.

    `ask` returns None for a message that another service is to answer.
    """
    replies = [await ask(message) for message in messages]
    answers = [decode(reply, answer) for reply in replies if reply is not None]
    broken = [each for each in answers if isinstance(each, BadRequest) and each.place == "message"]
    assert len(broken) == sum(not reads(message, kind) for message in messages) == endpoints.malformed
    return answers


def damaged(message: msgspec.Struct) -> st.SearchStrategy[bytes]:
    """The message in msgpack, damaged."""
    data = msgspec.msgpack.encode(message)
    plain = msgspec.msgpack.decode(data)
    return st.one_of(
        st.binary(max_size=64),
        st.builds(_flip, st.just(data), st.integers(0, max(0, len(data) * 8 - 1))),
        st.integers(0, len(data)).map(lambda size: data[:size]),
        st.builds(_insert, st.just(data), st.integers(0, len(data)), st.binary(min_size=1, max_size=9)),
        st.just(data + data),
        _changed(plain).map(msgspec.msgpack.encode),
        _changed(plain).flatmap(_changed).map(msgspec.msgpack.encode),
    )


def _flip(data: bytes, bit: int) -> bytes:
    if not data:
        return b"\xff"
    at, place = divmod(bit, 8)
    return data[:at] + bytes([data[at] ^ (1 << place)]) + data[at + 1 :]


def _insert(data: bytes, at: int, more: bytes) -> bytes:
    return data[:at] + more + data[at:]


@st.composite
def _changed(draw: st.DrawFn, plain: Any) -> Any:
    """`plain` with one place, at any depth, changed, taken out or added."""
    if isinstance(plain, dict) and plain and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(plain, key=str)))
        match draw(st.integers(0, 3)):
            case 0:
                return {k: v for k, v in plain.items() if k != key}
            case 1:
                return {**plain, draw(st.sampled_from(["", "foreign", "term", "version"])): draw(_ODD_VALUES)}
            case _:
                return {**plain, key: draw(_changed(plain[key]))}
    if isinstance(plain, list) and plain and draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(plain) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                return plain[:at] + plain[at + 1 :]
            case 1:
                return plain * 2
            case _:
                return [*plain[:at], draw(_changed(plain[at])), *plain[at + 1 :]]
    return draw(_ODD_VALUES)


def _bounds(low: int | None, high: int | None, low_open: int | None, high_open: int | None) -> tuple[int, int]:
    least = low if low is not None else (low_open + 1 if low_open is not None else -(2**40))
    most = high if high is not None else (high_open - 1 if high_open is not None else 2**40)
    return least, most


def _of(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case msgspec.inspect.StructType():
            return _struct(info)
        case msgspec.inspect.UnionType():
            return st.one_of([_of(each) for each in info.types])
        case msgspec.inspect.IntType():
            least, most = _bounds(info.ge, info.le, info.gt, info.lt)
            return st.one_of(st.integers(least, most), st.integers(least, min(most, least + 5)))
        case msgspec.inspect.FloatType():
            lower = info.ge if info.ge is not None else info.gt if info.gt is not None else -1e6
            upper = info.le if info.le is not None else info.lt if info.lt is not None else 1e6
            return st.floats(
                lower, upper, allow_nan=False, exclude_min=info.gt is not None, exclude_max=info.lt is not None
            )
        case msgspec.inspect.StrType(pattern=str(pattern)):
            return st.from_regex(pattern)
        case msgspec.inspect.StrType():
            least_size = info.min_length or 0
            text = st.text("abcdefghij-0123456789", min_size=least_size, max_size=least_size + 8)
            return st.one_of(text, st.sampled_from(["alpha", "beta", "gamma-1"])) if least_size <= 5 else text
        case msgspec.inspect.BytesType():
            return st.binary(max_size=16)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.EnumType():
            return st.sampled_from(list(info.cls))
        case msgspec.inspect.ListType():
            least_size = info.min_length or 0
            return st.lists(_of(info.item_type), min_size=least_size, max_size=least_size + 3)
        case msgspec.inspect.VarTupleType():
            return st.lists(_of(info.item_type), max_size=3).map(tuple)
        case msgspec.inspect.AnyType():
            return st.one_of(
                st.none(),
                st.integers(-5, 5),
                st.text("abc", max_size=3),
                st.binary(max_size=2),
                st.dictionaries(st.one_of(st.integers(0, 3), st.text("ab", max_size=2)), st.floats(0, 1), max_size=2),
                st.builds(msgspec.msgpack.Ext, st.integers(0, 9), st.binary(max_size=2)),
            )
        case msgspec.inspect.TupleType():
            return st.tuples(*[_of(each) for each in info.item_types])
        case msgspec.inspect.DictType():
            return st.dictionaries(_of(info.key_type), _of(info.value_type), max_size=3)
        case _:
            raise NotImplementedError(f"no strategy for {info!r}")


def _struct(info: msgspec.inspect.StructType) -> st.SearchStrategy[Any]:
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in info.fields:
        strategy = _of(field.type)
        if info.cls in (Heartbeat, AllocationReport, Start) and getattr(field.type, "cls", None) is Resources:
            # They check it themselves: no node has more.
            strategy = st.builds(Resources, *(st.integers(0, most) for most in MOST_OF_A_NODE.as_tuple()))
        if not field.required:
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            strategy = st.one_of(st.just(default), strategy)
        fields[field.name] = strategy
    return st.builds(info.cls, **fields)
