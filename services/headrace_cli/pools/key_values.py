"""Values behind `key=` on a command line.

A text in braces or brackets is a map or a list: JSON, or the looser form `{cpu=100; memory=4G}`, `[weight; start_time]`, in which
`:` may stand for `=` and `,` for `;`. Anything else is a text; what it must be says the attribute (`headrace.pools`), by which
`cpu=4,memory=16G` is a map of amounts and `weight,start_time` a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.errors import BadInput
from headrace.pools import Record, Schema
from headrace.pools.attributes.kinds import Choices, Defects, Kind, Words
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.attributes.schema import split_key
from headrace.resources import RESOURCE_NAMES, parse_resources

#: A text in quotes, a separator before a bracket that closes, any other one, a word that may be a key.
_TOKEN: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?P<last>[;,]\s*(?=[}\]]))|[;=]|(?P<word>[^\s{}\[\];,=:"]+)(?P<key>\s*[=:])?'
)
_SIGNS: Final = {"=": ":", ";": ","}
_EXPECTED: Final = "JSON, or a map such as {cpu=100; memory=4G}, or a list such as [weight; start_time]"
_SCALARS: Final[dict[str, object]] = {
    "true": True,
    "false": False,
    "null": None,
    "#": None,
    "%true": True,
    "%false": False,
}


def assignments(
    given: Sequence[str], schema: Schema, unset: Sequence[str] = (), *, above: str = ""
) -> dict[str, object]:
    """`key=value` each, and keys to take back to their defaults. Raises `BadInput`, whose places begin with `above`."""
    changes: dict[str, object] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals or not key:
            raise BadInput("command line", each, "key=value, such as weight=2; key= takes it back to its default")
        if key in changes:
            raise BadInput("command line", each, f"{key} once")
        changes[key] = read_written(text, kind_at(schema, key), above + key) if text else None
    for key in unset:
        if key in changes:
            raise BadInput("--unset", key, f"{key} either set or unset")
        changes[key] = None
    return changes


def checked(changes: Mapping[str, object], schema: Schema, *, above: str = "") -> None:
    """Raises `BadInput` with all that can be told to be wrong without asking anybody. Its places begin with `above`."""
    try:
        schema.changed(schema.of(), {key: value for key, value in changes.items() if value is not None})
    except Defects as defects:
        problems = [BadInput(above + each.place, each.value, each.expected) for each in defects.problems]
        raise (problems[0] if len(problems) == 1 else Defects(problems)) from None


def read_written(text: str, kind: Kind | None, place: str) -> object:
    """The plain value of a text. Raises `BadInput`."""
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        return _read_structure(stripped, place)
    if isinstance(kind, ResourceAmounts):
        return parse_figures(place, text)
    if isinstance(kind, Words | Choices):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def kind_at(schema: Schema, key: str) -> Kind | None:
    """The kind of what stands at a key, or None where nothing does or one resource stands alone."""
    head, *rest = split_key(key)
    attribute = schema.names.get(head)
    if attribute is None or not rest:
        return attribute.kind if attribute is not None else None
    return kind_at(attribute.kind.schema, "/".join(rest)) if isinstance(attribute.kind, Record) else None


def _read_structure(text: str, place: str) -> object:
    """Reads JSON or the looser form, of which every token has one in JSON. Raises `BadInput`."""
    try:
        return json.loads(_TOKEN.sub(_as_json, text), object_pairs_hook=_each_key_once)
    except (ValueError, RecursionError):
        raise BadInput(place, text, _EXPECTED) from None


def _as_json(token: re.Match[str]) -> str:
    word = token["word"]
    if word and token["key"]:
        return json.dumps(word) + ":"
    if word:
        return json.dumps(_SCALARS[word] if word in _SCALARS else _number(word))
    return "" if token["last"] else _SIGNS.get(token[0], token[0])


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _number(token: str) -> object:
    """A number where it is one, else the text, as `4G` and `burst` are."""
    for kind in (int, float):
        try:
            return kind(token)
        except ValueError:
            continue
    return token


def parse_figures(option: str, text: str) -> dict[str, str]:
    """Reads `cpu=4,memory=16G`. `none` or nothing is an empty map. Raises `BadInput`, also for a figure that cannot be read."""
    figures: dict[str, str] = {}
    pieces: Sequence[str] = () if text.strip() == "none" else [piece.strip() for piece in text.split(",")]
    for piece in filter(None, pieces):
        resource, equals, figure = (part.strip() for part in piece.partition("="))
        if not equals or resource not in RESOURCE_NAMES or resource in figures:
            raise BadInput(option, piece, "resource=amount, each resource once: " + ", ".join(RESOURCE_NAMES))
        figures[resource] = figure
    parse_resources(figures, place=option)
    return figures
