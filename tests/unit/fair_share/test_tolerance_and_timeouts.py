"""Tolerance and timeouts of starvation: the tree's, and what pools replace for themselves and all below."""

from __future__ import annotations

from typing import Any

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import Pool, PoolConfig, Tree, TreeOptions
from headrace.resources import Resources
from headrace.wire.snapshots import SchedulingStatus, StarvationStatus, UsageFrame, UsageItem
from headrace.wire.version import Version
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.updater import Updater
from tests.support.clocks import NOW, at
from tests.support.fair_share import stored, updated
from tests.support.tree_services import live

TREE = TreeName("default")
TOTAL = Resources(user_slots=1_000, cpu=1_000, memory=2**30)


def a_tree(options: TreeOptions, **pools: tuple[str, dict[str, Any]]) -> Tree:
    """Pools by name, each with its parent and settings."""
    listed = [
        Pool(PoolName(name), PoolName(parent), PoolConfig(**settings)) for name, (parent, settings) in pools.items()
    ]
    return Tree(tree=TREE, pools=listed, options=options)


class Course:
    """Operations in pools a and b, of which each has 60 % of what it is owed, while time passes."""

    def __init__(self, tree: Tree) -> None:
        self.engine = FairShareEngine(TREE, 1, EngineOptions())
        self.updater = Updater()
        self.engine.on_stored_tree(stored(tree, 1), NOW)
        self.engine.on_operations([live("in-a", "a", 100), live("in-b", "b", 100)], NOW)
        self.now_ms = 0
        self.pass_(200)

    def pass_(self, ms: int) -> None:
        self.now_ms += ms
        now = at(self.now_ms / 1000)
        items = [
            UsageItem(OperationId(name), usage=Resources(cpu=300), pending=Resources(cpu=1_000), pending_jobs=10)
            for name in ("in-a", "in-b")
        ]
        frame = UsageFrame(total=TOTAL, complete=True)
        self.engine.on_usage(UsageChange(Version(1, self.now_ms), frame, items), now)
        updated(self.engine, self.updater, now)

    def statuses(self, *keys: str) -> list[SchedulingStatus]:
        return [self.engine.items[key].scheduling_status for key in keys]

    def starving(self) -> set[str]:
        items = self.engine.items.values()
        return {item.key for item in items if item.starvation_status is not StarvationStatus.NON_STARVING}


def test_the_tolerance_of_its_pool_holds_for_an_operation() -> None:
    course = Course(a_tree(TreeOptions(), a=(ROOT_POOL, {"fair_share_starvation_tolerance": 0.5}), b=(ROOT_POOL, {})))

    below, normal = SchedulingStatus.BELOW_FAIR_SHARE, SchedulingStatus.NORMAL
    assert course.statuses("/a", "in-a", "/b", "in-b") == [normal, normal, below, below]


def test_the_timeout_of_its_pool_holds_for_an_operation() -> None:
    course = Course(
        a_tree(
            TreeOptions(fair_share_starvation_timeout=60_000),
            a=(ROOT_POOL, {"fair_share_starvation_timeout": 1_000}),
            b=(ROOT_POOL, {}),
        )
    )
    course.pass_(1_001)
    first = course.starving()
    course.pass_(60_000)

    assert first == {"/a", "in-a"}
    assert course.starving() == {"/a", "in-a", "/b", "in-b"}


def test_pools_that_are_not_looked_at_keep_what_they_had_and_operations_go_on() -> None:
    quick: dict[str, Any] = {"fair_share_starvation_timeout": 1_000}
    course = Course(
        a_tree(TreeOptions(**quick), a=(ROOT_POOL, {}), b=(ROOT_POOL, {"fair_share_starvation_tolerance": 0.1}))
    )
    course.pass_(1_001)
    tree = a_tree(TreeOptions(enable_pool_starvation=False, **quick), a=(ROOT_POOL, {}), b=(ROOT_POOL, {}))
    course.engine.on_stored_tree(stored(tree, 2), NOW)
    course.pass_(1_001)
    course.pass_(1_001)

    assert course.starving() == {"/a", "in-a", "in-b"}
