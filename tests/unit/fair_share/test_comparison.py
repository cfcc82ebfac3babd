"""Updates that go on from the one before are held against those from scratch."""

from __future__ import annotations

import random

import msgspec
import pytest

from headrace_fair_share.effects import KeepBrokenTree
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_update import TreeShares, TreeUpdater
from headrace_fair_share.update import updater
from headrace_fair_share.update.algorithm_input import UpdateInput
from headrace_fair_share.update.unsaturated.outcome import UnsaturatedResults, unsaturated_outcome
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.update.updater import Update
from tests.support.clocks import at
from tests.support.small_trees import SmallTree, Work

#: Longer than the pause between two updates from scratch.
LONG_S = 10.0


class Deaf(TreeUpdater):
    """Misses every change after the first update."""

    def __init__(self) -> None:
        super().__init__()
        self.first: TreeShares | None = None

    def update(self, tree: TreeInput) -> TreeShares:
        self.first = self.first or super().update(tree)
        return self.first


def a_small_tree() -> SmallTree:
    work = [Work("x", "a", 80, running=10), Work("y", "b", 80, running=70), Work("z", "b", 5)]
    return SmallTree({"a": {"weight": 2}, "b": {}}, work, {})


def after_a_missed_change() -> tuple[SmallTree, Update]:
    small = a_small_tree()
    small.update()
    small._updater._share_updater = Deaf()
    small.update(after_s=0.5)
    small.work[0] = msgspec.structs.replace(small.work[0], jobs=10)
    return small, small.update(after_s=LONG_S)


def test_an_update_that_missed_a_change_is_told_with_its_tree_once() -> None:
    small, update = after_a_missed_change()

    assert update.wrong is not None
    assert "the fair share of" in str(update.wrong.fault)
    assert next(each.value for each in small.engine.figures() if each.name == "wrong_updates") == 1
    again = small.engine.on_updated(update, at(99)).effects
    assert not any(isinstance(effect, KeepBrokenTree) for effect in again)


def test_the_tree_of_a_missed_change_is_kept_for_those_who_mend_it() -> None:
    _, update = after_a_missed_change()

    (kept,) = [
        each for each in a_small_tree().engine.on_updated(update, at(0)).effects if isinstance(each, KeepBrokenTree)
    ]
    assert update.wrong is not None
    assert (kept.tree, kept.fault) == (update.wrong.tree, update.wrong.fault)


def test_shares_that_are_told_are_those_from_scratch() -> None:
    small, _ = after_a_missed_change()

    assert small.engine.items["x"].fair_share.total[1] == pytest.approx(0.1)


def test_plain_numbers_that_are_others_than_those_from_scratch_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(cut: UpdateFacts, given: UpdateInput) -> UnsaturatedResults:
        outcome = unsaturated_outcome(cut, given)
        assert outcome is not None
        return outcome._replace(items=outcome.items | {"x": msgspec.structs.replace(outcome.items["x"], weight=7.0)})

    monkeypatch.setattr(updater, "unsaturated_outcome", mistaken)
    small = SmallTree({"a": {}}, [Work("x", "a", 5)], {})
    small.update()
    small.update(after_s=0.5)
    told_before = small.engine.items["x"].weight

    update = small.update(after_s=LONG_S)

    assert update.wrong is not None
    assert "computed in plain numbers, the item of x is different" in str(update.wrong.fault)
    assert (told_before, small.engine.items["x"].weight) == (7.0, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_updates_that_miss_nothing_differ_from_none_from_scratch(seed: int) -> None:
    small, rng = a_small_tree(), random.Random(seed)
    for step in range(20):
        number = rng.randrange(len(small.work))
        small.work[number] = msgspec.structs.replace(small.work[number], jobs=rng.randrange(1, 120), running=0)
        assert small.update(after_s=LONG_S if step % 4 == 3 else 0.5).wrong is None
