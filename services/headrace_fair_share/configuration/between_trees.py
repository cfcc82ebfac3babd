"""Moves of pools from one tree to another.

A tree is one stored value, so a change of one tree is atomic. A move changes two trees, and therefore two values: it first creates the pool
in the new tree and then removes it from the old tree. After a failure between the two steps the pool is in both trees. That does no harm,
because a pool's name need be unique only within its tree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import POOL_ATTRIBUTES, PoolTree
from headrace.wire.pool_changes import ChangePools, Create, PoolChange, PoolPlan, Remove
from headrace.wire.refusals import Refusal
from headrace.wire.trees import MovePoolToTree

#: Function that requests a change of a tree.
Ask = Callable[[ChangePools], Awaitable[PoolPlan | Refusal]]


async def move_to_tree(request: MovePoolToTree, pools: PoolTree, here: Ask, there: Ask) -> PoolPlan | Refusal:
    """Move a pool from the tree `pools` to another tree, or return a refusal of one of the trees.

    `here` requests changes of the tree `pools`, and `there` requests changes of the other tree.
    """
    leave = ChangePools([Remove(request.name, recursive=True, in_use=request.in_use)], pools.name)
    leaving = await here(msgspec.structs.replace(leave, dry_run=True))
    if not isinstance(leaving, PoolPlan):
        return leaving
    if leaving.broken:
        # The answer to a dry run is a plan, even if it breaks rules. Ask again without `dry_run` to get a refusal.
        return await here(leave)
    arrive = _departure(pools, request.name, request.parent or ROOT_POOL, request.new_name or request.name)
    arriving = await there(ChangePools(arrive, request.to_tree, request.dry_run))
    if not isinstance(arriving, PoolPlan) or arriving.broken or request.dry_run:
        return arriving
    left = await here(leave)
    if not isinstance(left, PoolPlan):
        return left
    return msgspec.structs.replace(left, created=arriving.created, warnings=arriving.warnings + left.warnings)


def _departure(tree: PoolTree, name: PoolName, parent: PoolName, new_name: PoolName) -> list[PoolChange]:
    """Return the changes that create the pool and everything below it in another tree, below `parent` there."""
    changes: list[PoolChange] = []
    for each in tree.subtree(name):
        pool = tree.pools[each]
        attributes = msgspec.json.encode(POOL_ATTRIBUTES.written(pool.settings))
        if each == name:
            changes.append(Create(new_name, parent, attributes))
        else:
            changes.append(Create(each, new_name if pool.parent == name else pool.parent, attributes))
    return changes
