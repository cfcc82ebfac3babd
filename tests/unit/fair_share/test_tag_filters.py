"""Whoever may run on some nodes only is owed no more than those have. Allocator and fair share are the real ones."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from headrace.ids import ROOT_POOL, NodeName, OperationId, PoolName, TreeName
from headrace.pools import PartialResources, Person, Pool, PoolConfig, PoolTree, Tree, TreeOptions
from headrace.pools.tree_options import SsdNodes
from headrace.resources import ZERO, Resources
from headrace.wire.explanations import Cause, ExplainWaiting, WaitingExplained
from headrace.wire.nodes import NodeRecord
from headrace.wire.plan import Bound, BoundKind
from headrace.wire.pool_changes import ChangePools, Set
from headrace.wire.snapshots import ShareItem, StarvationStatus, UsageFrame, UsageItem
from headrace.wire.version import Version
from headrace_fair_share.effects import WriteTree
from headrace_fair_share.facts.changed_operations import News
from headrace_fair_share.facts.usage import KnownUsage, UsageChange
from headrace_fair_share.update.binding import Bindings
from headrace_fair_share.update.matching_nodes import MatchingNodes
from headrace_fair_share.update.node_guarantees import promise_warnings
from tests.support.allocating import an_operation
from tests.support.clocks import NOW
from tests.support.preempting import Fleet

pytestmark = pytest.mark.usefixtures("heartbeats_compared")

NODE = Resources(10, 400, 0, 8 * 1024**3)
JOB = Resources(1, 100)
FAST = PoolConfig(scheduling_tag_filter="ssd")


class Tagged(Fleet):
    """The nodes n1 and n2, of which n2 has the tag `ssd`. In each pool, or those in `works`, stands an operation of a hundred jobs."""

    def __init__(
        self,
        *pools: Pool,
        options: TreeOptions | None = None,
        nodes: tuple[str, ...] = ("n1", "n2"),
        works: set[str] | None = None,
    ) -> None:
        super().__init__(Random(1), dict.fromkeys(nodes, NODE), pools, options or TreeOptions())
        self.tag(n2=["ssd"])
        for node in nodes:
            self.hear(node)
        for pool in pools:
            if works is None or pool.name in works:
                self.work(f"in-{pool.name}", pool.name)

    def tag(self, **tags: list[str]) -> None:
        records = {NodeName(name): NodeRecord(NodeName(name), tags=each) for name, each in tags.items()}
        self.engine.on_nodes(records, self.now)

    def work(self, name: str, pool: str, **spec: object) -> None:
        """Starts an operation in a pool."""
        live = an_operation(name, 100, JOB)
        changed = msgspec.structs.replace(live.spec, pool=PoolName(pool), **spec)
        self.begin(msgspec.structs.replace(live, spec=changed), 600.0)

    def item(self, key: str) -> ShareItem:
        return self._fair_share.items[key]

    def cores(self, key: str) -> float:
        """What an element is owed."""
        return self.item(key).fair_share.total[1] * self.facts.total.cpu / 100

    def owed(self, *keys: str) -> list[float]:
        self.refresh()
        self.update_shares()
        assert self.engine.check() == []
        return [round(self.cores(key), 6) for key in keys]


def a_pool(name: str, config: PoolConfig | None = None, parent: str = ROOT_POOL) -> Pool:
    return Pool(PoolName(name), PoolName(parent), config or PoolConfig())


def test_a_pool_with_a_filter_is_owed_no_more_than_the_nodes_that_match() -> None:
    alone = Tagged(a_pool("fast", FAST))
    beside = Tagged(a_pool("fast", msgspec.structs.replace(FAST, weight=9.0)), a_pool("other"))

    assert alone.owed("/fast", "in-fast") == [4, 4]
    assert beside.owed("/fast", "in-fast", "/other") == [4, 4, 4]


def test_an_operation_is_owed_no_more_than_the_nodes_that_match_its_own_filter_and_those_of_its_pools() -> None:
    below = a_pool("below", PoolConfig(scheduling_tag_filter="big | new"), "above")
    tree = Tagged(a_pool("above", FAST), below, works={"below"})
    tree.work("picky", "below", scheduling_tag_filter="!old", weight=9.0)
    tree.tag(n1=["ssd", "big", "old"], n2=["ssd", "new"])
    both = tree.owed("picky", "/below")
    tree.tag(n1=["big"])
    one = tree.owed("picky", "in-below", "/below", "/above")

    assert both == [4, 8]
    assert one == [3.6, 0.4, 4, 4]


def test_limits_that_nodes_set_are_told_apart_from_those_of_the_configuration() -> None:
    limits = PartialResources(cpu=600)
    tree = Tagged(a_pool("fast", PoolConfig(scheduling_tag_filter="ssd", resource_limits=limits)), a_pool("other"))
    tree.update_shares()
    fast = tree.item("/fast")

    assert (fast.limits, fast.tag_filter_limits, fast.limits_share[1]) == (limits, NODE, 0.5)
    assert tree.item("in-fast").tag_filter_limits == NODE
    assert tree.item("/other").tag_filter_limits is None
    assert tree.facts.pools.pool(PoolName("fast")).most == limits


def test_a_limit_below_what_the_nodes_have_stays_the_limit() -> None:
    limits = PartialResources(cpu=100)
    tree = Tagged(a_pool("fast", PoolConfig(scheduling_tag_filter="ssd", resource_limits=limits)))

    assert tree.owed("/fast") == [1]


def test_a_filter_that_matches_nothing_is_owed_nothing_until_a_node_matches() -> None:
    tree = Tagged(a_pool("none", PoolConfig(scheduling_tag_filter="gpu")), a_pool("other"))

    assert tree.owed("/none", "/other") == [0, 8]
    assert tree.item("/none").tag_filter_limits == ZERO
    tree.tag(n1=["gpu"])
    assert tree.owed("/none", "/other") == [4, 4]


def test_tags_that_change_under_running_jobs_move_what_is_owed_and_no_job() -> None:
    tree = Tagged(a_pool("fast", FAST), a_pool("other"))
    tree.update_shares()
    for _ in range(2):
        tree.hear("n1")
        tree.hear("n2")
    running = {name: len(operation.allocations) for name, operation in tree.facts.operations.items()}
    tree.tag(n2=[])
    without = tree.owed("/fast", "/other")
    tree.tag(n1=["ssd"])
    moved = tree.owed("/fast", "/other")

    assert (without, moved) == ([0, 8], [4, 4])
    assert {name: len(operation.allocations) for name, operation in tree.facts.operations.items()} == running


def test_nodes_that_fall_silent_drain_or_leave_the_tree_take_what_they_have_along() -> None:
    tree = Tagged(a_pool("fast", FAST), nodes=("n1", "n2", "n3"))
    tree.tag(n3=["ssd"])
    assert tree.owed("/fast") == [8]
    tree.engine.on_nodes({NodeName("n3"): NodeRecord(NodeName("n3"), tags=["ssd"], drained=True)}, tree.now)
    tree.hear("n3")
    assert tree.owed("/fast") == [4]
    tree.engine.on_options(TreeOptions(node_filter="!ssd"), tree.now)
    assert tree.owed("/fast") == [0]
    tree.engine.on_options(TreeOptions(), tree.now)
    assert tree.owed("/fast") == [4]
    tree.now_s += 61
    tree.hear("n1")
    tree.engine.on_tick(tree.now)
    assert tree.owed("/fast") == [0]


def test_a_pool_that_may_not_use_nodes_with_ssd_is_owed_the_others_unless_a_pool_below_may() -> None:
    options = TreeOptions(ssd_priority_preemption=SsdNodes(enable=True, node_tag_filter="ssd"))
    slow = PoolConfig(allow_regular_allocations_on_ssd_nodes=False)
    tree = Tagged(a_pool("slow", slow), a_pool("other", PoolConfig(weight=0.1)), options=options)
    assert tree.owed("/slow", "in-slow") == [4, 4]

    may = PoolConfig(allow_regular_allocations_on_ssd_nodes=True)
    tree = Tagged(a_pool("slow", slow), a_pool("may", may, "slow"), options=options)
    assert tree.owed("/slow", "in-slow", "/may") == [8, 4, 4]


# --- several that want the same nodes -----------------------------------------------------------------------------

PROMPT = TreeOptions(fair_share_starvation_timeout=5_000, take_excess_for_few_nodes=True)


def guaranteed(cores: int, filter_: str = "") -> PoolConfig:
    return PoolConfig(
        strong_guarantee_resources=PartialResources(cpu=100 * cores), scheduling_tag_filter=filter_ or None
    )


def running_on(tree: Tagged, node: str) -> dict[str, int]:
    """How many jobs of each operation run on a node."""
    return dict(Counter(place.operation for place in tree.places[node].values() if place.job is not None))


def let_run(tree: Tagged, seconds: int) -> None:
    """A heartbeat of each node a second."""
    for _ in range(seconds):
        tree.pass_time(1)
        for node in tree.nodes:
            tree.hear(node)


def test_operations_that_can_run_nowhere_else_share_the_nodes_by_guarantee_and_weight() -> None:
    tree = Tagged(a_pool("heavy", PoolConfig(weight=3.0)), a_pool("light"), a_pool("other"), works={"other"})
    for name in ("heavy", "light"):
        tree.work(f"on-ssd-{name}", name, scheduling_tag_filter="ssd")
    assert tree.owed("on-ssd-heavy", "on-ssd-light", "in-other") == [3, 1, 4]

    tree = Tagged(a_pool("promised", guaranteed(3, "ssd")), a_pool("fast", FAST), nodes=("n1", "n2", "n3"))
    assert tree.owed("/promised", "/fast") == [3.5, 0.5]


def test_a_pool_that_has_other_nodes_too_leaves_some_nodes_to_those_that_have_no_others() -> None:
    """Both guarantees fit: that of `wide` is had on the nodes that everybody may use."""
    tree = Tagged(a_pool("wide", guaranteed(8)), a_pool("narrow", guaranteed(3, "ssd")), nodes=("n1", "n2", "n3"))
    tree.work("on-ssd", "wide", scheduling_tag_filter="ssd", weight=9.0)

    assert tree.owed("/wide", "on-ssd", "in-wide", "/narrow") == [9, 1, 8, 3]


@pytest.mark.parametrize("of_pools", [True, False])
def test_a_guarantee_on_the_only_node_that_matches_is_had_soon_after_its_timeout(of_pools: bool) -> None:
    filters = {"scheduling_tag_filter": "ssd"}
    pools = a_pool("free", FAST if of_pools else None), a_pool("promised", guaranteed(2, "ssd" if of_pools else ""))
    tree = Tagged(*pools, options=PROMPT, nodes=("n1", "n2", "n3"), works=set())
    tree.saves_s = 0.0
    tree.work("first", "free", **({} if of_pools else filters))
    tree.update_shares()
    let_run(tree, 2)
    assert running_on(tree, "n2") == {"first": 4}

    tree.work("second", "promised", **({} if of_pools else filters))
    let_run(tree, 22)

    assert [round(tree.cores(key)) for key in ("first", "second")] == [1, 3]
    assert running_on(tree, "n2") == {"first": 1, "second": 3}
    assert running_on(tree, "n1") == {}


def test_a_pool_below_its_own_share_loses_nodes_of_which_it_has_too_much() -> None:
    """`wide` is owed 11 cores and has 4: its other operation just came, and starves as well."""
    pools = a_pool("wide", guaranteed(8)), a_pool("narrow", guaranteed(3, "ssd")), a_pool("free")
    tree = Tagged(*pools, options=PROMPT, nodes=("n1", "n2", "n3"), works=set())
    tree.saves_s = 0.0
    tree.work("on-ssd", "wide", scheduling_tag_filter="ssd")
    tree.work("elsewhere", "free", scheduling_tag_filter="!ssd")
    tree.update_shares()
    let_run(tree, 2)
    assert running_on(tree, "n2") == {"on-ssd": 4}

    tree.work("beside", "wide", scheduling_tag_filter="!ssd")
    tree.work("in-narrow", "narrow")
    let_run(tree, 6)
    assert tree.cores("/wide") > sum(
        running_on(tree, node).get(each, 0) for node in tree.nodes for each in ("on-ssd", "beside")
    )
    let_run(tree, 18)

    assert running_on(tree, "n2") == {"on-ssd": 1, "in-narrow": 3}


def test_what_an_operation_has_too_much_is_taken_where_only_others_can_run() -> None:
    """`everywhere` has all three nodes, n3 last. It is owed two of them, and n2 is the only one on which `promised` can run."""
    tree = Tagged(
        a_pool("free"), a_pool("promised", guaranteed(4, "ssd")), options=PROMPT, nodes=("n1", "n2", "n3"), works=set()
    )
    tree.saves_s = 0.0
    tree.work("everywhere", "free")
    tree.update_shares()
    let_run(tree, 2)
    assert [running_on(tree, node) for node in tree.nodes] == [{"everywhere": 4}] * 3

    tree.work("in-promised", "promised")
    let_run(tree, 13)
    (tried,) = explained(tree, "in-promised").tries.nearest
    assert [(kept.rule, kept.places) for kept in tried.kept] == []
    let_run(tree, 18)

    assert [running_on(tree, node) for node in tree.nodes] == [{"everywhere": 4}, {"in-promised": 4}, {"everywhere": 4}]
    assert sum(tree.preempted.values()) == 4


def test_nothing_is_taken_of_an_operation_that_has_its_share_and_no_more() -> None:
    """`held` has 4 cores on n2 and is owed 6, as its other jobs are not started yet."""
    pools = a_pool("free", guaranteed(6)), a_pool("promised", guaranteed(4, "ssd"))
    tree = Tagged(*pools, options=PROMPT, nodes=("n1", "n2", "n3"), works=set())
    tree.work("held", "free")
    tree.update_shares()
    tree.hear("n2")
    tree.work("in-promised", "promised")
    tree.update_shares()
    for _ in range(15):
        tree.pass_time(1)
        tree.hear("n2")

    assert tree.item("in-promised").starvation_status is StarvationStatus.STARVING
    assert running_on(tree, "n2") == {"held": 4}
    assert [(kept.rule, kept.places) for kept in explained(tree, "in-promised").tries.nearest[0].kept] == [
        ("fair_share", 4)
    ]


def test_guarantees_beyond_the_nodes_that_match_are_reported_and_kept_in_proportion() -> None:
    pools = (
        a_pool("big", guaranteed(6, "ssd")),
        a_pool("small", guaranteed(2, "ssd & fast")),
        a_pool("other", guaranteed(1)),
    )
    tree = Tagged(*pools, nodes=("n1", "n2", "n3"))
    tree.tag(n2=["ssd", "fast"])

    assert tree.owed("/big", "/small") == [2.666667, 1.333333]
    (complaint,) = tree._fair_share.frame.complaints
    assert complaint.kind == "overcommit_nodes"
    assert complaint.pools == ["big", "small"]
    assert complaint.text == (
        "the nodes that match ssd have too little for the strong guarantees of big, small: "
        "they promise 8 of cpu where there are 4"
    )


@pytest.mark.parametrize(("above", "pools"), [(guaranteed(6, "ssd"), "above"), (FAST, "below")])
def test_guarantees_below_count_as_part_of_the_guarantee_above_and_its_filter_holds_for_them(
    above: PoolConfig, pools: str
) -> None:
    tree = PoolTree(Tree(TreeName("default"), [a_pool("above", above), a_pool("below", guaranteed(5), "above")]))
    (warning,) = promise_warnings({("ssd",): Resources(cpu=400), (): Resources(cpu=9_900)})(tree)

    assert f"guarantees of {pools}: they promise" in warning


def test_whoever_sets_such_a_guarantee_is_told_at_once() -> None:
    tree = Tagged(a_pool("fast", FAST), nodes=("n1", "n2", "n3"))
    tree.update_shares()

    def warnings(cores: int) -> list[str]:
        change = Set(PoolName("fast"), msgspec.json.encode({"strong_guarantee_resources": {"cpu": cores}}))
        request = ChangePools([change], dry_run=True)
        answer = tree._fair_share.on_change_request(request, Person("root", administrator=True), None, tree.now)
        (effect,) = answer.effects
        assert isinstance(effect, WriteTree)
        return effect.change.plan.warnings

    assert warnings(4) == []
    (warning,) = warnings(5)
    assert warning.startswith("the nodes that match ssd have too little for the strong guarantees of fast")


def test_whoever_shares_nodes_with_others_is_told_so() -> None:
    tree = Tagged(a_pool("fast", FAST), a_pool("promised", guaranteed(3, "ssd")), nodes=("n1", "n2", "n3"))
    tree.owed()
    (cause,) = causes(tree, "in-fast")

    assert cause.words == (
        "the nodes that match ssd have cpu 4 together: the operation is owed 0.5 of that, and operations that can run "
        "nowhere else are owed the rest"
    )
    assert (
        cause.cure
        == "add nodes with such tags, use another scheduling_tag_filter (run --node-filter), or give pool fast more weight or a guarantee"
    )
    items = tree._fair_share.items
    bindings = Bindings(items, tree.facts.total)
    assert bindings.of("/fast") == bindings.of("in-fast") == Bound(BoundKind.NODES, "cpu")
    assert (items["in-fast"].short_of, items["/fast"].short_of) == ("cpu", "")
    assert items["in-fast"].limits_share[1] == pytest.approx(1 / 3)


# --- what is told ------------------------------------------------------------------------------------------------


def told(*nodes: UsageItem, cpu: int, complete: bool = True, removed: tuple[str, ...] = ()) -> UsageChange:
    frame = UsageFrame(total=Resources(cpu=cpu), complete=complete)
    return UsageChange(Version(1, 1), frame, list(nodes), frozenset(removed))


def of(cpu: int, *tags: str) -> UsageItem:
    return UsageItem.of_nodes(tags, Resources(cpu=cpu))


def test_while_an_allocator_recovers_the_nodes_of_before_count() -> None:
    usage = KnownUsage(10**9, News())
    usage.apply(told(of(4, "ssd"), of(4), cpu=8), NOW)
    before = usage.rooms
    usage.apply(msgspec.structs.replace(told(of(4), cpu=4, complete=False), whole=True, version=Version(2, 1)), NOW)

    assert usage.rooms is before
    assert usage.total == Resources(cpu=8)
    assert usage.apply(told(of(2, "ssd"), cpu=6), NOW)
    assert usage.rooms == {(): Resources(cpu=4), ("ssd",): Resources(cpu=2)}


@pytest.mark.parametrize("complete", [True, False])
def test_nodes_that_do_not_make_up_the_total_limit_nobody(complete: bool) -> None:
    """As of an allocator that does not tell of them, or while the first one recovers."""
    usage = KnownUsage(10**9, News())
    usage.apply(told(of(4, "ssd"), cpu=8 if complete else 4, complete=complete), NOW)

    assert usage.rooms is None
    assert MatchingNodes(usage.rooms).resources(("ssd",)) is None


def test_items_of_nodes_are_no_operations() -> None:
    usage = KnownUsage(10**9, News())
    usage.apply(told(of(4, "ssd"), of(4), cpu=8), NOW)
    usage.apply(told(cpu=4, removed=(of(4, "ssd").operation,)), NOW)

    assert (usage.items, usage.named, usage.check()) == ({}, set(), [])
    assert usage.rooms == {(): Resources(cpu=4)}


# --- what people read ---------------------------------------------------------------------------------------------


def explained(tree: Tagged, operation: str) -> WaitingExplained:
    answer = tree.engine.on_question(ExplainWaiting(OperationId(operation)), tree.now).answer
    assert isinstance(answer, WaitingExplained)
    return answer


def causes(tree: Tagged, operation: str) -> list[Cause]:
    return [cause for cause in explained(tree, operation).causes if cause.kind.startswith("matching_nodes_")]


def test_whoever_wants_more_than_the_nodes_have_that_match_is_told_so() -> None:
    tree = Tagged(a_pool("fast", FAST), a_pool("other"))
    tree.work("second", "fast")
    tree.owed()
    (cause,) = causes(tree, "second")

    assert cause.words == "its pool fast is owed everything that the nodes matching ssd have: cpu 4"
    assert cause.cure == "add nodes with such tags, or use another scheduling_tag_filter (run --node-filter)"
    assert causes(tree, "in-other") == []
    tree.work("picky", "other", scheduling_tag_filter="ssd")
    tree.owed()
    (cause,) = causes(tree, "picky")
    assert cause.kind == "matching_nodes_shared"


def test_an_operation_that_wants_more_than_match_its_own_filter_is_told_of_that() -> None:
    tree = Tagged(a_pool("other"), works=set())
    tree.work("picky", "other", scheduling_tag_filter="ssd")
    tree.owed()

    assert [cause.words for cause in causes(tree, "picky")] == [
        "the operation is owed everything that the nodes matching ssd have: cpu 4"
    ]
