"""Rights of a person: the conversation of a person with admission about the person's own rights."""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName


class GetRights(msgspec.Struct, frozen=True):
    """person → admission: ask for the person's own rights."""


class RightsOnPool(msgspec.Struct, frozen=True):
    """Rights on a pool. They also hold for every pool below that is not listed itself."""

    tree: TreeName
    pool: PoolName
    #: Some of `use`, `manage`, `write` and `administer`.
    rights: list[str]


class Rights(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The rights of the caller.

    `pools` has each root, and each pool on which the caller has other rights than on its parent.
    """

    user: str
    administrator: bool
    pools: list[RightsOnPool]
    #: Number of pools that did not fit.
    left_out: int = 0
