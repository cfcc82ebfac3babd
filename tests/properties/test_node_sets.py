"""Operations that can run on some nodes only have no more of these nodes together than there is, and share them as all else is shared."""

from __future__ import annotations

from random import Random
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.resources import EPS, Resources
from headrace_fair_share.hdrf.arrays import amounts_of, shares_of
from headrace_fair_share.hdrf.model import OperationInput, PoolInput, TreeInput
from headrace_fair_share.hdrf.tree_update import TreeShares, TreeUpdater
from tests.reference.comparing import largest_difference
from tests.reference.ties import is_tie
from tests.support.effort import few_or_many
from tests.support.tagged_trees import Tagged, parted, tagged, tagged_tree, unions
from tests.support.trees import changed
from tests.support.update_result import result_of

#: Tolerance of the engine where it compares sums.
ROUNDING: Final = 2e-9
#: After other updates functions are added up in another order.
GOING_ON: Final = 1e-7
CORES: Final = 1_000

tagged_trees = st.randoms(use_true_random=False).map(tagged_tree)


def check_that_nodes_have_it(one: Tagged, shares: TreeShares) -> None:
    """Of whichever kinds of nodes: the operations that can have nothing of other nodes are owed no more than these have."""
    layout = shares.layout
    for kinds in unions(one.rooms):
        members = [int(layout.of_operation[place]) for place, where in one.where.items() if where <= kinds]
        amounts = amounts_of([one.rooms[kind] for kind in kinds], len(kinds)).sum(axis=1, keepdims=True)
        owed = shares.fair_share[:, members].sum(axis=1)
        assert (owed <= shares_of(amounts, shares.fixed.total)[:, 0] + ROUNDING).all(), sorted(kinds)


@pytest.mark.both
def test_always_the_nodes_have_what_is_owed_on_them() -> None:
    stopped = 0
    for seed in range(few_or_many(30, 300)):
        one = tagged_tree(Random(seed))
        shares = TreeUpdater().update(one.tree)

        check_that_nodes_have_it(one, shares)
        for family in shares.layout.families:
            below = family.sum(shares.fair_share[:, family.children])
            assert (below <= shares.fair_share[:, family.parents] + ROUNDING).all(), seed
        stopped += bool((shares.short_of >= 0).any())

    assert stopped, "no tree had operations that their nodes cut short"


@settings(max_examples=few_or_many(20, 200), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tagged_trees)
def test_always_shares_that_fit_into_the_nodes_are_those_without_them_to_the_bit(one: Tagged) -> None:
    with_nodes = TreeUpdater(builds_always=True).update(one.tree)
    without = TreeUpdater(builds_always=True).update(replace(one.tree, node_classes=(), node_sets=()))

    if (with_nodes.short_of < 0).all():
        assert (with_nodes.fair_share == without.fair_share).all()
    else:
        assert (with_nodes.fair_share != without.fair_share).any()


@settings(max_examples=few_or_many(5, 40), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tagged_trees, st.randoms(use_true_random=False))
def test_always_update_after_update_shares_are_those_from_scratch(one: Tagged, draw: Random) -> None:
    updater, tree = TreeUpdater(), one.tree
    for _ in range(4):
        wanted, got = result_of(TreeUpdater().update(tree)), result_of(updater.update(tree))
        difference = largest_difference(wanted, got)
        assert difference.size <= GOING_ON or is_tie(tree, got), f"{difference.where} differs by {difference.size}"
        other = changed(draw, tree)
        if len(other.operations) == len(tree.operations) and other.total == tree.total:
            tree = other


def flat_tree(draw: Random) -> Tagged:
    """Pools below the root with one operation each, which want cores of nodes of up to four kinds. Their guarantees fit."""
    total = Resources(cpu=100 * CORES)
    rooms = parted(draw, total, draw.randint(2, 4))
    count = draw.randint(2, 8)
    where = {place: frozenset(draw.sample(sorted(rooms), draw.randint(1, len(rooms)))) for place in range(count)}
    guarantees = [draw.choice([0, draw.randint(0, 100 * CORES)]) for _ in range(count)]
    for kinds in unions(rooms):
        have = sum(rooms[kind].cpu for kind in kinds)
        members = [place for place, tags in where.items() if tags <= kinds]
        promised = sum(guarantees[place] for place in members)
        for place in members if promised > have else ():
            guarantees[place] = guarantees[place] * have // promised
    pools = [
        PoolInput(
            name=f"pool{place}",
            parent=-1,
            weight=draw.choice([0.5, 1.0, 3.0]),
            strong_guarantee=(None, guarantees[place], None, None, None),
        )
        for place in range(count)
    ]
    operations = [
        OperationInput(name=f"operation{place}", pool=place, demand=Resources(cpu=draw.randint(1, 150 * CORES)))
        for place in range(count)
    ]
    limited = {place: tags for place, tags in where.items() if len(tags) < len(rooms)}
    tree = TreeInput(total=total, pools=pools, operations=operations)
    return tagged(tree, rooms, limited, limited)


def water_filled(one: Tagged) -> list[float]:
    """Cores of each pool of such a tree: the guarantee, then in proportion to weight, until nodes where it can run are full.

    Step by step: the next pool that has all that it wants, or the next nodes of which there are no more, ends a step.
    """
    tree = one.tree
    everywhere = frozenset(one.rooms)
    where = [one.where.get(place, everywhere) for place in range(len(tree.pools))]
    demand = [each.demand.cpu / 100 for each in tree.operations]
    has = [min(want, (pool.strong_guarantee[1] or 0) / 100) for want, pool in zip(demand, tree.pools, strict=True)]
    weights = [pool.weight or 1.0 for pool in tree.pools]
    rising = {place for place in range(len(has)) if has[place] < demand[place]}
    while rising:
        steps = {frozenset({place}): (demand[place] - has[place]) / weights[place] for place in rising}
        for kinds in unions(one.rooms):
            members = frozenset(place for place, tags in enumerate(where) if tags <= kinds)
            speed = sum(weights[place] for place in members & rising)
            if speed:
                left = sum(one.rooms[kind].cpu for kind in kinds) / 100 - sum(has[place] for place in members)
                steps[members] = min(max(left, 0.0) / speed, steps.get(members, float("inf")))
        stops, step = min(steps.items(), key=lambda each: each[1])
        for place in rising:
            has[place] += step * weights[place]
        rising -= stops
    return has


@settings(max_examples=few_or_many(30, 300), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.randoms(use_true_random=False).map(flat_tree))
def test_always_pools_on_some_nodes_get_their_guarantees_and_then_rise_by_weight(one: Tagged) -> None:
    shares = TreeUpdater().update(one.tree)
    cores = (shares.fair_share[1, shares.layout.of_operation] * CORES).tolist()

    for place, (owed, wanted) in enumerate(zip(cores, water_filled(one), strict=True)):
        assert abs(owed - wanted) < 1e-6, f"pool {place} of {one.where}: {cores}"
        operation, pool = one.tree.operations[place], one.tree.pools[place]
        assert owed >= min(operation.demand.cpu, pool.strong_guarantee[1] or 0) / 100 - 1e-6
    short = shares.short_of >= 0
    assert not (short & (shares.fair_share[1] > shares.demand_share[1] - EPS)).any()
    assert np.flatnonzero(short).tolist() == [
        each for each in np.flatnonzero(short).tolist() if not shares.layout.is_pool[each]
    ]
