"""Configuration as people ask for it over the bus: the cases of the vectors, plans, trees, and what is written by them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest

from headrace.bus import Bus
from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import PartialResources, read_tree
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.wire import subjects
from headrace.wire.log import OperationStarted
from headrace.wire.pool_changes import ChangePools, Create, PoolChange, PoolPlan, Remove, SetOptions
from headrace.wire.pools import GetPools, PoolList
from headrace.wire.refusals import BrokenRules, Exists, NotAllowed, NotFound, Refusal, WrongState
from headrace.wire.trees import CreateTree, ListTrees, MovePoolToTree, RemoveTree, TreeList
from headrace_fair_share.service import serve
from headrace_fair_share.settings import FairShareSettings
from tests.conformance.pools_config import USER, ConfigCase
from tests.conformance.runner import cases_of
from tests.support.nats_server import nats_server
from tests.support.pool_trees import create, remove, set_, set_options
from tests.support.tree_services import TREE, SmallWorld, a_bus, ask, live, running, small_world

VECTORS: Final = Path(__file__).parents[1] / "conformance" / "vectors" / "pools_and_admission.json"
SETTINGS: Final = FairShareSettings(administrators="root")
CASES: Final = [case for _, case in cases_of(VECTORS) if case["group"] == "config"]


class Desk:
    """Two people at one service: `root`, who administers, and one who does not."""

    def __init__(self, world: SmallWorld, root: Bus, other: Bus) -> None:
        self.world = world
        self._buses = {"root": root, USER: other}

    async def ask(self, verb: str, request: msgspec.Struct, kind: Any, user: str = "root") -> Any:
        return await ask(self._buses[user], subjects.user(user, verb), request, kind)

    async def change(self, *changes: PoolChange, user: str = "root", **given: Any) -> PoolPlan | Refusal:
        answer: PoolPlan | Refusal = await self.ask("pool.change", ChangePools(list(changes), **given), PoolPlan, user)
        return answer

    async def stored(self, tree: str = TREE) -> bytes:
        bucket = await self.world.service.key_value(subjects.POOLS_BUCKET, history=64)
        entry = await bucket.get(tree)
        assert entry is not None
        return entry.value

    async def clear(self) -> None:
        """An empty tree with the options of a new one."""
        tree = read_tree(await self.stored())
        gone: list[PoolChange] = [Remove(pool.name, recursive=True) for pool in tree.pools if pool.parent == ROOT_POOL]
        options = {name: None for name in msgspec.to_builtins(tree.options)}
        assert isinstance(await self.change(*gone, set_options(**options)), PoolPlan)


@asynccontextmanager
async def a_desk(settings: FairShareSettings = SETTINGS) -> AsyncIterator[Desk]:
    with nats_server() as server:
        async with (
            small_world(server) as world,
            a_bus(server, "user", "root") as root,
            a_bus(server, "user", USER) as other,
            running(server, settings, serve),
        ):
            await world.shares.until(lambda shares: shares.frame.total.cpu)
            yield Desk(world, root, other)


async def verdict(desk: Desk, case: dict[str, Any]) -> str:
    """`accept` or `reject`; after a refusal everything is as before."""
    asked = ConfigCase.of(case)
    made = await desk.change(*asked.existing)
    assert isinstance(made, PoolPlan), made
    before = await desk.stored()
    user = asked.user or "root"
    if asked.to_tree:
        await desk.ask("tree.create", CreateTree(TreeName(asked.to_tree)), PoolPlan)
        (change,) = asked.changes
        if isinstance(change, Create):
            answer = await desk.change(change, user=user, tree=TreeName(asked.to_tree), asked=TREE)
        else:
            assert not isinstance(change, SetOptions)
            name = PoolName(getattr(change, "name", ""))
            move = MovePoolToTree(name, TreeName(asked.to_tree), ROOT_POOL)
            answer = await desk.ask("pool.move_to_tree", move, PoolPlan, user)
        await desk.ask("tree.remove", RemoveTree(TreeName(asked.to_tree), recursive=True), PoolPlan)
    else:
        answer = await desk.change(*asked.changes, user=user)
    if isinstance(answer, PoolPlan):
        return "accept"
    assert await desk.stored() == before
    return "reject"


async def test_every_case_of_configuration_comes_out_as_expected_over_the_bus() -> None:
    ordinary = [case for case in CASES if not ConfigCase.of(case).bounds]
    found = {}
    async with a_desk() as desk:
        for case in ordinary:
            found[case["id"]] = await verdict(desk, case)
            await desk.clear()

    assert found == {case["id"]: case["expect"] for case in ordinary}
    assert len(found) > 50


@pytest.mark.parametrize("case", [case for case in CASES if ConfigCase.of(case).bounds], ids=lambda case: case["id"])
async def test_cases_with_other_bounds_come_out_as_expected(case: dict[str, Any]) -> None:
    names = {"most_levels": "most_pool_levels", "largest_subtree": "largest_pool_subtree"}
    bounds = {names.get(name, name): value for name, value in ConfigCase.of(case).bounds.items()}
    async with a_desk(FairShareSettings(administrators="root", **bounds)) as desk:
        found = await verdict(desk, case)

    assert found == case["expect"]


async def test_a_dry_run_says_what_would_become_of_it_and_every_broken_rule_and_changes_nothing() -> None:
    async with a_desk() as desk:
        await desk.change(create("a", weight=2), create("b"))
        before = await desk.stored()
        changes = (set_("a", weight=3), remove("b"), create("c", "a", max_operation_count=7), create("a"), set_("x"))
        plan = await desk.change(*changes, dry_run=True)
        refused = await desk.change(*changes)
        after = await desk.stored()

    assert isinstance(plan, PoolPlan)
    assert (plan.revision, plan.dry_run) == (0, True)
    assert [(each.name, each.path_after) for each in plan.created] == [("c", "/a/c")]
    (changed,) = plan.changed
    assert [(each.name, each.before, each.after) for each in changed.attributes] == [("weight", "2.0", "3.0")]
    assert [each.name for each in plan.removed] == ["b"]
    assert plan.broken == ["pool 'a' exists already (/a)", "there is no pool 'x'"]
    assert refused == BrokenRules(plan.broken)
    assert before == after


async def test_what_was_changed_is_in_force_and_told_with_its_revision() -> None:
    async with a_desk() as desk:
        plan = await desk.change(create("a", weight=2), create("b", "a"), set_options(main_resource="memory"))
        assert isinstance(plan, PoolPlan)
        listed: PoolList = await desk.ask("pool.list", GetPools(), PoolList)
        await desk.world.shares.until(lambda shares: shares.frame.pools_revision == plan.revision)

    assert listed.revision == plan.revision
    assert [(pool.path, pool.settings.weight) for pool in listed.pools] == [("/", None), ("/a", 2.0), ("/a/b", None)]
    assert [(each.name, each.after) for each in plan.options] == [("main_resource", '"memory"')]


async def test_changes_that_come_at_once_share_writes_and_each_gets_its_own_answer() -> None:
    names = [f"pool-{number}" for number in range(20)]
    plans: dict[str, PoolPlan | Refusal] = {}

    async def make(desk: Desk, name: str) -> None:
        plans[name] = await desk.change(create(name))

    async with a_desk() as desk:
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(make, desk, name)
        stored = read_tree(await desk.stored())

    made = {name: plan for name, plan in plans.items() if isinstance(plan, PoolPlan)}
    assert {name: [pool.name for pool in plan.created] for name, plan in made.items()} == {
        name: [name] for name in names
    }
    assert {pool.name for pool in stored.pools} == {*names}
    assert 1 < len({plan.revision for plan in made.values()}) < len(names)


async def test_operations_in_a_pool_keep_it_from_going_unless_that_is_asked_for() -> None:
    async with a_desk() as desk:
        await desk.change(create("a"))
        await desk.world.admission.tell(_started("operation-1", "a"))
        await desk.world.shares.until(lambda shares: "operation-1" in shares.items)
        refused = await desk.change(remove("a"))
        gone = await desk.change(remove("a", in_use=True))

    assert isinstance(refused, WrongState)
    assert isinstance(gone, PoolPlan)
    assert "1 operation goes on in an ephemeral pool a" in gone.warnings[0]


async def test_trees_are_made_listed_changed_and_taken_away() -> None:
    async with a_desk() as desk:
        made = await desk.ask("tree.create", CreateTree(TreeName("gpu"), b'{"max_operation_count": 7}'), PoolPlan)
        twice = await desk.ask("tree.create", CreateTree(TreeName("gpu")), PoolPlan)
        bad = await desk.ask("tree.create", CreateTree(TreeName("bad"), b'{"max_operation_count": -7}'), PoolPlan)
        changed = await desk.change(
            create("a"), set_options(default_parent_pool="gone"), tree=TreeName("gpu"), asked=TREE
        )
        listed: TreeList = await desk.ask("tree.list", ListTrees(), TreeList)
        one = await desk.ask("tree.list", ListTrees("gup"), TreeList)
        full = await desk.ask("tree.remove", RemoveTree(TreeName("gpu")), PoolPlan)
        own = await desk.ask("tree.remove", RemoveTree(TREE), PoolPlan)
        stranger = await desk.ask("tree.create", CreateTree(TreeName("mine")), PoolPlan, USER)
        gone = await desk.ask("tree.remove", RemoveTree(TreeName("gpu"), recursive=True), PoolPlan)
        again = await desk.ask("tree.create", CreateTree(TreeName("gpu")), PoolPlan)

    assert isinstance(made, PoolPlan)
    assert made.revision > 0
    assert twice == Exists("tree", "gpu")
    assert "options.max_operation_count" in bad.text()
    assert isinstance(changed, PoolPlan)
    assert [(view.tree, view.pools) for view in listed.trees] == [("default", 0), ("gpu", 1)]
    options = listed.trees[1].options
    assert options.max_operation_count == 7
    assert options.use_pool_satisfaction_for_scheduling
    assert options.fifo_pool_scheduling_order is FifoPoolSchedulingOrder.FIFO
    assert options.preempt_gangs_whole
    assert options.min_spare_allocation_resources_on_node == PartialResources(user_slots=1)
    assert "default_parent_pool gone is not used" in listed.trees[1].warnings[0]
    assert one == NotFound("tree", "gup", ["gpu"])
    assert isinstance(full, WrongState)
    assert isinstance(own, WrongState)
    assert isinstance(stranger, NotAllowed)
    assert [each.name for each in gone.removed] == ["a"]
    assert isinstance(again, PoolPlan)


async def test_a_pool_goes_to_another_tree_with_all_below_it_or_not_at_all() -> None:
    async with a_desk() as desk:
        await desk.ask("tree.create", CreateTree(TreeName("gpu")), PoolPlan)
        await desk.change(create("taken"), tree=TreeName("gpu"), asked=TREE)
        await desk.change(create("a", weight=2), create("b", "a", weight=3), create("taken"))
        refused = await desk.ask(
            "pool.move_to_tree", MovePoolToTree(PoolName("taken"), TreeName("gpu"), ROOT_POOL), PoolPlan
        )
        missing = await desk.ask(
            "pool.move_to_tree", MovePoolToTree(PoolName("x"), TreeName("gpu"), ROOT_POOL), PoolPlan
        )
        moved = await desk.ask(
            "pool.move_to_tree",
            MovePoolToTree(PoolName("a"), TreeName("gpu"), PoolName("taken"), PoolName("first")),
            PoolPlan,
        )
        here, there = read_tree(await desk.stored()), read_tree(await desk.stored("gpu"))

    assert isinstance(refused, Exists)
    assert missing == NotFound("pool", "x", [])
    assert isinstance(moved, PoolPlan)
    assert [pool.name for pool in here.pools] == ["taken"]
    assert [(pool.name, pool.parent, pool.settings.weight) for pool in there.pools] == [
        ("taken", ROOT_POOL, None),
        ("first", "taken", 2.0),
        ("b", "first", 3.0),
    ]


def _started(operation: str, pool: str) -> OperationStarted:
    made = live(operation, pool)
    return OperationStarted(
        operation=made.operation,
        user="anna",
        spec=made.spec,
        state=made.state,
        ephemeral_pool=False,
        block=1,
        block_term=0,
        at_ms=1,
    )
