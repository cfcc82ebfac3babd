"""Moves of pools from one tree to another. Pure.

A tree is one stored value and its changes are one or none; two trees are two values. A pool is first made where it goes to and then
taken away where it was, so that whatever happens in between leaves it in both, which harms nothing: names are unique in a tree only.
"""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName
from headrace.pools import POOL_ATTRIBUTES, PoolTree
from headrace.wire.pool_changes import Create, PoolChange

__all__ = ["departure"]


def departure(tree: PoolTree, name: PoolName, parent: PoolName, new_name: PoolName) -> list[PoolChange]:
    """Returns the changes that make the pool and all below it in another tree, below `parent` there."""
    changes: list[PoolChange] = []
    for each in tree.subtree(name):
        pool = tree.pools[each]
        attributes = msgspec.json.encode(POOL_ATTRIBUTES.written(pool.settings))
        if each == name:
            changes.append(Create(new_name, parent, attributes))
        else:
            changes.append(Create(each, new_name if pool.parent == name else pool.parent, attributes))
    return changes
