"""Pool trees as a whole: requests of people to the fair_share of the tree that `asked` names.

They may be about any tree. A tree is a value of the bucket of pools. What shares it out is a fair_share, an integral and an allocator
of its own, started with the setting `tree`. A tree that nobody serves keeps its configuration and does nothing.
"""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.pools.tree_options import TreeOptions
from headrace.wire.version import Counter


class ListTrees(msgspec.Struct, frozen=True):
    """All trees by name, or one."""

    name: str = ""
    asked: TreeName = TreeName("default")
    #: The page behind this tree.
    after: str = ""


class TreeView(msgspec.Struct, frozen=True):
    """A tree as it is stored."""

    tree: TreeName
    options: TreeOptions
    revision: Counter
    pools: Counter
    #: Why what is stored cannot be used; empty where it can.
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
    """Take a tree away that the service asked does not serve itself."""

    name: TreeName
    #: With all its pools; else it must have none.
    recursive: bool = False
    asked: TreeName = TreeName("default")
    dry_run: bool = False


class MovePoolToTree(msgspec.Struct, frozen=True):
    """Make a pool, with all below it, in another tree, and then take it away here."""

    name: PoolName
    to_tree: TreeName
    parent: PoolName
    #: Empty: the name stays.
    new_name: PoolName = PoolName("")
    tree: TreeName = TreeName("default")
    #: Though operations are in it, which then go on in an ephemeral pool of its name here.
    in_use: bool = False
    dry_run: bool = False
