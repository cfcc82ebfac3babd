"""Pools that live by their operations: where they stand and what they are, as admission made them; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import Pool, PoolConfig, PoolTree
from headrace.pools.amounts import PartialResources
from headrace.pools.pool_config import PoolMode
from headrace.wire.placements import EphemeralPool

__all__ = ["guests_of", "settings_of_guest"]


def guests_of(used: Iterable[PoolName], told: Mapping[PoolName, EphemeralPool], configured: PoolTree) -> list[Pool]:
    """The ephemeral pools among those that are used, and those they stand in, parents first.

    One of which admission has not told yet, and one that cannot stand where it was told, stands below the root.
    """
    guests: dict[PoolName, Pool] = {}
    for name in used:
        way: list[PoolName] = []
        while name not in guests and name not in configured.pools and name != ROOT_POOL and name not in way:
            way.append(name)
            name = told[name].parent if name in told else ROOT_POOL
        for each in reversed(way):
            guests[each] = _guest(each, told.get(each), guests, configured)
    return list(guests.values())


def settings_of_guest(told: EphemeralPool) -> PoolConfig:
    """What an ephemeral pool has of its own."""
    return PoolConfig(
        mode=PoolMode(told.mode),
        max_operation_count=told.max_operation_count,
        max_running_operation_count=told.max_running_operation_count,
        resource_limits=PartialResources(**told.resource_limits),
    )


def _guest(name: PoolName, told: EphemeralPool | None, guests: Mapping[PoolName, Pool], configured: PoolTree) -> Pool:
    if told is None:
        return Pool(name=name, parent=ROOT_POOL)
    parent = told.parent
    if parent in guests:
        fits = guests[parent].settings.mode is not PoolMode.FIFO
    else:
        fits = parent in configured.pools and configured.mode(parent) is not PoolMode.FIFO
    return Pool(name=name, parent=parent if fits else ROOT_POOL, settings=settings_of_guest(told))
