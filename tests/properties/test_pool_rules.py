"""Whatever is asked of a tree, one change at a time or several: what is granted keeps every rule, what is refused changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ids import ROOT_POOL, PoolName, TreeName
from headrace.pools import PoolMode, PoolTree, Tree, read_tree
from headrace.resources import ZERO
from headrace.wire.pool_changes import ChangePools, PoolChange, PoolPlan
from headrace_fair_share.configuration.change_decisions import Change, StoredTree, TreeConfiguration
from headrace_fair_share.configuration.rules import TreeBounds, broken_options, broken_rules, invalid_values, misplaced
from tests.support.effort import few_or_many
from tests.support.pool_trees import ANYBODY, create, move, remove, set_, set_options, transfer

BOUNDS = TreeBounds(most_levels=3, largest_subtree=4)
NAMES = st.sampled_from([*"abcd"])
PLACES = st.one_of(NAMES, st.just(ROOT_POOL))
AMOUNTS = st.one_of(
    st.builds(lambda amount: {"cpu": amount}, st.integers(0, 4)),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 2), max_size=2),
)


@st.composite
def attributes(draw: st.DrawFn) -> dict[str, Any]:
    drawn = {
        "strong_guarantee_resources": AMOUNTS,
        "integral_guarantees/guarantee_type": st.sampled_from(["none", "burst", "relaxed"]),
        "integral_guarantees/resource_flow": AMOUNTS,
        "integral_guarantees/burst_guarantee_resources": AMOUNTS,
        "mode": st.sampled_from(["fifo", "fair_share"]),
        "create_ephemeral_subpools": st.booleans(),
        "max_operation_count": st.one_of(st.none(), st.integers(0, 4)),
        "max_running_operation_count": st.one_of(st.none(), st.integers(0, 4)),
        "weight": st.sampled_from([None, 2, -1]),
        "config_preset": st.sampled_from([None, "good", "gone"]),
    }
    often = [*drawn][:4]
    keys = draw(st.lists(st.one_of(st.sampled_from(often), st.sampled_from([*drawn])), unique=True, max_size=2))
    return {key: draw(drawn[key]) for key in keys}


@st.composite
def changes(draw: st.DrawFn) -> PoolChange:
    match draw(st.sampled_from(["create", "create", "create", "set", "set", "move", "remove", "transfer", "options"])):
        case "create":
            return create(draw(NAMES), draw(PLACES), **draw(attributes()))
        case "set":
            return set_(draw(NAMES), draw(attributes()))
        case "move":
            return move(draw(NAMES), draw(st.one_of(PLACES, st.just(""))), draw(st.one_of(NAMES, st.just(""))))
        case "remove":
            return remove(draw(NAMES), recursive=draw(st.booleans()))
        case "transfer":
            return transfer(draw(PLACES), draw(PLACES), strong_guarantee_resources=draw(AMOUNTS))
        case _:
            presets = {"good": {"enable_aggressive_starvation": True}}
            return set_options(
                main_resource=draw(st.sampled_from(["cpu", "memory"])),
                pool_config_presets=draw(st.sampled_from([{}, presets])),
            )


@settings(max_examples=few_or_many(40, 600))
@given(st.lists(st.lists(changes(), min_size=1, max_size=3), max_size=12))
def test_always_what_is_granted_keeps_every_rule_and_what_is_refused_changes_nothing(
    requests: list[list[PoolChange]],
) -> None:
    configuration = TreeConfiguration(TreeName("default"), BOUNDS)
    revision = 1
    configuration.on_stored(StoredTree(revision, Tree(TreeName("default"))))
    for request in requests:
        before = configuration.pools.tree
        dry = configuration.decide(ChangePools(request, dry_run=True), {}, ANYBODY, ZERO)
        plan = dry.plan if isinstance(dry, Change) else dry
        assert isinstance(plan, PoolPlan)
        decision = configuration.decide(ChangePools(request), {}, ANYBODY, ZERO)
        assert configuration.pools.tree is before
        assert isinstance(decision, Change) is (not plan.broken)
        if not isinstance(decision, Change):
            continue
        revision += 1
        configuration.on_written([decision], revision)
        assert all_kept(configuration.pools)
        assert {pool.name for pool in plan.created} == configuration.pools.pools.keys() - {
            pool.name for pool in before.pools
        }
        assert {pool.name for pool in plan.removed} == {
            pool.name for pool in before.pools
        } - configuration.pools.pools.keys()
        was, now = PoolTree(before), configuration.pools
        assert [pool.name for pool in plan.changed] == [
            name
            for name in now.preorder
            if name in was.pools and (was.pools[name] != now.pools[name] or was.path(name) != now.path(name))
        ]
    stored = read_tree(msgspec.json.encode(configuration.pools.tree))
    anew = TreeConfiguration(TreeName("default"), BOUNDS)
    anew.on_stored(StoredTree(1, stored))
    assert (anew.trouble, anew.pools.tree) == ("", configuration.pools.tree)


def all_kept(tree: PoolTree) -> bool:
    """By the rules asked for all pools at once, and by the plainest reading of them."""
    assert misplaced(tree) == []
    assert broken_options(tree.options) == []
    assert broken_rules(tree, BOUNDS) == []
    assert invalid_values(tree, tree.preorder) == []
    for name, pool in tree.pools.items():
        own, children = pool.settings, [tree.pools[child].settings for child in tree.children[name]]
        assert own.mode is not PoolMode.FIFO or (not children and not own.create_ephemeral_subpools)
        assert len(list(tree.upwards(name))) - 1 <= BOUNDS.most_levels
        assert len(tree.subtree(name)) <= BOUNDS.largest_subtree
        for figures in ("strong_guarantee_resources", "resource_flow", "burst_guarantee_resources"):
            for resource in ("cpu", "memory"):
                amounts = [amount for child in children if (amount := figure(child, figures, resource)) is not None]
                most = figure(own, figures, resource)
                assert not amounts or (most is not None and sum(amounts) <= most)
        strong = own.strong_guarantee_resources.named()
        assert not strong or tree.options.main_resource in strong
        total, running = own.max_operation_count, own.max_running_operation_count
        assert total is None or running is None or running <= total
        for above in list(tree.upwards(PoolName(name)))[1:-1]:
            kind = tree.pools[above].settings.integral_guarantees.guarantee_type
            integral = own.integral_guarantees
            assert kind == "none" or not (integral.resource_flow.named() or integral.burst_guarantee_resources.named())
    return True


def figure(pool: Any, figures: str, resource: str) -> int | None:
    holder = pool if figures == "strong_guarantee_resources" else pool.integral_guarantees
    amount: int | None = getattr(getattr(holder, figures), resource)
    return amount
