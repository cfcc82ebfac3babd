"""Rights of whoever asks: the conversation of a person with admission about themselves."""

from __future__ import annotations

import msgspec

from headrace.ids import PoolName, TreeName


class GetRights(msgspec.Struct, frozen=True):
    """person → admission: my own rights."""


class RightsOnPool(msgspec.Struct, frozen=True):
    """Rights that hold on a pool, and on all below it that are not told of themselves."""

    tree: TreeName
    pool: PoolName
    #: Of `use`, `manage`, `write` and `administer`.
    rights: list[str]


class Rights(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The caller as services know them.

    `pools` has each root, and each pool on which the caller has other rights than on the pool above.
    """

    user: str
    administrator: bool
    pools: list[RightsOnPool]
    #: Pools that did not fit.
    left_out: int = 0
