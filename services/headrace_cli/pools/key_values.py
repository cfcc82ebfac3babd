"""Values behind `key=` on a command line.

A text in braces or brackets is a map or a list: JSON, or the looser form `{cpu=100; memory=4G}`, `[weight; start_time]`, in which
`:` may stand for `=` and `,` for `;`. Anything else is a text; what it must be says the attribute (`headrace.pools`), by which
`cpu=4,memory=16G` is a map of amounts and `weight,start_time` a list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from headrace.errors import BadInput
from headrace.pools import Record, Schema
from headrace.pools.attributes.kinds import Choices, Defects, Kind, Words
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.attributes.schema import split_key
from headrace_cli.pools.options import parse_figures

__all__ = ["assignments", "checked", "read_written"]

_TOKEN: Final = re.compile(r"\s*(?:\"((?:[^\"\\]|\\.)*)\"|([{}\[\];,=:])|([^\s{}\[\];,=:\"]+))")
_EXPECTED: Final = "JSON, or a map such as {cpu=100; memory=4G}, or a list such as [weight; start_time]"
_MOST_NESTED: Final = 20
_SCALARS: Final[dict[str, object]] = {
    "true": True,
    "false": False,
    "null": None,
    "#": None,
    "%true": True,
    "%false": False,
}


def assignments(given: Sequence[str], schema: Schema, unset: Sequence[str] = ()) -> dict[str, object]:
    """`key=value` each, and keys to take back to their defaults. Raises `BadInput`."""
    changes: dict[str, object] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals or not key:
            raise BadInput("command line", each, "key=value, such as weight=2; key= takes it back to its default")
        if key in changes:
            raise BadInput("command line", each, f"{key} once")
        changes[key] = read_written(text, _kind_at(schema, key), key) if text else None
    for key in unset:
        if key in changes:
            raise BadInput("--unset", key, f"{key} either set or unset")
        changes[key] = None
    return changes


def checked(changes: Mapping[str, object], schema: Schema) -> None:
    """Raises `BadInput` with all that can be told to be wrong without asking anybody."""
    try:
        schema.changed(schema.of(), {key: value for key, value in changes.items() if value is not None})
    except Defects as defects:
        first = defects.problems[0]
        if len(defects.problems) == 1:
            raise first from None
        raise defects from None


def read_written(text: str, kind: Kind | None, place: str) -> object:
    """The plain value of a text. Raises `BadInput`."""
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        try:
            return msgspec.json.decode(stripped)
        except msgspec.DecodeError:
            return _Reader(stripped, place).whole()
    if isinstance(kind, ResourceAmounts):
        return parse_figures(place, text)
    if isinstance(kind, Words | Choices):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _kind_at(schema: Schema, key: str) -> Kind | None:
    """What stands at a key; None where nothing is known of it."""
    head, *rest = split_key(key)
    attribute = schema.names.get(head)
    if attribute is None or not rest:
        return attribute.kind if attribute is not None else None
    return _kind_at(attribute.kind.schema, "/".join(rest)) if isinstance(attribute.kind, Record) else None


class _Reader:
    """The looser form of maps and lists."""

    def __init__(self, text: str, place: str) -> None:
        self._text = text
        self._place = place
        self._tokens = self._split()
        self._at = 0

    def whole(self) -> object:
        value = self._value(0)
        if self._at != len(self._tokens):
            raise self._wrong()
        return value

    def _value(self, depth: int) -> object:
        quoted, token = self._take()
        if depth > _MOST_NESTED:
            raise self._wrong()
        if quoted:
            return token
        if token == "{":
            return self._map(depth)
        if token == "[":
            return self._list(depth)
        if token in "}];,=:":
            raise self._wrong()
        return _SCALARS[token] if token in _SCALARS else _number(token)

    def _map(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._ends("}"):
            quoted, key = self._take()
            if (not quoted and key in "{}[];,=:") or key in found:
                raise self._wrong()
            if self._take()[1] not in "=:":
                raise self._wrong()
            found[key] = self._value(depth + 1)
            self._separator("}")
        return found

    def _list(self, depth: int) -> list[object]:
        found: list[object] = []
        while not self._ends("]"):
            found.append(self._value(depth + 1))
            self._separator("]")
        return found

    def _ends(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == (False, sign):
            self._at += 1
            return True
        return False

    def _separator(self, end: str) -> None:
        if self._at < len(self._tokens) and self._tokens[self._at] in ((False, ";"), (False, ",")):
            self._at += 1
        elif self._at >= len(self._tokens) or self._tokens[self._at] != (False, end):
            raise self._wrong()

    def _take(self) -> tuple[bool, str]:
        if self._at >= len(self._tokens):
            raise self._wrong()
        self._at += 1
        return self._tokens[self._at - 1]

    def _split(self) -> list[tuple[bool, str]]:
        tokens: list[tuple[bool, str]] = []
        at = 0
        while self._text[at:].strip():
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise self._wrong()
            quoted = match[1] is not None
            tokens.append((quoted, match[1] if quoted else match[2] or match[3]))
            at = match.end()
        return tokens

    def _wrong(self) -> BadInput:
        return BadInput(self._place, self._text, _EXPECTED)


def _number(token: str) -> object:
    """A number where it is one, else the text, as `4G` and `burst` are."""
    for kind in (int, float):
        try:
            return kind(token)
        except ValueError:
            continue
    return token
