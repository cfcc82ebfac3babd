"""Pool trees as a whole: requests of people about any tree.

A request is answered by the fair_share of the tree that the field `asked` names. A tree is a value in the bucket of pools. Each tree is
served by a fair_share, an integral and an allocator of its own, started with the setting `tree`. A tree that is not served keeps its
configuration and does nothing.
"""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.pools.tree_options import TreeOptions
from headrace.wire.version import Counter


class ListTrees(msgspec.Struct, frozen=True):
    """Ask for all trees by name, or for one tree."""

    name: str = ""
    asked: TreeName = TreeName("default")
    #: Name of the tree after which the page begins.
    after: str = ""


class TreeView(msgspec.Struct, frozen=True):
    """A tree as it is stored."""

    tree: TreeName
    options: TreeOptions
    revision: Counter
    pools: Counter
    #: Why the stored value cannot be used; empty if it can.
    trouble: str = ""
    warnings: list[str] = []


class TreeList(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """A page of the trees."""

    trees: list[TreeView]
    more: bool = False


class CreateTree(msgspec.Struct, frozen=True):
    """Make a tree without pools."""

    name: TreeName
    options: bytes = b"{}"
    asked: TreeName = TreeName("default")
    dry_run: bool = False


class RemoveTree(msgspec.Struct, frozen=True):
    """Remove a tree. The field `asked` must name another tree, whose fair_share removes this tree."""

    name: TreeName
    #: True: remove all its pools as well. False: refused if the tree has pools.
    recursive: bool = False
    asked: TreeName = TreeName("default")
    dry_run: bool = False


class MovePoolToTree(msgspec.Struct, frozen=True):
    """Move a pool, with all pools below it, to another tree: make the pool there, then remove it in `tree`."""

    name: PoolName
    to_tree: TreeName
    parent: PoolName
    #: Empty: the name stays.
    new_name: PoolName = PoolName("")
    tree: TreeName = TreeName("default")
    #: True: move the pool even if it has operations, which then go on in `tree`, in an ephemeral pool of the same name.
    in_use: bool = False
    dry_run: bool = False
