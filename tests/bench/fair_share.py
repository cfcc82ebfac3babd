"""How long updates of the fair share take: over all functions, where nothing changed, where one operation did."""

from __future__ import annotations

import itertools

from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from tests.bench.registry import REGISTRY, Figure, milliseconds
from tests.bench.trees import a_large_tree, with_one_changed

#: A tenth of the pools of the large tree, for a tenth of the operations.
SMALL_SHAPE = (2, 3, 3, 4)
LARGE_SHAPE = (8, 11, 11, 10)


def afresh(tree: TreeInput, runs: int) -> list[float]:
    """Updates over resident arrays in which every function is built anew."""
    engine = TreeUpdater()
    engine.update(tree)

    def update() -> None:
        engine.functions = None
        engine.update(tree)

    return milliseconds(update, runs)


@REGISTRY.add("fair_share_10k_ms", "a full update, 984 pools, 10,000 operations", 120)
def full() -> Figure:
    return Figure.of(afresh(a_large_tree(10_000), 15), "ms")


@REGISTRY.add("fair_share_10k_improved_ms", "the same in the improved mode", 250)
def full_improved() -> Figure:
    return Figure.of(afresh(a_large_tree(10_000, improved=True), 15), "ms")


@REGISTRY.add("fair_share_100k_ms", "a full update, 984 pools, 100,000 operations", 700)
def full_large() -> Figure:
    return Figure.of(afresh(a_large_tree(100_000), 7), "ms")


@REGISTRY.add("fair_share_unchanged_ms", "an update after which all is as before, 10,000 operations", 10)
def unchanged() -> Figure:
    tree, engine = a_large_tree(10_000), TreeUpdater()
    return Figure.of(milliseconds(lambda: engine.update(tree), 25), "ms")


@REGISTRY.add("fair_share_one_changed_ms", "an update after one operation's demand changed, 10,000 operations", 45)
def one_changed() -> Figure:
    tree, engine = a_large_tree(10_000), TreeUpdater()
    engine.update(tree)
    changed = itertools.count(1)
    inputs = (with_one_changed(tree, number * 37 % 10_000, number * 1_000) for number in changed)
    return Figure.of(milliseconds(lambda: engine.update(next(inputs)), 25), "ms")


@REGISTRY.add("fair_share_growth", "time per operation at 100,000 over that at 1,000, as many pools per operation", 1)
def growth() -> Figure:
    """Fastest runs are compared: those at the small end are short, and anything else on the machine disturbs them."""
    small = min(afresh(a_large_tree(1_000, SMALL_SHAPE), 5)) / 1_000
    per_operation = [taken / 100_000 / small for taken in afresh(a_large_tree(100_000, LARGE_SHAPE), 5)]
    return Figure.of(per_operation, "times")
