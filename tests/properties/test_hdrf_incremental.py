"""An engine that lives on from update to update gives what one gives that starts with the same tree."""

from __future__ import annotations

from random import Random
from typing import Final, TypeVar
from unittest import mock

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_fair_share.hdrf import incremental_input
from headrace_fair_share.hdrf.model import OperationInput, PoolInput, TreeInput
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from tests.reference.comparing import largest_difference
from tests.reference.ties import is_tie
from tests.support.effort import few_or_many
from tests.support.trees import changed, trees
from tests.support.update_result import result_of, update

Weighted = TypeVar("Weighted", PoolInput, OperationInput)
#: Partial results are added up in another order than at the first time.
STANDARD: Final = 1e-12
#: In improved mode a fit factor is one of many, and its last bits weigh more.
IMPROVED: Final = 1e-7


@pytest.mark.timeout(180)
@settings(max_examples=few_or_many(12, 30), suppress_health_check=[HealthCheck.too_slow])
@given(trees(), st.randoms(use_true_random=False))
def test_always_an_update_upon_others_gives_what_one_by_itself_gives(tree: TreeInput, draw: Random) -> None:
    engine = TreeUpdater()
    for _ in range(5):
        alive, alone = result_of(engine.update(tree)), update(tree)
        difference = largest_difference(alone, alive)
        if difference.size > (IMPROVED if tree.options.improved else STANDARD):
            assert is_tie(tree, alive), f"{difference.where} differs by {difference.size}"
        elif not tree.options.improved:
            assert {name: state.volume for name, state in alive.integral.items()} == {
                name: state.volume for name, state in alone.integral.items()
            }
            for name, state in alone.integral.items():
                assert alive.integral[name].last_share_ratio == pytest.approx(state.last_share_ratio, abs=STANDARD)
        tree = changed(draw, msgspec.structs.replace(tree, integral=alone.integral))


@settings(max_examples=few_or_many(25, 300), suppress_health_check=[HealthCheck.too_slow])
@given(trees(max_operations=30), st.randoms(use_true_random=False))
def test_always_operations_that_come_and_go_leave_the_others_what_they_are(tree: TreeInput, draw: Random) -> None:
    """To the bit: the others are the same objects as before, wherever they stand now."""
    engine = TreeUpdater()
    with mock.patch.object(incremental_input, "_FEW", 0):
        for _ in range(4):
            count = draw.randint(0, len(tree.operations))
            some = [msgspec.structs.replace(each) if draw.random() < 0.1 else each for each in tree.operations]
            some = draw.sample(some, count) if draw.random() < 0.5 else some[:count]
            now = msgspec.structs.replace(tree, operations=some)

            assert result_of(engine.update(now)) == update(now)


@pytest.mark.long
@settings(max_examples=few_or_many(25, 300), suppress_health_check=[HealthCheck.too_slow])
@given(trees(max_operations=30), st.randoms(use_true_random=False))
def test_always_weights_leave_functions_that_no_offer_reaches_what_they_are(tree: TreeInput, draw: Random) -> None:
    engine = TreeUpdater(builds_always=True)
    engine.update(tree)
    for _ in range(4):
        before = engine.functions
        tree = msgspec.structs.replace(
            tree,
            pools=[_reweighted(draw, each, [None, 0.5, 3.0]) for each in tree.pools],
            operations=[_reweighted(draw, each, [1.0, 0.5, 3.0]) for each in tree.operations],
        )
        is_kept = before is not None and not before.wasteful

        got = result_of(engine.update(tree))
        difference = largest_difference(update(tree), got)

        assert (engine.functions is before) is is_kept
        if difference.size > (IMPROVED if tree.options.improved else STANDARD):
            assert is_tie(tree, got), f"{difference.where} differs by {difference.size}"


def _reweighted(draw: Random, one: Weighted, weights: list[float | None]) -> Weighted:
    return msgspec.structs.replace(one, weight=draw.choice(weights)) if draw.random() < 0.3 else one
