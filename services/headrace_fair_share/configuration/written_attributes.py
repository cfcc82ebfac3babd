"""Reads the attributes of changes, which are JSON objects, and warns about unknown keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import BadInput
from headrace.near import near
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, Changed, Defects, Schema
from headrace.pools.attributes.kinds import refuse_too_deep


def read_object(written: bytes, place: str) -> dict[str, Any]:
    """Return a JSON object as a dictionary. Raises `Defects`."""
    try:
        plain = msgspec.json.decode(written)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Defects([BadInput(place, written.decode("utf-8", "replace"), f"a JSON object ({error})")]) from None
    if not isinstance(plain, dict):
        raise Defects(
            [BadInput(place, str(plain)[:100] if not isinstance(plain, list) else "a list", "a map of attributes")]
        )
    try:
        refuse_too_deep(plain, place)
    except BadInput as problem:
        raise Defects([problem]) from None
    return plain


def without_pool_attributes(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options unchanged. Raises `Defects` if one of them is an attribute of pools, which was meant for a pool."""
    wrong = [
        BadInput(f"options.{key}", value, f"an option of a tree; {key} is an attribute of pools")
        for key, value in plain.items()
        if key in POOL_ATTRIBUTES.names and key not in TREE_ATTRIBUTES.names
    ]
    if wrong:
        raise Defects(wrong)
    return plain


def kept_unknown(schema: Schema, what: str, changed: Changed) -> list[str]:
    """Return warnings about keys that were kept although they are unknown."""
    warnings = []
    for key in changed.unknown:
        if key not in changed.value.unrecognized:
            continue
        found = near(key, schema.names)
        question = f" Did you mean {' or '.join(found)}?" if found else ""
        warnings.append(f"{key} on {what} is not known here; it is kept and has no effect.{question}")
    return warnings
