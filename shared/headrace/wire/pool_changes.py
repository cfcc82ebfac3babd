"""Changes of a tree's configuration: requests of people to fair_share, and the plan that is the answer.

One request can contain several changes; they are applied together.

Attributes travel as a JSON object that has only the keys to change, with values as people write them
(`headrace.pools.attributes.pool_attributes`).
"""

from __future__ import annotations

import msgspec

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.wire.version import Counter


class _Change(msgspec.Struct, frozen=True, tag_field="change"):
    pass


class Create(_Change, frozen=True, tag="create"):
    """Make a pool. Its name must be new in the whole tree."""

    name: PoolName
    parent: PoolName = ROOT_POOL
    attributes: bytes = b"{}"


class Set(_Change, frozen=True, tag="set"):
    """Change attributes of a pool. Null resets an attribute to its default."""

    name: PoolName
    attributes: bytes


class Remove(_Change, frozen=True, tag="remove"):
    """Remove a pool."""

    name: PoolName
    #: True: remove all pools below as well. False: refused if the pool has child pools.
    recursive: bool = False
    #: True: remove the pool even if it has operations; they go on in an ephemeral pool of the same name. False: refused if the pool has
    #: operations.
    in_use: bool = False


class Move(_Change, frozen=True, tag="move"):
    """Move a pool, with all pools below it, to another parent, or rename it, or both.

    Renaming removes the pool and makes a pool with the new name. Operations stay in a pool with the old name.
    """

    name: PoolName
    #: New parent of the pool; empty: the parent stays.
    parent: PoolName = PoolName("")
    #: New name of the pool; empty: the name stays.
    new_name: PoolName = PoolName("")


class Transfer(_Change, frozen=True, tag="transfer"):
    """Transfer a part of one pool's guarantees and limits to another pool.

    The amounts are subtracted from all pools on the way from `source` up to the common ancestor, which itself stays as it is, and added to
    all pools on the way down to `destination`. `delta` is a JSON object of `strong_guarantee_resources`, `resource_flow`,
    `burst_guarantee_resources`, `max_operation_count`, `max_running_operation_count`.
    """

    source: PoolName
    destination: PoolName
    delta: bytes


class SetOptions(_Change, frozen=True, tag="set_options"):
    """Change options of the tree. Null resets an option to its default."""

    options: bytes


PoolChange = Create | Set | Remove | Move | Transfer | SetOptions


class ChangePools(msgspec.Struct, frozen=True):
    """Apply all of these changes, one after the other, or none of them."""

    changes: list[PoolChange]
    tree: TreeName = TreeName("default")
    #: True: only report the outcome.
    dry_run: bool = False
    #: Tree whose fair_share answers; empty: the fair_share of `tree` answers. The fair_share of another tree does not know the operations
    #: in `tree`.
    asked: TreeName = TreeName("")
    #: Revision that the changes are based on; refused if the tree has another revision. 0: any revision.
    expected_revision: Counter = 0


class AttributeDifference(msgspec.Struct, frozen=True):
    """An attribute before and after a change, in JSON with values as people write them. A text is empty if the attribute was not set."""

    name: str
    before: str = ""
    after: str = ""


class PoolDifference(msgspec.Struct, frozen=True):
    """A pool that is made, changed or removed, with the attributes that differ."""

    name: PoolName
    path_before: str = ""
    path_after: str = ""
    attributes: list[AttributeDifference] = []


class PoolPlan(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The outcome of changes to a tree."""

    tree: TreeName
    #: Revision of the tree that has the changes; 0 if nothing was written.
    revision: Counter = 0
    dry_run: bool = False
    created: list[PoolDifference] = []
    changed: list[PoolDifference] = []
    removed: list[PoolDifference] = []
    options: list[AttributeDifference] = []
    #: Rules that the changes break; changes that break any rule are not carried out.
    broken: list[str] = []
    warnings: list[str] = []
    #: Number of pools left out, because not all differences fit into the answer.
    left_out: Counter = 0

    @property
    def changes_something(self) -> bool:
        """True if any pool or option changes."""
        return bool(self.created or self.changed or self.removed or self.options)
