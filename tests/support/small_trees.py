"""A small tree on which one option at a time is set: the engines of fair_share and integral, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import (
    POOL_ATTRIBUTES,
    TREE_ATTRIBUTES,
    PartialResources,
    Pool,
    PoolConfig,
    Record,
    Schema,
    Support,
    Tree,
    TreeOptions,
)
from headrace.resources import ZERO, Resources
from headrace.wire.log import OperationSuspended
from headrace.wire.snapshots import ShareItem, StarvationStatus, UsageFrame, UsageItem
from headrace.wire.version import Version
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.updater import Update, Updater
from tests.support.clocks import at
from tests.support.fair_share import stored, updated
from tests.support.simulated_tree import SimulatedTree
from tests.support.tree_services import live

__all__ = ["GIB", "TOTAL", "TREE", "SmallTree", "Work", "a_tree", "clocks", "in_force", "saved", "savings", "shares"]

TREE = TreeName("default")
TOTAL = Resources(user_slots=1_000, cpu=10_000, gpu=10, memory=100 * 2**30)
GIB = 2**30


class Work(msgspec.Struct, frozen=True):
    """An operation of jobs of one core and one GiB each."""

    name: str
    pool: str
    jobs: int
    running: int = 0
    gang: bool = False
    weight: float = 1.0
    limits: PartialResources = PartialResources()
    memory: int = 0
    started_at_ms: int = 1
    #: More of its spec.
    wishes: dict[str, Any] = {}


def a_tree(pools: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any]) -> Tree:
    """A tree as requests would make it; `parent` stands among a pool's settings."""
    made = [
        Pool(
            PoolName(name),
            PoolName(given.get("parent", ROOT_POOL)),
            POOL_ATTRIBUTES.changed(PoolConfig(), {key: given[key] for key in given if key != "parent"}).value,
        )
        for name, given in pools.items()
    ]
    return Tree(TREE, made, TREE_ATTRIBUTES.changed(TreeOptions(), dict(options)).value)


class SmallTree:
    """A tree in an engine of fair share, and updates of it."""

    def __init__(self, pools: Mapping[str, Any], work: list[Work], options: Mapping[str, Any]) -> None:
        self.engine = FairShareEngine(TREE, 1, EngineOptions())
        self._updater = Updater()
        self._now_s = 0.0
        self._epoch = 0
        self.work = work
        self._revision = 0
        self.configure(pools, options)
        self.engine.on_operations([self._live(each) for each in work], at(0))

    def configure(self, pools: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """Another configuration."""
        self._revision += 1
        self.engine.on_stored_tree(stored(a_tree(pools, options), self._revision), at(self._now_s))
        assert not self.engine.configuration.trouble

    def suspend(self, name: str, *, suspended: bool = True) -> None:
        """Suspends an operation, or lets it go on."""
        self.engine.on_events([OperationSuspended(OperationId(name), suspended, at_ms=0)], at(self._now_s))

    def update(self, after_s: float = 0.0, *, complete: bool = True) -> Update:
        self._now_s += after_s
        self._epoch += 1
        change = UsageChange(
            Version(1, self._epoch), UsageFrame(total=TOTAL, complete=complete), self._usage(), whole=True
        )
        now = at(self._now_s)
        self.engine.on_usage(change, now)
        return updated(self.engine, self._updater, now)

    def _job(self, work: Work) -> Resources:
        return Resources(user_slots=1, cpu=100, memory=work.memory)

    def _live(self, work: Work) -> Any:
        known = live(work.name, work.pool, work.jobs, started_at_ms=work.started_at_ms)
        spec = msgspec.structs.replace(
            known.spec,
            resources=self._job(work),
            is_gang=work.gang,
            weight=work.weight,
            resource_limits=work.limits,
            **work.wishes,
        )
        return msgspec.structs.replace(known, spec=spec)

    def _usage(self) -> list[UsageItem]:
        return [
            UsageItem(
                OperationId(each.name),
                usage=self._job(each) * each.running,
                precommit=ZERO,
                pending_jobs=each.jobs - each.running,
                pending=self._job(each) * (each.jobs - each.running),
                min_needed=self._job(each),
            )
            for each in self.work
        ]


def shares(
    pools: Mapping[str, Any], work: list[Work], options: Mapping[str, Any] | None = None, after_s: float = 0.0
) -> dict[str, ShareItem]:
    """The share items of an update, and of one more after a time if there is any."""
    small = SmallTree(pools, work, options or {})
    small.update()
    if after_s:
        for _ in range(3):
            small.update(after_s / 3)
    return {key.removeprefix("/"): item for key, item in small.engine.items.items()}


def clocks(
    key: str, pools: Mapping[str, Any], work: list[Work], options: Mapping[str, Any] | None, after_s: float
) -> StarvationStatus:
    """The starvation of an element that has been as it is for so long."""
    small = SmallTree(pools, work, options or {})
    small.update()
    for _ in range(4):
        small.update(after_s / 4)
    return small.engine.items[key].starvation_status


def saved(
    pools: Mapping[str, Any],
    idle_s: int,
    wanted: Mapping[str, int] | None = None,
    options: Mapping[str, Any] | None = None,
    then_s: tuple[int, ...] = (1,),
) -> SimulatedTree:
    """A tree after a time without work, and then some updates with work for so many cores in pools."""
    tree = a_tree(pools, options or {})
    simulated = SimulatedTree(TOTAL, tree.pools, tree.options)
    simulated.update(1_000)
    for _ in range(10):
        simulated.update(idle_s * 100)
    for pool, cores in (wanted or {}).items():
        simulated.wants(pool, cores)
    for seconds in then_s if wanted else ():
        simulated.update(seconds * 1_000)
    return simulated


def savings(simulated: SimulatedTree, pool: str) -> float:
    """What a pool has saved, in core-seconds."""
    return round(simulated.points()[PoolName(pool)].volume, 3)


def in_force(schema: Schema, above: str = "") -> set[str]:
    """The attributes of which something follows, parts of maps by their paths."""
    found: set[str] = set()
    for attribute in schema.attributes.values():
        if attribute.support is not Support.IN_FORCE:
            continue
        if isinstance(attribute.kind, Record):
            found |= in_force(attribute.kind.schema, f"{above}{attribute.name}/")
        else:
            found.add(above + attribute.name)
    return found
