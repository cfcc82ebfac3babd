"""Trees of pools for tests, and changes of them, as people write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import (
    POOL_ATTRIBUTES,
    TREE_ATTRIBUTES,
    Person,
    Pool,
    PoolConfig,
    PoolTree,
    Tree,
    TreeOptions,
)
from headrace.wire.pool_changes import Create, Move, PoolChange, Remove, Set, SetOptions, Transfer
from headrace_fair_share.configuration.draft import Draft
from headrace_fair_share.configuration.rules import TreeBounds

__all__ = ["ANYBODY", "a_tree", "create", "drafted", "move", "remove", "set_", "set_options", "settings", "transfer"]

ANYBODY = Person("anybody", administrator=True)


def settings(**attributes: Any) -> PoolConfig:
    """Settings of a pool, from what a person writes."""
    read: PoolConfig = POOL_ATTRIBUTES.changed(PoolConfig(), attributes).value
    return read


def a_tree(options: Mapping[str, Any] | None = None, /, **pools: Mapping[str, Any]) -> PoolTree:
    """Pools by name with their attributes, and with `parent` where they stand in another."""
    made = []
    for name, attributes in pools.items():
        own = {key: value for key, value in attributes.items() if key != "parent"}
        made.append(Pool(PoolName(name), PoolName(str(attributes.get("parent", ROOT_POOL))), settings(**own)))
    read: TreeOptions = TREE_ATTRIBUTES.changed(TreeOptions(), options or {}).value
    return PoolTree(Tree(TreeName("default"), made, read))


def create(name: str, parent: str = ROOT_POOL, **attributes: Any) -> Create:
    return Create(PoolName(name), PoolName(parent), msgspec.json.encode(attributes))


def set_(name: str, attributes: Any = None, **more: Any) -> Set:
    return Set(PoolName(name), msgspec.json.encode(attributes if attributes is not None else more))


def remove(name: str, *, recursive: bool = False, in_use: bool = False) -> Remove:
    return Remove(PoolName(name), recursive, in_use)


def move(name: str, parent: str = "", new_name: str = "") -> Move:
    return Move(PoolName(name), PoolName(parent), PoolName(new_name))


def transfer(source: str, destination: str, **delta: Any) -> Transfer:
    return Transfer(PoolName(source), PoolName(destination), msgspec.json.encode(delta))


def set_options(**options: Any) -> SetOptions:
    return SetOptions(msgspec.json.encode(options))


def drafted(
    tree: PoolTree,
    *changes: PoolChange,
    person: Person = ANYBODY,
    bounds: TreeBounds | None = None,
    in_use: Mapping[str, int] | None = None,
) -> Draft:
    """The changes made one after the other and checked."""
    operations = {PoolName(name): count for name, count in (in_use or {}).items()}
    draft = Draft(tree, bounds or TreeBounds(), person, operations)
    for change in changes:
        draft.make(change)
    draft.check()
    return draft
