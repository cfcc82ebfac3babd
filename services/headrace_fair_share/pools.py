"""Reading what a person writes on a pool: a JSON object with only the keys to change, figures as people write them; pure.

Keys are those of `headrace.pools.pool_attributes`, or paths to parts of their values; `null` takes one back to its default.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.pools import POOL_ATTRIBUTES, Defects, PoolSettings
from headrace.wire.refusals import BadRequest

__all__ = ["with_changes"]

_LONGEST_SHOWN: Final = 100


def with_changes(settings: PoolSettings, changes: bytes) -> PoolSettings | BadRequest:
    """The settings with the keys of a JSON object changed."""
    try:
        plain = msgspec.json.decode(changes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return BadRequest("settings", _shown(changes.decode("utf-8", "replace")), f"a JSON object ({error})")
    try:
        changed = POOL_ATTRIBUTES.changed(settings, plain, "settings")
    except Defects as defects:
        problem = defects.problems[0]
        return BadRequest(problem.place, _shown(problem.value), problem.expected)
    if changed.unknown:
        key = changed.unknown[0]
        problem = POOL_ATTRIBUTES.refuse_unknown(key, changed.value.unrecognized.get(key), f"settings.{key}")
        return BadRequest(problem.place, _shown(problem.value), problem.expected)
    after: PoolSettings = changed.value
    return after


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
