"""Rights of a person: messages with which a person asks admission for the person's own rights."""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.wire.groups import GroupOfPerson


class GetRights(msgspec.Struct, frozen=True):
    """person → admission: ask for the person's own rights, on all pools or on one."""

    #: The pool, which may be ephemeral; empty: all pools of all trees.
    pool: PoolName = PoolName("")
    tree: TreeName = TreeName("default")


class RightGrant(msgspec.Struct, frozen=True):
    """The entry of an access list that gives a right."""

    right: str
    #: Pool that has the list. `<Root>` stands for the options of the tree.
    pool: PoolName
    #: Name of the access list: the name of the right, or `administer`.
    access: str
    #: The user, `group:NAME` or `*`; empty: no list names anybody for `use`, so everybody has this right.
    entry: str


class RightLacked(msgspec.Struct, frozen=True):
    """A right that the person does not have."""

    right: str
    #: The first users and groups that have the right, by name.
    holders: list[str]


class RightsOnPool(msgspec.Struct, frozen=True):
    """Rights on a pool. These rights also hold for every pool below, unless that pool is listed itself."""

    tree: TreeName
    pool: PoolName
    #: Some of `use`, `manage`, `write` and `administer`.
    rights: list[str]
    #: The reason for each right; empty for administrators.
    grants: list[RightGrant] = []
    #: Rights that the caller does not have on the pool, if the request named a pool.
    lacked: list[RightLacked] = []


class Rights(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The rights of the caller.

    `pools` has each root, and each pool on which the caller has other rights than on its parent.
    """

    user: str
    administrator: bool
    pools: list[RightsOnPool]
    #: Number of pools that did not fit.
    left_out: int = 0
    #: Groups of the caller, the primary group first.
    groups: list[GroupOfPerson] = []
