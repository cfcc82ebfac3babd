"""Values after `key=` on a command line.

A text in braces or brackets is a map or a list: JSON, or the looser form `{cpu=100; memory=4G}`, `[weight;
start_time]`, which also allows `:` for `=` and `,` for `;`. Any other text is read according to its attribute
(`headrace.pools`): `cpu=4,memory=16G` is a map of amounts, and `weight,start_time` a list.
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
from headrace.pools.pool_config import GROUP
from headrace.resources import RESOURCE_NAMES, parse_resources

_LETTERS: Final = r'[^\s{}\[\];,=:"]+'
_BESIDE_WORDS: Final = r'"(?:[^"\\]|\\.)*"|(?P<last>[;,]\s*(?=[}\]]))|[;=]'
#: A text in quotes, a separator before a closing bracket, any other separator, or a word that may be a key.
_TOKEN: Final = re.compile(rf"{_BESIDE_WORDS}|(?P<word>{_LETTERS})(?P<key>\s*[=:])?")
#: The same as `_TOKEN`, except that the name of a group with its prefix, such as `group:x`, is one word.
_TOKEN_OR_GROUP: Final = re.compile(rf"{_BESIDE_WORDS}|(?P<word>(?:{GROUP})?{_LETTERS})(?P<key>\s*[=:])?")
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
    """Return the changes from texts `key=value` and from keys to reset. Raises `BadInput`, whose message has `above` before each key."""
    changes: dict[str, object] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals or not key:
            raise BadInput("command line", each, "key=value, such as weight=2; key= resets it to its default")
        if key in changes:
            raise BadInput.because("command line", f"{key} is given twice")
        is_reset = not text or (text == "none" and _is_amount(schema, key))
        changes[key] = None if is_reset else read_written(text, kind_at(schema, key), above + key)
    for key in unset:
        if key in changes:
            raise BadInput.because("--unset", f"{key} also has a new value. Either set or unset it")
        changes[key] = None
    return changes


def checked(changes: Mapping[str, object], schema: Schema, *, above: str = "") -> None:
    """Check changes as far as that is possible without a request.

    Raises `BadInput`, or `Defects` for several problems. The messages of both name each key with `above` in front.
    """
    try:
        schema.changed(schema.of(), {key: value for key, value in changes.items() if value is not None})
    except Defects as defects:
        problems = [each.at(above + each.place) for each in defects.problems]
        raise (problems[0] if len(problems) == 1 else Defects(problems)) from None


def read_written(text: str, kind: Kind | None, place: str) -> object:
    """Return the plain value of a text. Raises `BadInput`."""
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        return _read_structure(stripped, place, str if isinstance(kind, ResourceAmounts | Record) else None)
    if isinstance(kind, ResourceAmounts):
        return parse_figures(place, text)
    if isinstance(kind, Words | Choices):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def kind_at(schema: Schema, key: str) -> Kind | None:
    """Return the kind of value at a key, or None if the key is unknown, or names a single resource in a map of amounts."""
    head, *rest = split_key(key)
    attribute = schema.names.get(head)
    if attribute is None or not rest:
        return attribute.kind if attribute is not None else None
    return kind_at(attribute.kind.schema, "/".join(rest)) if isinstance(attribute.kind, Record) else None


def _is_amount(schema: Schema, key: str) -> bool:
    """True if a key names a single resource in a map of amounts, such as `resource_limits/cpu`."""
    *parts, _ = split_key(key)
    return bool(parts) and isinstance(kind_at(schema, "/".join(parts)), ResourceAmounts)


def _read_structure(text: str, place: str, number: type[str] | None) -> object:
    """Parse JSON or the looser form, in which each token has an equivalent in JSON. Raises `BadInput`.

    If `number` is str, numbers stay texts. First, `group:x` in the text is read as the key `group` with the value `x`. If the text cannot
    be parsed like that, `group:x` is read as one word, the name of a group.
    """
    for token in (_TOKEN, _TOKEN_OR_GROUP):
        try:
            return json.loads(
                token.sub(_as_json, text), object_pairs_hook=_each_key_once, parse_int=number, parse_float=number
            )
        except (ValueError, RecursionError):
            continue
    raise BadInput(place, text, _EXPECTED)


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
        raise ValueError("a key occurs twice")
    return found


def _number(token: str) -> object:
    """Return the token as a number if it is one, else as text, such as `4G` or `burst`."""
    for kind in (int, float):
        try:
            return kind(token)
        except ValueError:
            continue
    return token


def parse_figures(option: str, text: str) -> dict[str, str]:
    """Parse `cpu=4,memory=16G`. `none` or an empty text gives an empty map. Raises `BadInput`, also for an unreadable figure."""
    figures: dict[str, str] = {}
    pieces: Sequence[str] = () if text.strip() == "none" else [piece.strip() for piece in text.split(",")]
    for piece in filter(None, pieces):
        resource, equals, figure = (part.strip() for part in piece.partition("="))
        if not equals or resource not in RESOURCE_NAMES or resource in figures:
            raise BadInput(option, piece, "resource=amount, each resource once: " + ", ".join(RESOURCE_NAMES))
        figures[resource] = figure
    parse_resources(figures, place=option)
    return figures
