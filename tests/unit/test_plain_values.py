"""Answers as plain JSON values."""

from __future__ import annotations

import enum
import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, NewType

import msgspec
import pytest

import headrace.wire
from headrace.pools import PartialResources
from headrace.resources import Resources, Share
from headrace.wire.plain_values import _converted, plain

Name = NewType("Name", str)


class Colour(enum.StrEnum):
    RED = "red"


class Inner(msgspec.Struct, frozen=True):
    amount: Resources
    share: Share


class Outer(msgspec.Struct, frozen=True):
    name: Name
    count: Annotated[int, msgspec.Meta(ge=0)]
    colour: Colour
    data: bytes
    inner: Inner | None
    either: int | Colour | None
    anything: object
    by_colour: dict[Colour, list[Inner]]
    parts: PartialResources
    pairs: tuple[tuple[int, bytes], ...] = ()
    numbers: frozenset[int] = frozenset()


AMOUNT = Resources(user_slots=1, cpu=250, memory=2**20)
AMOUNTS = {"user_slots": 1, "cpu": 2.5, "gpu": 0, "memory": 2**20, "network": 0}
SHARE = (0.5, 0.0, 0.25, 0.0, 1.0)
INNER = {"amount": AMOUNTS, "share": dict(zip(("user_slots", "cpu", "gpu", "memory", "network"), SHARE, strict=True))}


def test_every_value_of_a_struct_is_plain_whatever_type_its_field_has() -> None:
    inner = Inner(AMOUNT, SHARE)
    outer = Outer(
        name=Name("n"),
        count=3,
        colour=Colour.RED,
        data=b"\xff",
        inner=inner,
        either=Colour.RED,
        anything=defaultdict(list, {Colour.RED: [inner]}),
        by_colour={Colour.RED: [inner]},
        parts=PartialResources(cpu=150),
        pairs=((1, b"x"),),
        numbers=frozenset((7,)),
    )
    found = plain(outer)
    # `colour` must be a text and no member, because YAML and tables write what they get.
    assert isinstance(found, dict)
    assert {type(found["colour"]), type(found["either"]), type(next(iter(found["by_colour"])))} == {str}
    assert found == {
        "name": "n",
        "count": 3,
        "colour": "red",
        "data": "�",
        "inner": INNER,
        "either": "red",
        "anything": {"red": [INNER]},
        "by_colour": {"red": [INNER]},
        "parts": {"cpu": 1.5},
        "pairs": [[1, "x"]],
        "numbers": [7],
    }
    empty = msgspec.structs.replace(outer, inner=None, either=None, anything=None, by_colour={}, pairs=())
    found = plain(empty)
    assert isinstance(found, dict)
    assert [found[name] for name in ("inner", "either", "anything", "by_colour", "pairs")] == [None, None, None, {}, []]


def _structs_of_the_wire() -> Iterator[type[msgspec.Struct]]:
    for module in pkgutil.iter_modules(headrace.wire.__path__, "headrace.wire."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct):
                yield value


@pytest.mark.parametrize("kind", sorted(set(_structs_of_the_wire()), key=str), ids=lambda kind: kind.__name__)
def test_the_types_of_all_messages_can_be_read(kind: type[msgspec.Struct]) -> None:
    assert set(_converted(kind)) <= set(kind.__struct_fields__)
