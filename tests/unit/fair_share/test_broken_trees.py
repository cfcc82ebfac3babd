"""A tree on which the algorithm broke is kept: small, readable, and breaking still."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from headrace.pools import PoolMode
from headrace.resources import Resources
from headrace.wire.plan import Plan
from headrace_fair_share.hdrf.arrays import BrokenInvariant
from headrace_fair_share.hdrf.model import OperationInput, PoolInput, TreeInput
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from headrace_fair_share.plan.__main__ import plan_of
from headrace_fair_share.update import broken_trees
from headrace_fair_share.update.broken_trees import keep_broken_tree
from tests.support import reduction
from tests.support.reduction import reduced

TOTAL = Resources(user_slots=100, cpu=10_000, memory=2**40)


def a_large_tree() -> TreeInput:
    """Three levels of pools, each with operations; one uses more than it wants, which nothing may."""
    pools = [PoolInput(name=f"pool-{at}", parent=(at - 3) // 3 if at >= 3 else -1, weight=2.0) for at in range(30)]
    operations = [
        OperationInput(
            name=f"operation-{at}", pool=at % 30, weight=3.0, demand=Resources(cpu=100), usage=Resources(cpu=50)
        )
        for at in range(300)
    ]
    operations[217] = msgspec.structs.replace(operations[217], usage=Resources(cpu=500))
    return TreeInput(total=TOTAL, pools=pools, operations=operations)


def fault_of(tree: TreeInput) -> BrokenInvariant:
    with pytest.raises(BrokenInvariant) as caught:
        TreeUpdater().update(tree)
    return caught.value


def test_a_tree_is_kept_whole_and_can_be_planned(tmp_path: Path) -> None:
    pools = [PoolInput(name="fifo", parent=-1, mode=PoolMode.FIFO)]
    operations = [OperationInput(name="one", pool=0, demand=Resources(cpu=250))]
    tree = TreeInput(total=TOTAL, pools=pools, operations=operations)

    path = keep_broken_tree(tree, BrokenInvariant("two do not\nagree"), tmp_path / "kept", 5)

    assert msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=TreeInput) == tree
    assert "#   BrokenInvariant: two do not agree" in path.read_text()
    assert f"headrace plan {path.name}" in path.read_text()
    plan = plan_of(str(path))
    assert isinstance(plan, Plan)
    assert plan.elements[-1].demand == Resources(cpu=250)


def test_what_is_left_of_a_tree_is_one_operation_in_its_pools_and_breaks_in_the_same_way(tmp_path: Path) -> None:
    tree = a_large_tree()
    path = keep_broken_tree(tree, fault_of(tree), tmp_path, 1_700_000_000_000)

    status = reduction.main(path.with_suffix(".json"))

    small = tmp_path / "broken-1700000000000-small.json"
    exact = msgspec.json.decode(small.read_bytes(), type=TreeInput)
    assert status == 0
    assert [each.name for each in exact.operations] == ["operation-217"]
    assert [pool.name for pool in exact.pools] == ["pool-1", "pool-7"]
    assert [pool.weight for pool in exact.pools] == [None, None]
    assert str(fault_of(exact)) == str(fault_of(tree))
    assert "uses more than it demands" in small.with_suffix(".yaml").read_text()


def test_a_tree_that_does_not_break_by_itself_stays_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = keep_broken_tree(TreeInput(total=TOTAL), BrokenInvariant("x"), tmp_path, 5)

    assert reduction.main(path.with_suffix(".json")) == 1
    assert "only after the updates before it" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 2


def test_the_oldest_are_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken_trees, "_MOST_KEPT", 2)
    tree = TreeInput(total=TOTAL)
    for at_ms in (1_700_000_000_001, 1_700_000_000_002, 1_700_000_000_003):
        keep_broken_tree(tree, BrokenInvariant("x"), tmp_path, at_ms)

    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [f"broken-170000000000{at}.{kind}" for at in (2, 3) for kind in ("json", "yaml")]


def test_nothing_is_written_to_a_folder_that_another_account_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = SimpleNamespace(st_uid=os.geteuid() + 1)
    monkeypatch.setattr(Path, "lstat", lambda _: foreign)

    with pytest.raises(PermissionError, match="another account made it"):
        keep_broken_tree(TreeInput(total=TOTAL), BrokenInvariant("x"), tmp_path, 5)
    assert not list(tmp_path.iterdir())


def test_no_more_trees_are_tried_than_allowed() -> None:
    tried = 0

    def breaks(tree: TreeInput) -> bool:
        nonlocal tried
        tried += 1
        return len(tree.operations) >= 200

    tree = reduced(a_large_tree(), breaks, most_tries=10)

    assert tried == 10
    assert len(tree.operations) >= 200
