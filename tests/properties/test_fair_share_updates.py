"""What the service tells after any course of events: the same as if it had worked everything out anew."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import IntegralGuarantees, IntegralType, PartialResources, Pool, PoolConfig, Tree, TreeOptions
from headrace.pools.node_filter import matches
from headrace.resources import Resources
from headrace.runtime.engine import Moment
from headrace.wire.integral import PoolVolume, Volume
from headrace.wire.log import OperationStateChanged, ParametersChanged, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import DetailedShare, ElementKind, ShareItem, UsageFrame, UsageItem
from headrace.wire.version import Version
from headrace_fair_share.configuration.change_decisions import StoredTree
from headrace_fair_share.effects import Compute
from headrace_fair_share.engine import EngineOptions, FairShareEngine
from headrace_fair_share.facts.usage import UsageChange
from headrace_fair_share.update.results import MAX_REBUILT_ITEMS
from headrace_fair_share.update.unsaturated.outcome import MOST_ELEMENTS
from headrace_fair_share.update.updater import Updater
from tests.support.effort import few_or_many
from tests.support.tree_services import live

TREE = TreeName("default")
TOTAL = Resources(user_slots=1_000, cpu=100_000, memory=2**40)
OPTIONS = TreeOptions(
    fair_share_starvation_timeout=500,
    fair_share_aggressive_starvation_timeout=1_000,
    enable_aggressive_starvation=True,
)
#: Every update goes on from the one before it.
GOING_ON = EngineOptions(full_update_period_us=2**62)
NAMES = [PoolName(name) for name in ("a", "b", "c")]
#: Pools that no configuration has.
EPHEMERAL = [PoolName(name) for name in ("ephemeral-1", "ephemeral-2")]
OPERATIONS = [f"operation-{number}" for number in range(3)]
#: Largest difference between the incremental and the full computation.
NEAR = 1e-12
#: Nodes have some of these, and pools and operations ask for some.
TAGS = [("ssd",), ("gpu", "ssd"), ("gpu",)]
FILTERS = ["", "ssd", "!ssd", "gpu & ssd", "gpu | old", "old"]

#: The last two are all that the cluster has of a resource.
GUARANTEES = [
    PartialResources(cpu=0),
    PartialResources(cpu=10_000),
    PartialResources(cpu=40_000),
    PartialResources(cpu=100_000),
    PartialResources(cpu=0, user_slots=1_000),
]

cpus = st.integers(0, 60_000)
operations = st.sampled_from(OPERATIONS)
filters = st.sampled_from(FILTERS)
pools = st.sampled_from([*NAMES, *EPHEMERAL])


@st.composite
def settings_of_pools(draw: st.DrawFn) -> PoolConfig:
    kind = draw(st.sampled_from(list(IntegralType)))
    flow, burst = sorted((draw(st.integers(0, 30_000)), draw(st.integers(0, 30_000))))
    integral = IntegralGuarantees(
        guarantee_type=kind,
        resource_flow=PartialResources(cpu=flow),
        burst_guarantee_resources=PartialResources(cpu=burst if kind is IntegralType.BURST else 0),
    )
    guarantee = draw(st.sampled_from(GUARANTEES))
    weight = draw(st.sampled_from([None, 0.5, 3.0]))
    formula = draw(filters) or None
    return PoolConfig(
        weight=weight,
        strong_guarantee_resources=guarantee,
        integral_guarantees=integral,
        scheduling_tag_filter=formula,
    )


@st.composite
def configurations(draw: st.DrawFn) -> list[Pool]:
    names = NAMES[: draw(st.integers(0, len(NAMES)))]
    listed: list[Pool] = []
    for name in names:
        above = draw(st.sampled_from([ROOT_POOL, *(pool.name for pool in listed)]))
        plain = above != ROOT_POOL
        own = PoolConfig(scheduling_tag_filter=draw(filters)) if plain else draw(settings_of_pools())
        listed.append(Pool(name, above, own))
    return listed


class Course(RuleBasedStateMachine):
    """One engine to which things happen; after each, what it told so far is compared with what a new one would tell."""

    @initialize(
        listed=configurations(),
        max_rebuilt_items=st.sampled_from([0, MAX_REBUILT_ITEMS]),
        largest_unsaturated=st.sampled_from([0, 5, 8, MOST_ELEMENTS]),
    )
    def begin(self, listed: list[Pool], max_rebuilt_items: int, largest_unsaturated: int) -> None:
        self.engine = FairShareEngine(TREE, 1, GOING_ON)
        self.updater = Updater(max_rebuilt_items=max_rebuilt_items, largest_unsaturated=largest_unsaturated)
        self.revision = self.epoch = 0
        self.now_ms = 1_000_000
        self.told: dict[str, ShareItem] = {}
        #: Of the nodes by tags, as they were told last, and as they were told last by an allocator that knew all.
        self.told_rooms: dict[tuple[str, ...], Resources] = {}
        self.rooms: dict[tuple[str, ...], Resources] = {}
        self.configured(listed)
        self.engine.on_operations([], self.now)
        self.used([])

    @rule(listed=configurations())
    def configured(self, listed: list[Pool]) -> None:
        self.revision += 1
        tree = Tree(tree=TREE, pools=listed, options=OPTIONS)
        self.engine.on_stored_tree(StoredTree(self.revision, tree), self.now)

    @rule(operation=operations, pool=pools, jobs=st.sampled_from([0, 1, 100, 400]), formula=filters)
    def starts(self, operation: str, pool: PoolName, jobs: int, formula: str) -> None:
        if operation not in self.engine.operations.by_id:
            newcomer = FairShareEngine(TREE, 1, EngineOptions())
            begun = live(operation, pool, jobs)
            spec = msgspec.structs.replace(begun.spec, scheduling_tag_filter=formula)
            newcomer.on_operations([msgspec.structs.replace(begun, spec=spec)], self.now)
            self.engine.operations.by_id |= newcomer.operations.by_id

    @rule(operation=operations, pool=pools, weight=st.sampled_from([1.0, 2.0]))
    def moves(self, operation: str, pool: PoolName, weight: float) -> None:
        event = ParametersChanged(OperationId(operation), pool, weight, ephemeral_pool=False, at_ms=0)
        self.engine.on_events([event], self.now)

    @rule(used=st.dictionaries(operations, st.tuples(cpus, cpus), min_size=1, max_size=3))
    def used_for_a_moment(self, used: dict[str, tuple[int, int]]) -> None:
        self.used([_usage(name, *figures) for name, figures in used.items()])
        self.used([], removed=frozenset(used))

    @rule(operation=operations, state=st.sampled_from([OperationState.COMPLETED, OperationState.COMPLETING]))
    def ends(self, operation: str, state: OperationState) -> None:
        event = OperationStateChanged(OperationId(operation), state, StateCause.COMPLETED_BY_USER, "", at_ms=0)
        self.engine.on_events([event], self.now)

    @rule(used=st.dictionaries(operations, st.tuples(cpus, cpus), max_size=3))
    def uses(self, used: dict[str, tuple[int, int]]) -> None:
        self.used([_usage(name, *figures) for name, figures in used.items()])

    @rule(nodes=st.dictionaries(st.sampled_from(TAGS), st.integers(1, 30), min_size=1), complete=st.booleans())
    def nodes_have_tags(self, nodes: dict[tuple[str, ...], int], complete: bool) -> None:
        tagged = {tags: Resources(10 * part, 1_000 * part, 0, 2**33 * part) for tags, part in nodes.items()}
        rest = TOTAL - Resources.sum(tagged.values())
        rooms = tagged | {(): rest}
        gone = frozenset(str(UsageItem.of_nodes(tags).operation) for tags in TAGS if tags not in rooms)
        self.told_rooms = rooms
        self.used([UsageItem.of_nodes(tags, room) for tags, room in rooms.items()], removed=gone, complete=complete)

    @rule(complete=st.booleans())
    def recovers(self, complete: bool) -> None:
        self.used([], complete=complete)

    @rule(names=st.lists(st.sampled_from(NAMES), unique=True), ratio=st.sampled_from([0.0, 10.0, 1e6]))
    def saved(self, names: list[PoolName], ratio: float) -> None:
        volume = Volume(user_slots=1_000 * ratio, cpu=int(100_000 * ratio), memory=2**40 * ratio)
        self.engine.volumes.of = {name: PoolVolume(name, volume, ratio) for name in names}

    def used(self, items: list[UsageItem], *, removed: frozenset[str] = frozenset(), complete: bool = True) -> None:
        self.epoch += 1
        self.rooms = self.told_rooms if complete else self.rooms
        frame = UsageFrame(total=TOTAL, complete=complete)
        self.engine.on_usage(UsageChange(Version(1, self.epoch), frame, items, removed), self.now)

    @property
    def now(self) -> Moment:
        return Moment(self.now_ms * 1_000_000, 1_700_000_000_000 + self.now_ms)

    @invariant()
    def what_was_told_is_what_a_new_one_would_tell(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.now_ms += 200
        self.engine.on_update_due(self.now)
        (compute,) = self.engine.on_advance_answer(None, self.now).effects
        assert isinstance(compute, Compute)
        assert not compute.afresh
        update = self.updater.update(compute.cut)
        anew = Updater(largest_unsaturated=0).update(compute.cut)
        self.engine.on_updated(update, self.now)

        expected = {item.key: item for item in anew.changed}
        assert self.engine.items.keys() == expected.keys()
        for key, item in expected.items():
            _assert_same(self.engine.items[key], item)
        pools = {PoolName(key[1:]) for key in expected if key.startswith("/")}
        assert self.engine.pool_results.keys() == pools
        for name in pools:
            _assert_same(self.engine.pool_results[name], anew.pool_results[name])
        assert self.engine.clocks.ages(0) == anew.clocks.ages(0)
        assert update.frame == anew.frame
        assert self.engine.check() == []
        assert [item.kind for item in expected.values()].count(ElementKind.ROOT) == 1
        self.nobody_is_owed_more_than_match_its_filters(expected)

    def nobody_is_owed_more_than_match_its_filters(self, items: dict[str, ShareItem]) -> None:
        """Nor are several operations together that can run on no other nodes."""
        together: dict[frozenset[tuple[str, ...]], list[ShareItem]] = {}
        pools, known = self.engine.configuration.pools.pools, self.engine.operations.by_id
        for item in items.values():
            is_operation = item.kind is ElementKind.OPERATION
            asked = [*known[OperationId(item.name)].node_filters] if is_operation else []
            above = pools.get(PoolName(item.parent if is_operation else item.name))
            while above is not None:
                asked.append(above.settings.scheduling_tag_filter or "")
                above = pools.get(above.parent)
            match = {tags for tags in self.rooms if all(matches(formula, tags) for formula in asked)}
            most = Resources.sum(self.rooms[tags] for tags in match)
            if self.rooms and item.kind is ElementKind.OPERATION:
                together.setdefault(frozenset(match), []).append(item)
            assert item.tag_filter_limits == (most if any(asked) and self.rooms else None)
            if item.tag_filter_limits is not None:
                owed = zip(item.fair_share.total, most.share_of(TOTAL), strict=True)
                assert all(share <= limit + 1e-9 for share, limit in owed)
        for nodes in together:
            have = Resources.sum(self.rooms[tags] for tags in nodes).share_of(TOTAL)
            owed_there = [item.fair_share.total for each, some in together.items() if each <= nodes for item in some]
            assert all(
                sum(shares) <= most + 1e-8 for shares, most in zip(zip(*owed_there, strict=True), have, strict=True)
            )


def _usage(operation: str, used: int, pending: int) -> UsageItem:
    return UsageItem(
        OperationId(operation),
        usage=Resources(user_slots=used // 100, cpu=used),
        pending_jobs=pending // 100,
        pending=Resources(user_slots=pending // 100, cpu=pending),
    )


def _assert_same(one: msgspec.Struct, other: msgspec.Struct) -> None:
    """Equal, figures of shares nearly so."""
    for field in one.__struct_fields__:
        left, right = getattr(one, field), getattr(other, field)
        if isinstance(left, DetailedShare):
            _assert_same(left, right)
        elif isinstance(left, tuple):
            assert np.allclose(left, right, rtol=0, atol=NEAR), field
        elif isinstance(left, float):
            assert math.isclose(left, right, rel_tol=1e-9, abs_tol=NEAR), field
        else:
            assert left == right, field


Course.TestCase.settings = settings(
    max_examples=few_or_many(20, 300),
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCourse = Course.TestCase
