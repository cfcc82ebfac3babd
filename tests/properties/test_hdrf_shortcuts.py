"""Every shortcut of the algorithm gives what the long way gives. Each is switched off, and trees of all kinds are updated both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_fair_share.hdrf import incremental_input, share_distribution, tree_update
from headrace_fair_share.hdrf.functions import builder, by_fit_factor, curves
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.search import largest_each
from headrace_fair_share.hdrf.tree_update import TreeShares, TreeUpdater
from tests.support.effort import few_or_many
from tests.support.tagged_trees import tagged_tree
from tests.support.trees import random_tree


def _never(*_: object) -> bool:
    return False


def _always(*_: object) -> bool:
    return True


def _plain_search(high: float, rooms: Any, room: Callable[[Any], Any], tries: int) -> float:
    """Bisection alone, without guesses and without what is known of both ends."""
    holds = largest_each(np.array([high]), lambda fit: room(np.full(tries, fit[0]))[:1] >= 0.0)
    return float(holds[0])


#: By what it saves: the module, the name, and what stands there without the shortcut.
SHORTCUTS: Final[dict[str, tuple[Any, str, Any]]] = {
    "functions where all fits": (tree_update, "everything_fits", _never),
    "guarantees where none is": (incremental_input, "promises_anything", _always),
    "steps of the root's search": (share_distribution, "largest_of_many", _plain_search),
    "many tries at a time for few children": (share_distribution, "_MOST_TRIES", 3),
    "a binary search for few functions": (curves, "_FEW", 0),
    "a second look-up by many functions": (curves, "_FEW", 10_000),
    "large batches": (builder, "_BATCH_POINTS", 1),
    "large batches of operations": (builder, "_BATCH_OPERATIONS", 1),
    "short sums for small slopes": (by_fit_factor, "_HUGE", 0.0),
    "digits for few pools": (by_fit_factor, "_SMALL", 0),
}
#: Running sums of slopes end in other last bits where they are split in other ways or run over others.
LAST_BITS: Final = 1e-9

any_tree = st.randoms(use_true_random=False).map(
    lambda draw: tagged_tree(draw).tree if draw.randint(0, 3) == 0 else random_tree(draw)
)


def updated(tree: TreeInput) -> list[TreeShares]:
    """Two updates, of which the second goes on from the first."""
    updater = TreeUpdater()
    return [updater.update(tree), updater.update(tree)]


@pytest.mark.parametrize("saves", SHORTCUTS)
@settings(max_examples=few_or_many(8, 40), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(any_tree)
def test_always_the_long_way_ends_in_the_same_shares(saves: str, tree: TreeInput) -> None:
    short = updated(tree)
    with mock.patch.object(*SHORTCUTS[saves]):
        long = updated(tree)

    for one, other in zip(short, long, strict=True):
        for name in ("fair_share", "promised", "proposed", "limits"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=LAST_BITS)
        for name in ("strong", "estimated", "weight", "burst"):
            np.testing.assert_array_equal(getattr(one.fixed, name), getattr(other.fixed, name))
        assert one.fixed.errors == other.fixed.errors
