"""Keys of settings and their values, such as `integral_guarantees/guarantee_type=burst`, each with a description. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.pools import Attribute, Record, Schema
from headrace.pools.attributes.kinds import Choice, Flag, Kind
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.attributes.schema import split_key
from headrace.resources import RESOURCE_NAMES
from headrace_cli.commands.pools.key_values import kind_at


def assignments(schema: Schema, word: str) -> Iterator[tuple[str, str]]:
    """Yield `key=` for every key, or the possible values if `word` already contains `key=`.

    The parts of a key are yielded if `word` begins with that key and a separator.
    """
    key, equals, _ = word.partition("=")
    if equals:
        kind = kind_at(schema, key)
        yield from ((f"{key}={value}", "") for value in _values(kind))
        return
    for name, kind, about in _level(schema, key):
        yield f"{name}=", about
        if _has_parts(kind):
            yield f"{name}{_separator(key) or '/'}", f"parts of {split_key(name)[-1]}"


def attributes(schema: Schema, word: str) -> Iterator[tuple[str, str]]:
    """Yield every key. Parts of a key are treated as in `assignments`."""
    for name, kind, about in _level(schema, word):
        yield name, about
        if _has_parts(kind):
            yield f"{name}{_separator(word) or '/'}", f"parts of {split_key(name)[-1]}"


def _separator(key: str) -> str:
    return "/" if "/" in key else "." if "." in key else ""


def _level(schema: Schema, key: str) -> Iterator[tuple[str, Kind, str]]:
    """Yield the whole keys on the level of the last part of `key`, each with its kind and its description."""
    separator = _separator(key)
    above = key.rpartition(separator)[0] if separator else ""
    lead = above + separator
    if not above:
        yield from (_row(lead, attribute) for attribute in schema.attributes.values())
        return
    match kind_at(schema, above):
        case Record() as record:
            yield from (_row(lead, attribute) for attribute in record.parts())
        case ResourceAmounts():
            yield from ((lead + resource, Kind(), "") for resource in RESOURCE_NAMES)
        case _:
            pass


def _row(lead: str, attribute: Attribute) -> tuple[str, Kind, str]:
    return lead + attribute.name, attribute.kind, attribute.help


def _has_parts(kind: Kind) -> bool:
    return isinstance(kind, Record | ResourceAmounts)


def _values(kind: Kind | None) -> tuple[str, ...]:
    match kind:
        case Choice():
            return tuple(str(word) for word in kind.of)
        case Flag():
            return ("true", "false")
        case _:
            return ()
