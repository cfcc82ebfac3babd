"""In a small tree in which all fits, plain numbers end in what arrays end in, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import PartialResources, Pool, PoolConfig, PoolMode, Tree, TreeOptions
from headrace.pools.tree_options import PriorityScope
from headrace.resources import LARGEST_SUM, Resources
from headrace.runtime.engine import Moment
from headrace.wire.log import OperationPlaced, OperationStarted, OperationStateChanged, OperationSuspended, StateCause
from headrace.wire.operation_spec import VANILLA
from headrace.wire.operations import OperationState
from headrace.wire.placements import TreePlacement
from headrace.wire.snapshots import UsageFrame, UsageItem
from headrace.wire.version import Version
from headrace_fair_share.configuration.change_decisions import StoredTree
from headrace_fair_share.effects import Compute
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.starvation.clocks import Clocks
from headrace_fair_share.update.algorithm_input import InputMaker
from headrace_fair_share.update.unsaturated.outcome import MOST_ELEMENTS, UnsaturatedResults, unsaturated_outcome
from headrace_fair_share.update.unsaturated.resting import RestingOperations
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.update.updater import Update, Updater
from tests.support.effort import few_or_many
from tests.support.tree_services import live

TREE = TreeName("default")
TOTALS = [
    Resources(1_000, 100_100, 0, 2**40, 77),
    Resources(37, 3_703, 31, 2**33 + 1, 53),
    Resources(11, 1_100, 9, 2**17, 7),
]
NAMES = [PoolName(name) for name in "abcdef"]
TAGS = [("ssd",), ("gpu", "ssd")]
#: The last two are all that the smaller clusters have of a resource.
GUARANTEES = [PartialResources(), PartialResources(cpu=1_000), PartialResources(gpu=31), PartialResources(network=7)]
#: Of these few, so that some come again.
OPERATIONS = [f"operation-{number}" for number in range(7)]
PLAIN, QUICK = PoolConfig(), PoolConfig(mode=PoolMode.FIFO, enable_lightweight_operations=True)
LARGE = Resources(cpu=LARGEST_SUM // 4)
_encode = msgspec.msgpack.Encoder().encode


def a_config(draw: Random) -> PoolConfig:
    """Mostly one that promises nothing."""

    def at_times(value: object, rarely: int = 4) -> object:
        return value if draw.randrange(rarely) == 0 else None

    own = {
        "weight": at_times(draw.choice([0.1, 0.5, 3.0]), 2),
        "mode": at_times(PoolMode.FIFO, 15),
        "enable_lightweight_operations": at_times(True, 2),
        "strong_guarantee_resources": at_times(draw.choice(GUARANTEES), 12),
        "compute_promised_guarantee_fair_share": at_times(True, 20),
        "enable_priority_strong_guarantee_adjustment": at_times(True, 20),
        "infer_children_weights_from_historic_usage": at_times(True, 20),
        "resource_limits": at_times(PartialResources(cpu=draw.choice([400, 1_000, 2**50]), memory=2**38)),
        "scheduling_tag_filter": at_times(draw.choice(["ssd", "!gpu", "old"])),
        "fair_share_starvation_tolerance": at_times(draw.choice([0.0, 0.3, 1.0])),
        "fair_share_starvation_timeout": at_times(draw.choice([0, 199])),
        "enable_aggressive_starvation": at_times(True),
    }
    return PoolConfig(**{name: value for name, value in own.items() if value is not None})  # type: ignore[arg-type]


def a_tree(draw: Random) -> Tree:
    listed: list[Pool] = []
    for name in NAMES[: draw.randrange(len(NAMES))]:
        listed.append(Pool(name, draw.choice([ROOT_POOL, *(pool.name for pool in listed)]), a_config(draw)))
    timeout_ms, aggressive_ms = draw.choice([(0, 200), (300, 500), (30_000, 120_000)])
    options = TreeOptions(
        fair_share_starvation_timeout=timeout_ms,
        fair_share_aggressive_starvation_timeout=aggressive_ms,
        enable_pool_starvation=draw.random() < 0.7,
        enable_absolute_fair_share_starvation_tolerance=draw.random() < 0.1,
        allocation_count_preemption_timeout_coefficient=draw.choice([1.0, 1.0, 4.0]),
        infer_weight_from_guarantees_share_multiplier=draw.choice([None, 10.0]),
        scheduling_preemption_priority_scope=draw.choice(list(PriorityScope)),
        enable_step_function_for_gang_operations=draw.random() < 0.5,
    )
    return Tree(tree=TREE, pools=listed, options=options)


class Course:
    """An engine to which anything happens, and the updates of it."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.total = draw.choice(TOTALS)
        self.engine = FairShareEngine(TREE, 1, EngineOptions(full_update_period_us=2**62))
        self.revision = self.epoch = 0
        self.now_ms, self.complete = 1_000_000, True
        self.configured()
        self.engine.on_operations([], self.now)
        self.used([])

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms * 1_000_000, 1_700_000_000_000 + self.now_ms)

    def configured(self) -> None:
        self.revision += 1
        self.engine.on_stored_tree(StoredTree(self.revision, a_tree(self.draw)), self.now)

    def used(self, items: list[UsageItem], removed: frozenset[str] = frozenset()) -> None:
        self.epoch += 1
        frame = UsageFrame(total=self.total, complete=self.complete)
        self.engine.on_usage(UsageChange(Version(1, self.epoch), frame, items, removed), self.now)

    def happens(self) -> None:
        """One thing, and some time passes."""
        draw = self.draw
        name = draw.choice(OPERATIONS)
        known = self.engine.operations.by_id
        match draw.randrange(10):
            case 0 | 1 | 7 if name not in known:
                begun = live(name, draw.choice([*NAMES, PoolName("ephemeral")]), draw.choice([0, 1, 1, 3, 3, 500]))
                spec = msgspec.structs.replace(
                    begun.spec,
                    weight=draw.choice([1.0] * 9 + [0.3] * 9 + [1e-12]),
                    scheduling_tag_filter=draw.choice(["", "", "ssd"]),
                    resource_limits=draw.choice([PartialResources(), PartialResources(cpu=200)]),
                    fair_share_starvation_timeout_ms=draw.choice([None, None, 900]),
                    is_gang=draw.random() < 0.2,
                    type=draw.choice([VANILLA, VANILLA, "map"]),
                )
                state = draw.choice([OperationState.RUNNING, OperationState.RUNNING, OperationState.PENDING])
                started = OperationStarted(begun.operation, "anna", spec, state, False, spec.job_count, 1, 1)
                self.engine.on_events([started], self.now)
            case 2:
                state = draw.choice([OperationState.COMPLETED, OperationState.COMPLETING])
                event = OperationStateChanged(OperationId(name), state, StateCause.COMPLETED_BY_USER, "", at_ms=0)
                self.engine.on_events([event], self.now)
            case 3:
                suspended = draw.random() < 0.5
                self.engine.on_events([OperationSuspended(OperationId(name), suspended, at_ms=0)], self.now)
            case 4:
                self.used([UsageItem.of_nodes(TAGS[draw.randrange(2)], self.total)])
            case 5 if draw.randrange(4) == 0:
                self.configured()
            case 6:
                self.complete = draw.random() < 0.7
                self.used([])
            case _:
                self.used([self.usage(name)], frozenset(draw.choices(OPERATIONS, k=draw.choice([0, 0, 1]))))
        self.now_ms += draw.choice([0, 5, 200])

    def usage(self, name: str) -> UsageItem:
        draw = self.draw
        used, pending = (
            Resources(each, 100 * each, min(each, self.total.gpu), each * 1_234, each)
            for each in (draw.randrange(3), draw.randrange(3))
        )
        pending = pending if draw.randrange(40) else LARGE
        return UsageItem(
            OperationId(name),
            usage=used,
            precommit=Resources(1, 100) if draw.randrange(4) == 0 else Resources(),
            pending_jobs=pending.user_slots,
            pending=pending,
            min_needed=Resources(1, 100),
        )

    def cut(self) -> UpdateFacts:
        effects = self.engine.on_update_due(self.now).effects
        if not isinstance(effects[0], Compute):
            effects = self.engine.on_advance_answer(None, self.now).effects
        (compute,) = effects
        assert isinstance(compute, Compute)
        averages = {f"/{NAMES[0]}": 0.5, OPERATIONS[0]: 0.5} if self.draw.random() < 0.2 else {}
        return msgspec.structs.replace(compute.cut, usage_averages=averages)


class QuietCourse(Course):
    """Hardly anything is promised, and most operations hold nothing and ask for nothing."""

    def configured(self) -> None:
        self.revision += 1
        names = NAMES[: self.draw.randrange(3)]
        plain = Tree(
            tree=TREE, pools=[Pool(name, ROOT_POOL, self.draw.choice([PLAIN] * 4 + [QUICK])) for name in names]
        )
        tree = a_tree(self.draw) if self.draw.randrange(4) == 0 else plain
        self.engine.on_stored_tree(StoredTree(self.revision, tree), self.now)

    def __init__(self, draw: Random) -> None:
        super().__init__(draw)
        names = draw.sample([*OPERATIONS, *(f"parked-{number}" for number in range(6))], 13)
        self.engine.on_operations([live(name, draw.choice(NAMES[:3]), 0) for name in names], self.now)

    def happens(self) -> None:
        if self.draw.randrange(30) == 0:
            self.total = self.draw.choice(TOTALS)
            self.used([])
        if self.draw.randrange(10) == 0:
            name, pool = OperationId(self.draw.choice(OPERATIONS)), self.draw.choice([*NAMES, PoolName("ephemeral")])
            self.engine.on_events([OperationPlaced(name, TreePlacement(TREE, pool, ticket=0))], self.now)
        for _ in range(self.draw.choice([1, 1, 2, 3])):
            super().happens()

    def usage(self, name: str) -> UsageItem:
        return UsageItem(OperationId(name)) if self.draw.random() < 0.2 else super().usage(name)


class WatchedUpdater(Updater):
    """Counts the updates that passed over operations which rest."""

    passed_over = 0

    def _gone_on(self, cut: UpdateFacts, resting: RestingOperations, outcome: UnsaturatedResults) -> Update:
        self.passed_over += len(resting) > 0
        looked_at = [key for key in outcome.items if not key.startswith("/")]
        assert looked_at == [name for name in cut.operations if name in outcome.items]
        assert {*looked_at, *resting} == set(cut.operations)
        return super()._gone_on(cut, resting, outcome)


@pytest.mark.long
@pytest.mark.both
@pytest.mark.parametrize("kind", [Course, QuietCourse])
def test_always_plain_numbers_end_in_what_arrays_end_in(kind: type[Course]) -> None:
    in_plenty: list[bool] = []
    passed_over: list[bool] = []

    @settings(max_examples=few_or_many(40, 1_500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.randoms(use_true_random=True))
    def compare(draw: Random) -> None:
        course, updater = kind(draw), WatchedUpdater(largest_unsaturated=draw.choice([MOST_ELEMENTS, 4, 8, 12, 12]))
        for _ in range(15):
            course.happens()
            cut = course.cut()
            outcome = unsaturated_outcome(cut, InputMaker().make(cut))
            anew = Updater(largest_unsaturated=0).update(cut)

            before = updater.passed_over
            update = updater.update(cut, afresh=draw.randrange(8) == 0)
            course.engine.on_updated(update, course.now)
            passed_over.append(updater.passed_over > before)

            assert update.wrong is None
            assert update.frame == anew.frame
            assert course.engine.items.keys() == {item.key for item in anew.changed}
            assert update.clocks.ages(course.now_ms) == anew.clocks.ages(course.now_ms)
            in_plenty.append(outcome is not None)
            assert outcome is not None or not passed_over[-1]
            if outcome is not None:
                assert _encoded(outcome.items) == _encoded({item.key: item for item in anew.changed})
                assert _encoded(outcome.pool_results) == _encoded(anew.pool_results)
                assert _columns(outcome.clocks) == _columns(anew.clocks)
                assert course.engine.items == outcome.items
                assert course.engine.pool_results == outcome.pool_results

    compare()

    assert len(in_plenty) * 0.2 < sum(in_plenty) < len(in_plenty) * 0.98
    assert sum(passed_over) > len(passed_over) * (0.1 if kind is QuietCourse else 0)


def _encoded(structs: Mapping[Any, msgspec.Struct]) -> dict[str, bytes]:
    """Their bits: a zero is not one below it."""
    return {key: _encode(one) for key, one in structs.items()}


def _columns(clocks: Clocks) -> list[list[int]]:
    return [list(clocks.keys), *(column.tolist() for column in clocks._columns())]
