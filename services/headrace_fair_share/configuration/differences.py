"""The differences between two configurations of a tree, as they appear in a plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.ids import PoolName
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, PoolTree, Schema
from headrace.wire.pool_changes import AttributeDifference, PoolDifference, PoolPlan


def planned(before: PoolTree, after: PoolTree) -> PoolPlan:
    """Return the pools created, changed and removed, and the options that change. A renamed pool counts as a removed pool and a created
    pool.
    """
    # Pools are compared by identity, which is fast: most changes concern one pool of thousands, and an unchanged pool stays the same
    # object.
    others = [name for name, pool in after.pools.items() if before.pools.get(name) is not pool]
    names = after.preorder if len(others) > 1 else [below for name in others for below in after.subtree(name)]
    made = [name for name in names if name not in before.pools]
    lost = before.pools.keys() - after.pools.keys()
    gone = [name for name in before.preorder if name in lost] if lost else []
    changed: dict[PoolName, PoolDifference] = {}
    for name in names:
        if name in before.pools and (
            before.pools[name] != after.pools[name]
            # If the pool itself is unchanged, its path can have changed only together with its parent's path.
            or (after.pools[name].parent in changed and before.path(name) != after.path(name))
        ):
            changed[name] = _difference(before, after, name)
    return PoolPlan(
        tree=after.name,
        created=[_difference(None, after, name) for name in made],
        changed=list(changed.values()),
        removed=[_difference(before, None, name) for name in gone],
        options=_attributes(TREE_ATTRIBUTES, before.options, after.options),
    )


def fitting(plan: PoolPlan, most_bytes: int) -> PoolPlan:
    """Return the plan with as many differences as fit into `most_bytes`. The differences left out are counted."""
    while len(msgspec.msgpack.encode(plan)) > most_bytes and (plan.created or plan.changed or plan.removed):
        kept = [each[: len(each) // 2] for each in (plan.created, plan.changed, plan.removed)]
        dropped = len(plan.created) + len(plan.changed) + len(plan.removed) - sum(map(len, kept))
        created, changed, removed = kept
        left_out = plan.left_out + dropped
        plan = msgspec.structs.replace(plan, created=created, changed=changed, removed=removed, left_out=left_out)
    return plan


def _difference(before: PoolTree | None, after: PoolTree | None, name: PoolName) -> PoolDifference:
    old = before.pools[name].settings if before is not None else None
    new = after.pools[name].settings if after is not None else None
    return PoolDifference(
        name=name,
        path_before=before.path(name) if before is not None else "",
        path_after=after.path(name) if after is not None else "",
        attributes=_attributes(POOL_ATTRIBUTES, old, new),
    )


def _attributes(schema: Schema, old: msgspec.Struct | None, new: msgspec.Struct | None) -> list[AttributeDifference]:
    if old is new:
        return []
    before = schema.written(old) if old is not None else {}
    after = schema.written(new) if new is not None else {}
    return [
        AttributeDifference(name, _text(before, name), _text(after, name))
        for name in _names(before, after)
        if before.get(name) != after.get(name)
    ]


def _names(*maps: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for each in maps for name in each))


def _text(written: dict[str, object], name: str) -> str:
    return msgspec.json.encode(written[name]).decode() if name in written else ""
