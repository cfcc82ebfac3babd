"""Weights that fall with what was used lately."""

from __future__ import annotations

import pytest

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import Pool, PoolConfig, Tree
from headrace.resources import Resources
from headrace.wire.snapshots import UsageFrame, UsageItem
from headrace.wire.version import Version
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.updater import Updater
from tests.support.clocks import NOW, at
from tests.support.fair_share import stored, updated
from tests.support.tree_services import live

TREE = TreeName("default")
TOTAL = Resources(user_slots=100, cpu=1_000, memory=2**30)
HOUR_MS = 3_600_000


class Course:
    """Pools a and b below a pool that looks at what they used; each has an operation that wants everything."""

    def __init__(self, **options: int) -> None:
        above = PoolConfig(infer_children_weights_from_historic_usage=True, **options)  # type: ignore[arg-type]
        pools = [
            Pool(PoolName("above"), ROOT_POOL, above),
            Pool(PoolName("a"), PoolName("above")),
            Pool(PoolName("b"), PoolName("above"), PoolConfig(weight=2.0)),
        ]
        self.engine = FairShareEngine(TREE, 1, EngineOptions())
        self.updater = Updater()
        self.engine.on_stored_tree(stored(Tree(tree=TREE, pools=pools), 1), NOW)
        self.engine.on_operations([live("in-a", "a", 100), live("in-b", "b", 100)], NOW)
        self.now_ms = 0

    def passes(self, ms: int, a_uses: float) -> None:
        """Some time passes in small steps, in which a uses that part of the cluster."""
        for _ in range(10):
            self.now_ms += ms // 10
            now = at(self.now_ms / 1000)
            item = UsageItem(
                OperationId("in-a"), usage=Resources(cpu=int(1_000 * a_uses)), pending=Resources(cpu=1_000)
            )
            frame = UsageFrame(total=TOTAL, complete=True)
            self.engine.on_usage(UsageChange(Version(1, self.now_ms), frame, [item]), now)
            updated(self.engine, self.updater, now)

    def weight(self, pool: str) -> float:
        return self.engine.items[f"/{pool}"].weight


def test_what_was_used_for_ever_halves_the_weight_of_who_used_everything() -> None:
    course = Course(historic_usage_aggregation_period=60_000)
    course.passes(HOUR_MS, a_uses=1.0)
    course.passes(100, a_uses=1.0)

    assert course.weight("a") == pytest.approx(0.5)
    assert course.weight("b") == pytest.approx(2.0)
    assert course.weight("above") == 1.0


def test_after_one_period_half_of_it_is_forgotten() -> None:
    course = Course(historic_usage_aggregation_period=60_000)
    course.passes(HOUR_MS, a_uses=1.0)
    course.passes(60_000, a_uses=0.0)
    average = course.engine._averages.of["/a"]
    course.passes(60_000, a_uses=0.0)

    assert course.engine._averages.of["/a"] == pytest.approx(average / 2)


def test_who_used_less_gets_more() -> None:
    course = Course(historic_usage_aggregation_period=60_000)
    course.passes(HOUR_MS, a_uses=0.5)
    items = course.engine.items

    ratio = items["/b"].fair_share.total[1] / items["/a"].fair_share.total[1]
    assert ratio == pytest.approx(2.0 / 2.0**-0.5, rel=1e-3)


def test_without_the_option_nothing_is_kept() -> None:
    course = Course()
    course.passes(HOUR_MS, a_uses=1.0)
    assert course.engine._averages.of
    course.engine.on_stored_tree(stored(Tree(tree=TREE), 2), NOW)
    course.passes(HOUR_MS, a_uses=1.0)

    assert not course.engine._averages.of
