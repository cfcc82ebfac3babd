"""The step that is told to bind a pool binds it: a change of that moves its share, and changes of others do not.

Trees are drawn with odd figures, so that no two steps end at the same share by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ids import TreeName
from headrace.pools import PoolTree, Tree
from headrace.pools.amounts import NOTHING
from headrace.pools.effective_options import EffectiveOptions
from headrace.resources import RESOURCE_NAMES, Resources
from headrace.wire.plan import BoundKind
from headrace.wire.pool_explanations import Division, ExplainPool, PoolExplained, ShareStep
from headrace.wire.snapshots import ShareFrame, ShareItem
from headrace_fair_share.explain import Shares, explain_pool
from headrace_fair_share.facts.operations import Demand
from headrace_fair_share.hdrf.model import Limits, OperationInput, PoolInput, TreeInput
from headrace_fair_share.update.algorithm_input import UpdateInput
from headrace_fair_share.update.elements import elements_of
from headrace_fair_share.update.results import items_of
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.update.updater import results_of, share_updater
from tests.support.effort import few_or_many

TOTAL: Final = Resources(user_slots=99_991, cpu=1_000_003, memory=1_000_000_007)
CPU: Final = RESOURCE_NAMES.index("cpu")
#: Far above what the search leaves, below what the changes make.
MOVED: Final = 1e-11
#: Weights change so little that others, which just have what they want, go on having it.
HEAVIER: Final = 1.00001


def any_tree(draw: Random) -> TreeInput:
    pools: list[PoolInput] = []
    # Of some trees everything is promised, and wanted.
    promised = draw.random() < 0.2
    for _ in range(draw.randint(2, 4)):
        pools.append(a_pool(draw, len(pools), -1, 1.0 if promised else 0.4))
        above = len(pools) - 1
        for _ in range(draw.choice((0, 0, 1, 2, 3))):
            pools.append(a_pool(draw, len(pools), above))
    if draw.random() < 0.2:
        # All of a resource is promised to one pool, which wants it, as others do in the end.
        amounts = (None, None, None, TOTAL.memory, None)
        pools[0] = msgspec.structs.replace(pools[0], strong_guarantee=amounts, limits=(None,) * 5)
    leaves = [place for place in range(len(pools)) if place not in {pool.parent for pool in pools}]
    operations = [
        an_operation(draw, f"o{leaf}-{number}", leaf, (2.0,) if promised else (0.1, 0.5, 2.0))
        for leaf in leaves
        for number in range(draw.choice((0, 1, 1, 2)))
    ]
    return TreeInput(total=TOTAL, pools=pools, operations=operations)


def a_pool(draw: Random, place: int, parent: int, guaranteed: float = 0.0) -> PoolInput:
    return PoolInput(
        name=f"p{place}",
        parent=parent,
        weight=draw.uniform(0.3, 4.0),
        limits=a_limit(draw) if draw.random() < 0.3 else (None,) * 5,
        strong_guarantee=(None, draw.randint(1, TOTAL.cpu), None, None, None)
        if draw.random() < guaranteed
        else (None,) * 5,
    )


def a_limit(draw: Random) -> Limits:
    return (None, draw.randint(1, TOTAL.cpu), None, None, None)


def an_operation(draw: Random, name: str, pool: int, parts: Sequence[float]) -> OperationInput:
    part = draw.choice(parts) * draw.random()
    slim = draw.random() if draw.random() < 0.7 else 1 / (draw.random() + 0.01)
    demand = Resources(1, int(TOTAL.cpu * part) + 1, 0, int(TOTAL.memory * min(part * slim, 3.0)) + 1)
    return OperationInput(
        name=name, pool=pool, demand=demand, limits=a_limit(draw) if draw.random() < 0.2 else (None,) * 5
    )


def shares_of(tree: TreeInput) -> Shares:
    """The shares of a tree by the engine, as fair_share has them."""
    options, limits = [EffectiveOptions()] * (1 + len(tree.pools)), [NOTHING] * (1 + len(tree.pools))
    elements = elements_of(tree, len(tree.pools), options, limits)
    demands = [Demand(each.demand, each.usage, is_pending=True) for each in tree.operations]
    running, lightweight = [True] * len(demands), [False] * len(demands)
    given_input = UpdateInput(elements, tree, demands, running, lightweight, [None] * len(elements.names))
    results, _ = results_of(
        UpdateFacts(pools=PoolTree(Tree(TreeName("default")))),
        given_input,
        share_updater(tree.options.sharing).update(tree),
    )
    items = items_of(elements, results, np.arange(len(elements.names)))
    return Shares(TreeName("default"), ShareFrame(total=tree.total), {item.key: item for item in items}, {}, {})


def step_of(shares: Shares, name: str) -> ShareStep:
    told = explain_pool(shares, ExplainPool(name))
    assert isinstance(told, PoolExplained)
    return told.steps[-1]


def changed(tree: TreeInput, place: int, **changes: Any) -> dict[str, ShareItem]:
    pool = msgspec.structs.replace(tree.pools[place], **changes)
    pools = [*tree.pools[:place], pool, *tree.pools[place + 1 :]]
    return dict(shares_of(msgspec.structs.replace(tree, pools=pools)).items)


def more(tree: TreeInput, place: int, resource: int, setting: str) -> dict[str, ShareItem]:
    """The shares with a hundredth of the cluster more in a setting of a pool, or a little more weight."""
    pool = tree.pools[place]
    if setting == "weight":
        return changed(tree, place, weight=(pool.weight or 1.0) * HEAVIER)
    amounts = list(getattr(pool, setting))
    amounts[resource] = int((amounts[resource] or 0) + TOTAL.as_tuple()[resource] // 100)
    return changed(tree, place, **{setting: tuple(amounts)})


def gain(tree: TreeInput, shares: Shares, place: int, resource: int, setting: str) -> float:
    """The most that a pool gains of any resource by more of one of its settings."""
    key = f"/{tree.pools[place].name}"
    after, before = more(tree, place, resource, setting)[key], shares.items[key]
    return max(now - was for now, was in zip(after.fair_share.total, before.fair_share.total, strict=True))


@pytest.mark.long
@settings(max_examples=few_or_many(50, 2_000))
@given(st.integers(0, 2**32))
def test_always_does_the_step_that_is_named_move_the_share_and_no_other(seed: int) -> None:
    tree = any_tree(Random(seed))
    shares = shares_of(tree)
    for place, pool in enumerate(tree.pools):
        step = step_of(shares, pool.name)
        gained = partial(gain, tree, shares, place, RESOURCE_NAMES.index(step.resource or step.dominant_resource))
        kind, division = step.bound_by, step.division
        if kind in (BoundKind.IDLE, BoundKind.MET, BoundKind.BELOW):
            assert gained("weight") < MOVED
            assert pool.limits[CPU] is None or gained("limits") < MOVED
        elif kind is BoundKind.LIMIT and not step.limited_above:
            assert gained("limits") > MOVED
            assert gained("weight") < MOVED
        elif division is Division.WEIGHT:
            assert gained("weight") > MOVED
            assert pool.limits[CPU] is None or gained("limits") < MOVED
        else:
            assert division in (Division.GUARANTEES, Division.REST, Division.ALONE)
            assert gained("weight") < MOVED


@settings(max_examples=few_or_many(30, 1_000))
@given(st.integers(0, 2**32))
def test_always_do_a_limit_above_and_guarantees_that_are_named_move_the_share(seed: int) -> None:
    tree = any_tree(Random(seed))
    shares = shares_of(tree)
    places = {pool.name: place for place, pool in enumerate(tree.pools)}
    for pool in tree.pools:
        step, before = step_of(shares, pool.name), shares.items[f"/{pool.name}"].fair_share.total
        if step.limited_above:
            after = more(tree, places[step.limited_above], RESOURCE_NAMES.index(step.resource), "limits")
            assert max(now - was for now, was in zip(after[f"/{pool.name}"].fair_share.total, before, strict=True)) > 0
        if step.division is Division.GUARANTEES and pool.parent < 0:
            after = more(tree, places[pool.name], CPU, "strong_guarantee")
            assert after[f"/{pool.name}"].fair_share.total[CPU] - before[CPU] > MOVED


def test_every_step_is_met_in_some_tree() -> None:
    met = set()
    for seed in range(60):
        tree = any_tree(Random(seed))
        shares = shares_of(tree)
        met |= {(step.bound_by, step.division) for step in (step_of(shares, pool.name) for pool in tree.pools)}

    assert {kind for kind, _ in met} >= {
        BoundKind.IDLE,
        BoundKind.MET,
        BoundKind.LIMIT,
        BoundKind.BELOW,
        BoundKind.FULL,
    }
    assert {division for _, division in met} == set(Division)
