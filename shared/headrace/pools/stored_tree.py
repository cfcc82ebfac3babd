"""A tree as it is stored: a single value, so that a change of several pools is stored as a whole or not at all."""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from headrace.ids import PoolName, TreeName
from headrace.pools.amounts import PartialResources
from headrace.pools.pool_config import PoolConfig
from headrace.pools.tree_options import TreeOptions

#: Format of stored trees. In format 1 an amount of zero meant that the resource was not named. In format 2 null means
#: that the resource is not named, and zero is an amount.
TREE_FORMAT: Final = 2
#: Size in bytes from which a value is stored compressed. Smaller values stay readable for people who look into the bucket.
_LONG_BYTES: Final = 128 * 1024
#: Largest size in bytes of a decompressed value. A larger value is not read.
_LARGEST_BYTES: Final = 32 * 1024**2


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A configured pool."""

    name: PoolName
    parent: PoolName
    settings: PoolConfig = PoolConfig()


class Tree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole tree's configuration. Pools are in the order in which they were made, parents before children."""

    tree: TreeName
    pools: list[Pool] = []
    options: TreeOptions = TreeOptions()
    format: int = TREE_FORMAT


class _Format(msgspec.Struct):
    format: int = 1


def write_tree(tree: Tree) -> bytes:
    """Return the value to store: JSON, compressed if it is long."""
    data = msgspec.json.encode(tree)
    return data if len(data) < _LONG_BYTES else zlib.compress(data)


def read_tree(data: bytes) -> Tree:
    """Return the tree in a stored value of this format or an earlier one. Raises `msgspec.DecodeError`, `UnicodeDecodeError`."""
    if not data.lstrip().startswith(b"{"):
        data = _unpacked(data)
    tree = msgspec.json.decode(data, type=Tree)
    written = msgspec.json.decode(data, type=_Format).format
    return tree if written >= TREE_FORMAT else _without_zeros(tree)


def _unpacked(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, _LARGEST_BYTES)
    except zlib.error as error:
        raise msgspec.DecodeError(f"neither JSON nor compressed JSON ({error})") from None


def _without_zeros(tree: Tree) -> Tree:
    return msgspec.structs.replace(tree, pools=[_pool_without_zeros(pool) for pool in tree.pools])


def _pool_without_zeros(pool: Pool) -> Pool:
    settings = pool.settings
    integral = msgspec.structs.replace(
        settings.integral_guarantees,
        resource_flow=_more_than_nothing(settings.integral_guarantees.resource_flow),
        burst_guarantee_resources=_more_than_nothing(settings.integral_guarantees.burst_guarantee_resources),
    )
    strong = _more_than_nothing(settings.strong_guarantee_resources)
    settings = msgspec.structs.replace(settings, strong_guarantee_resources=strong, integral_guarantees=integral)
    return msgspec.structs.replace(pool, settings=settings)


def _more_than_nothing(amounts: PartialResources) -> PartialResources:
    return PartialResources.of(amounts.whole)
