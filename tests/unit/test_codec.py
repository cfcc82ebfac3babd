"""Bytes to Structs and back."""

from __future__ import annotations

import importlib
import math
import pkgutil
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace.wire
from headrace.ids import PoolName
from headrace.resources import Resources
from headrace.wire import codec
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, BadMessage, MessageTooLarge, decode, encode
from headrace.wire.heartbeat import Heartbeat, Orders
from headrace.wire.integral import Advance, Advanced
from headrace.wire.operations import OperationSpec, StartOperation
from headrace.wire.pool_changes import ChangePools, SetOptions
from headrace.wire.pools import GetPools
from headrace.wire.refusals import NotFound, Refusal, decode_answer
from headrace.wire.snapshots import ElementKind, ShareItem, SharePart, UsagePart
from tests.support.effort import few_or_many
from tests.support.mutate import damaged, mutated, valid

KINDS: list[Any] = [Heartbeat, Orders, SharePart, UsagePart, StartOperation, GetPools, ChangePools, Advance]
of_each_kind = settings(max_examples=few_or_many(10, 200))


class Deep(msgspec.Struct):
    table: dict[str, list[tuple[float, int]]] = {}
    maybe: float | None = None


@pytest.mark.parametrize("kind", KINDS)
@of_each_kind
@given(data=st.data())
def test_always_what_was_encoded_is_decoded(kind: Any, data: st.DataObject) -> None:
    message = data.draw(valid(kind))

    assert decode(encode(message), kind) == message


@pytest.mark.parametrize("kind", KINDS)
@of_each_kind
@given(data=st.data())
def test_never_do_damaged_bytes_raise_anything_but_bad_message(kind: Any, data: st.DataObject) -> None:
    message = data.draw(mutated(kind))
    try:
        decoded = decode(message, kind)
    except BadMessage:
        return
    # Bytes that are accepted as a message are exactly one message.
    assert decode(encode(decoded), kind) == decoded


@pytest.mark.parametrize("figure", [math.nan, -math.nan, math.inf, -math.inf])
def test_a_float_that_is_no_number_is_refused_wherever_it_stands(figure: float) -> None:
    for plain in ({"maybe": figure}, {"table": {"a": [[1.0, 2], [figure, 3]]}}):
        with pytest.raises(BadMessage, match="finite"):
            decode(msgspec.msgpack.encode(plain), Deep)


@pytest.mark.parametrize("kind", KINDS)
def test_no_message_that_comes_often_is_walked_through_for_its_floats(kind: Any) -> None:
    # A part of a snapshot has a hundred thousand of them, and some of their bytes always look like no number.
    assert not codec._has_unbounded_float(kind)


@pytest.mark.parametrize("figure", [math.nan, -math.nan, math.inf, -math.inf])
def test_a_share_that_is_no_number_is_refused(figure: float) -> None:
    item = ShareItem(ElementKind.POOL, "a", PoolName(""), usage_share=(0.5, figure, 0.0, 0.0, 0.0))

    with pytest.raises(BadMessage, match="float"):
        decode(encode(item), ShareItem)


def test_a_short_float_that_is_no_number_is_refused_too() -> None:
    short = b"\x81\xa5maybe\xca" + struct.pack(">f", math.inf)

    with pytest.raises(BadMessage, match="finite"):
        decode(short, Deep)


@given(st.booleans(), st.integers(0, 2**52 - 1))
def test_never_is_a_float_taken_that_is_no_number(negative: bool, mantissa: int) -> None:
    double = (negative << 63 | 0x7FF << 52 | mantissa).to_bytes(8, "big")
    single = (negative << 31 | 0xFF << 23 | mantissa % 2**23).to_bytes(4, "big")

    for packed in (b"\xcb" + double, b"\xca" + single):
        with pytest.raises(BadMessage, match="finite"):
            decode(b"\x81\xa5maybe" + packed, Deep)


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20))
def test_always_a_finite_float_is_taken(figure: float, name: str) -> None:
    message = Deep(table={name: [(figure, 1)]}, maybe=figure)

    assert decode(encode(message), Deep) == message


def test_bytes_that_only_look_like_a_float_that_is_no_number_do_no_harm() -> None:
    message = Deep(table={"Ë\x7f": [(1.5, 0xCB7FF0)]})

    assert decode(encode(message), Deep) == message


def test_a_message_that_is_too_large_is_neither_sent_nor_read() -> None:
    large = SetOptions(b" " * LARGEST_MESSAGE_BYTES)

    with pytest.raises(MessageTooLarge, match="SetOptions: 512"):
        encode(large)
    with pytest.raises(BadMessage, match="at most 512000 are read"):
        decode(msgspec.msgpack.encode(large), SetOptions)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91" * 100_000, b"\x81\xa1a", b"\xa1\xff", b"\xdf\xff\xff\xff\xff"])
def test_rubbish_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(data, StartOperation)


def test_an_amount_below_zero_is_refused() -> None:
    spec = OperationSpec(pool="a", argv=["x"], resources=Resources(cpu=-1))  # type: ignore[arg-type]

    with pytest.raises(BadMessage, match="resources"):
        decode(encode(spec), OperationSpec)


def test_an_answer_and_a_refusal_are_told_apart() -> None:
    answer = Advanced(tree="default", version=(1, 2), pools=[])  # type: ignore[arg-type]
    refusal = NotFound("pool", "a", ["b"])

    assert isinstance(decode_answer(encode(answer), Advanced), Advanced)
    assert decode_answer(encode(refusal), Advanced) == refusal


@given(data=st.data())
def test_never_is_a_damaged_refusal_taken_for_an_answer_that_was_none(data: st.DataObject) -> None:
    message = data.draw(damaged(NotFound("pool", "a", ["b"])))
    either: Any = Advanced | Refusal
    try:
        answer = decode(message, either)
    except BadMessage:
        return
    assert not isinstance(answer, Advanced)


def test_no_pattern_of_a_message_accepts_a_text_with_a_line_end_behind_it() -> None:
    """`$` also matches before a line end, and the texts become parts of subjects, keys and paths."""
    found = {pattern for kind in structs_of_wire() for pattern in patterns_in(msgspec.inspect.type_info(kind))}

    assert len(found) >= 4
    assert [pattern for pattern in found if not pattern.startswith(r"\A") or not pattern.endswith(r"\Z")] == []


def structs_of_wire() -> Iterator[type[msgspec.Struct]]:
    for module in pkgutil.iter_modules(headrace.wire.__path__):
        for kind in vars(importlib.import_module(f"headrace.wire.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                yield kind


def patterns_in(kind: object) -> Iterator[str]:
    """The patterns of all texts of a type, but not of the Structs in it."""
    if isinstance(kind, msgspec.inspect.StrType) and kind.pattern is not None:
        yield kind.pattern
    fields = kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()
    for field in fields:
        if not isinstance(field.type, msgspec.inspect.StructType):
            yield from patterns_in(field.type)
    for name in ("item_type", "key_type", "value_type", "types", "item_types"):
        inner = getattr(kind, name, ())
        for each in inner if isinstance(inner, tuple) else (inner,):
            if not isinstance(each, msgspec.inspect.StructType):
                yield from patterns_in(each)
