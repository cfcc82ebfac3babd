"""Changes of a tree's configuration, several as one: requests of people to fair_share, and the plan that answers them.

Attributes travel as a JSON object with only the keys to change, figures as people write them (`headrace.pools.attributes.pool_attributes`).
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
    """Change attributes. Null takes one back to its default."""

    name: PoolName
    attributes: bytes


class Remove(_Change, frozen=True, tag="remove"):
    """Take a pool away."""

    name: PoolName
    #: And all below it; else it must have no child pools.
    recursive: bool = False
    #: Though operations are in it, which then go on in an ephemeral pool of its name; else it must have none.
    in_use: bool = False


class Move(_Change, frozen=True, tag="move"):
    """Put a pool, with all below it, under another parent, or give it another name, or both.

    Operations stay with the name: to give another name is to take a pool away and to make one."""

    name: PoolName
    #: Empty: the parent stays.
    parent: PoolName = PoolName("")
    #: Empty: the name stays.
    new_name: PoolName = PoolName("")


class Transfer(_Change, frozen=True, tag="transfer"):
    """Give of one pool's guarantees and limits to another.

    They are taken from all pools on the way from `source` up to the common ancestor, which itself stays as it is, and added to all on the
    way down to `destination`. `delta` is a JSON object of `strong_guarantee_resources`, `resource_flow`, `burst_guarantee_resources`,
    `max_operation_count`, `max_running_operation_count`.
    """

    source: PoolName
    destination: PoolName
    delta: bytes


class SetOptions(_Change, frozen=True, tag="set_options"):
    """Change options of the tree. Null takes one back to its default."""

    options: bytes


PoolChange = Create | Set | Remove | Move | Transfer | SetOptions


class ChangePools(msgspec.Struct, frozen=True):
    """All of these changes, one after the other, or none of them."""

    changes: list[PoolChange]
    tree: TreeName = TreeName("default")
    #: Only say what would become of it.
    dry_run: bool = False
    #: The tree whose fair_share is asked; empty for that of `tree`. Another one knows of no operations in `tree`.
    asked: TreeName = TreeName("")
    #: The revision that the changes were worked out from; refused where the tree has another one. 0: whatever there is.
    expected_revision: Counter = 0


class AttributeDifference(msgspec.Struct, frozen=True):
    """An attribute before and after, as people write it, in JSON. Empty for one that is not set."""

    name: str
    before: str = ""
    after: str = ""


class PoolDifference(msgspec.Struct, frozen=True):
    """A pool that is made, changed or taken away, with the attributes that differ."""

    name: PoolName
    path_before: str = ""
    path_after: str = ""
    attributes: list[AttributeDifference] = []


class PoolPlan(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The outcome of changes to a tree."""

    tree: TreeName
    #: At which it is durable; 0 where nothing was written.
    revision: Counter = 0
    dry_run: bool = False
    created: list[PoolDifference] = []
    changed: list[PoolDifference] = []
    removed: list[PoolDifference] = []
    options: list[AttributeDifference] = []
    #: Rules that it breaks; a plan with any was not carried out.
    broken: list[str] = []
    warnings: list[str] = []
    #: There was no room for all differences in the answer: so many pools are left out.
    left_out: Counter = 0

    @property
    def changes_something(self) -> bool:
        """True if a pool or an option becomes another."""
        return bool(self.created or self.changed or self.removed or self.options)
