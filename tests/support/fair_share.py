"""The engine of fair share without its shell: whole updates in one go, and requests as people send them."""

from __future__ import annotations

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools import POOL_ATTRIBUTES, PoolConfig, Tree
from headrace.runtime.engine import Moment
from headrace.wire.pool_changes import ChangePools, Create, Remove, Set
from headrace_fair_share.configuration.change_decisions import StoredTree
from headrace_fair_share.effects import Compute
from headrace_fair_share.engine import FairShareEngine
from headrace_fair_share.update.updater import Update, Updater

__all__ = ["computed", "create_pool", "remove_pool", "set_pool", "stored", "updated"]


def stored(tree: Tree, revision: int) -> StoredTree:
    """A tree as the bucket has it."""
    return StoredTree(revision, tree)


def computed(engine: FairShareEngine, updater: Updater, now: Moment) -> Update:
    """The rest of an update, with the volumes that are known. Raises what the algorithm raises."""
    (compute,) = engine.on_advance_answer(None, now).effects
    assert isinstance(compute, Compute)
    return _worked_out(engine, updater, compute, now)


def _worked_out(engine: FairShareEngine, updater: Updater, compute: Compute, now: Moment) -> Update:
    update = updater.update(compute.cut, afresh=compute.afresh)
    engine.on_updated(update, now)
    engine.on_published(now)
    assert engine.check() == []
    return update


def updated(engine: FairShareEngine, updater: Updater, now: Moment) -> Update:
    """A whole update that does not wait for integral."""
    for effect in engine.on_update_due(now).effects:
        if isinstance(effect, Compute):
            return _worked_out(engine, updater, effect, now)
    return computed(engine, updater, now)


def create_pool(name: str, parent: str = ROOT_POOL, config: PoolConfig | None = None) -> ChangePools:
    """Make a pool."""
    attributes = POOL_ATTRIBUTES.written(config or PoolConfig())
    return ChangePools([Create(PoolName(name), PoolName(parent), msgspec.json.encode(attributes))])


def set_pool(name: str, attributes: bytes) -> ChangePools:
    """Change attributes of a pool."""
    return ChangePools([Set(PoolName(name), attributes)])


def remove_pool(name: str) -> ChangePools:
    """Take a pool away."""
    return ChangePools([Remove(PoolName(name))])
