"""Messages that are nearly right: made from the type of a message, with values at and beyond its bounds, and some rubbish.

The same seed makes the same messages.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

__all__ = ["Fuzzer"]

#: Names and texts that go wrong somewhere: patterns, paths, code of shells and of terminals, long and foreign letters.
_TEXTS: Final = (
    *(
        "",
        " ",
        ".",
        "..",
        "*",
        ">",
        "a.b",
        "a b",
        "-",
        "-1",
        "0",
        "None",
        "null",
        "<Root>",
        "<root>",
        "a" * 300,
        "ß" * 200,
    ),
    *(
        "../../etc",
        "/",
        "//",
        "/dev/null/x",
        "a/../b",
        "$(true)",
        "`true`",
        "%s%n",
        "{0}",
        "{a.b}",
        "a\nb",
        "a\r\nb",
        "\t",
    ),
    *(
        "\x00",
        "a\x00b",
        "\x1b[2J",
        "\x9b2J",
        "\u202eabc",
        "\u200b",
        "\ufeff",
        "\U0001f4a5" * 20,
        "a\u0301",
        "1e999",
        "NaN",
    ),
    *(
        "true",
        "!",
        "a & b",
        "(a | b",
        "!" * 300,
        "(" * 300,
        "x=1",
        "[",
        "{",
        '{"a": 1}',
        "'",
        '"',
        ";",
        "--help",
        "9" * 40,
    ),
)
_NUMBERS: Final = (
    *(0, 1, -1, 2, 3, 7, 64, 65, 100, 255, 256, 500, 501, 1_000, 4_095, 4_097, 65_536, 10**6, 2**31 - 1, 2**31, 2**32),
    *(2**53 - 1, 2**53, 2**53 + 1, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63)),
)
_FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, 1e-9, 1e9, 1e18, 1e300, math.inf, -math.inf, math.nan)
_DOCUMENTS: Final = (
    *(
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"weight": 2}',
        b'{"weight": -1}',
        b'{"weight": 1e400}',
        b'{"weight": NaN}',
        b"[" * 500,
    ),
    *(
        b'{"weight": 1, "weight": 2}',
        b'{"mode": "fifo"}',
        b'{"mode": "x"}',
        b'{"access": {"use": ["*"]}}',
        b"\xff\xfe",
        b"{",
    ),
    *(
        b'{"max_operation_count": -1}',
        b'{"max_running_operation_count": 1}',
        b'{"a": {"b": {}}}',
        b'"\\ud800"',
        b"\x00" * 9,
    ),
    *(b'{"scheduling_tag_filter": "(((a"}', b'{"strong_guarantee_resources": {"cpu": "1e30"}}', b'{"x": ' + b"[" * 300),
)
#: Bytes that are no message at all: counts that promise more than there is, and nesting without end.
_RUBBISH: Final = (
    *(b"", b"\xc1", b"\xc0", b"\x80", b"\x90", b"{}", b"\xff" * 100, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"),
    *(b"\xc6\xff\xff\xff\xff\x00", b"\xdb\xff\xff\xff\xff", b"\x91" * 5_000, b"\x81\xa1a" * 5_000, b"\xd9\x05ab"),
    b"\xdc\xff\xff" + b"\x80" * 65_535,
)
_DEEPEST: Final = 6


class Fuzzer:
    """Makes messages. `names` are names that the receiver knows."""

    def __init__(self, seed: int, names: Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._names = names

    def message(self, kind: Any, **fields: object) -> bytes:
        """A message of about this kind. `fields` are fields that stay as they are."""
        if not fields and self._random.random() < 0.04:
            rubbish: bytes = self.one_of(_RUBBISH)
            return rubbish
        value = self.value(kind)
        if isinstance(value, dict):
            value |= fields
        return msgspec.msgpack.encode(value)

    def value(self, kind: Any) -> Any:
        """What `msgspec` would make of a message of about this kind."""
        return self._of(inspect.type_info(kind), 0)

    def is_likely(self, share: float) -> bool:
        """True in this share of the calls."""
        return self._random.random() < share

    def _of(self, kind: inspect.Type, depth: int) -> Any:
        if self.is_likely(0.005):
            return self.one_of((None, True, -1, 2**64 - 1, math.nan, "x", b"\x00", [], {}, [[[]]], {1: 2}, {"": {}}))
        match kind:
            case inspect.Metadata():
                return self._of(kind.type, depth)
            case inspect.UnionType():
                return self._of(self.one_of(kind.types), depth)
            case inspect.StrType():
                return self._text(kind)
            case inspect.IntType() | inspect.FloatType():
                return self._number(kind)
            case inspect.BytesType():
                return self.one_of(_DOCUMENTS)
            case inspect.BoolType():
                return self.is_likely(0.5)
            case inspect.NoneType():
                return None
            case inspect.EnumType():
                return self.one_of([each.value for each in kind.cls])
            case inspect.LiteralType():
                return self.one_of(kind.values)
            case inspect.ListType() | inspect.VarTupleType():
                return self._list(kind, depth)
            case inspect.TupleType():
                return [self._of(each, depth + 1) for each in kind.item_types]
            case inspect.DictType():
                keys = [self._of(kind.key_type, depth + 1) for _ in range(self.one_of((0, 0, 1, 2)))]
                return {key: self._of(kind.value_type, depth + 1) for key in keys if isinstance(key, str | int)}
            case inspect.StructType():
                return self._struct(kind, depth)
        raise TypeError(f"no values are known for {kind}")

    def _text(self, kind: inspect.StrType) -> str:
        text: str = self.one_of(self._names if self.is_likely(0.75) else _TEXTS)
        if kind.pattern and self.is_likely(0.9):
            # All of them are names of archives.
            return "0" * 64
        if self.is_likely(0.9):
            text = text[: kind.max_length].ljust(kind.min_length or 0, "a")
        return text

    def _number(self, kind: inspect.IntType | inspect.FloatType) -> float:
        number: float = self.one_of(_NUMBERS if isinstance(kind, inspect.IntType) else _FLOATS)
        if self.is_likely(0.97) and not math.isnan(number):
            lowest = kind.ge if kind.ge is not None else kind.gt + 1 if kind.gt is not None else number
            highest = kind.le if kind.le is not None else kind.lt - 1 if kind.lt is not None else number
            number = min(max(number, lowest), highest)
        return number

    def _list(self, kind: inspect.ListType | inspect.VarTupleType, depth: int) -> list[Any]:
        length = max(self.one_of((0, 1, 1, 2, 3)) if depth < _DEEPEST else 0, kind.min_length or 0)
        return [self._of(kind.item_type, depth + 1) for _ in range(length)]

    def _struct(self, kind: inspect.StructType, depth: int) -> Any:
        if kind.array_like:
            return [self._of(field.type, depth + 1) for field in kind.fields]
        share = 0.4 if depth < _DEEPEST else 0.0
        made = {
            field.encode_name: self._of(field.type, depth + 1)
            for field in kind.fields
            if field.required or self.is_likely(share)
        }
        if kind.tag_field is not None:
            made[kind.tag_field] = kind.tag
        if made and self.is_likely(0.01):
            del made[self.one_of(list(made))]
        if self.is_likely(0.02):
            made["unknown"] = self.one_of(_TEXTS)
        return made

    def one_of(self, values: Sequence[Any]) -> Any:
        """One of the values."""
        return self._random.choice(values)
