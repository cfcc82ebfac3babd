"""Warnings about groups that a change of configuration names and that Headrace does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import msgspec

from headrace.client import Client, Unanswered
from headrace.pools.pool_config import GROUP
from headrace.suggestions import near
from headrace.wire.pool_changes import AttributeDifference, PoolPlan

_NAMED: Final = re.compile(rf"\b{GROUP}([A-Za-z0-9_.-]+)")


async def with_unknown_groups(client: Client, plan: PoolPlan) -> PoolPlan:
    """Return the plan with a warning for each group that the plan's changes newly name and that is missing in the bucket of groups."""
    pools = chain(plan.created, plan.changed)
    named = list(dict.fromkeys(_newly_named(chain(plan.options, *(pool.attributes for pool in pools)))))
    if not named:
        return plan
    try:
        known: list[str] = [each.name for each in (await client.groups.list()).groups]
    except Unanswered:  # The change itself is done.
        return plan
    return msgspec.structs.replace(plan, warnings=[*plan.warnings, *_warnings(named, known)])


def _newly_named(differences: Iterable[AttributeDifference]) -> Iterator[str]:
    for each in differences:
        before = _NAMED.findall(each.before)
        yield from (name for name in _NAMED.findall(each.after) if name not in before)


def _warnings(named: Iterable[str], known: list[str]) -> Iterator[str]:
    for name in named:
        if name not in known:
            similar = near(name, known)
            hint = f" (did you mean {' or '.join(similar)}?)" if similar else ""
            yield f"there is no group {name!r} in Headrace{hint}. It has members only if the host of admission knows it"
