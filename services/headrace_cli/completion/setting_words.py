"""Words from the tables of fields, settings and states: keys of settings and their values, each with a description. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Attribute, Record, Schema
from headrace.pools.attributes.kinds import Choice, Flag, Kind
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.attributes.schema import split_key
from headrace.resources import RESOURCE_NAMES
from headrace.wire.operations import OperationState
from headrace_cli.commands.operations.key_values import KEYS
from headrace_cli.commands.pools.fields import FIELDS
from headrace_cli.commands.pools.key_values import kind_at
from headrace_cli.completion.slot import Slot
from headrace_cli.completion.value_kinds import ValueKind, value_kind


def words_of_settings(slot: Slot) -> Iterator[tuple[str, str]]:
    """Yield words with a description of each, if the argument takes such words. Yield nothing for any other kind of value."""
    schema = TREE_ATTRIBUTES if slot.path[0] == "tree" else POOL_ATTRIBUTES
    match value_kind(slot):
        case ValueKind.STATE:
            yield from ((state, "") for state in OperationState)
        case ValueKind.FIELD:
            yield from ((field.name, field.help) for field in FIELDS)
        case ValueKind.OPERATION_SETTING:
            yield from ((f"{key}=", "") for key in KEYS)
        case ValueKind.ASSIGNMENT:
            yield from assignments(schema, slot.value)
        case ValueKind.ATTRIBUTE:
            yield from attributes(schema, slot.value)
        case _:
            pass


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
    """Yield all keys on the level of the last part of `key`, each with its path, its kind and its description."""
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
