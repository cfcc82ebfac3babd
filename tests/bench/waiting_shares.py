"""A cluster that is short, where a small operation changes the shares of thousands that wait: to tell them, and to take them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Final

from msgspec.structs import replace

from headrace.ids import OperationId, PoolName, TreeName
from headrace.pools import PoolTree, Tree
from headrace.resources import Resources
from headrace.wire.codec import decode
from headrace.wire.placements import EphemeralPool
from headrace.wire.snapshot_parts import SnapshotPublisher, SnapshotReader
from headrace.wire.snapshots import MovedShare, ShareFrame, ShareItem, SharePart, UsageItem, WholeRequest
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_fair_share.facts.operations import KnownOperation
from headrace_fair_share.update.update_facts import UpdateFacts
from headrace_fair_share.update.updater import Updater
from tests.bench.registry import REGISTRY, Figure
from tests.support.allocating import Desk, an_operation, cores

TREE: Final = TreeName("default")
WAITING, POOLS = 2_000, 20
_RUNS: Final = 30
#: As the shell of the allocator has it.
_REFRESH_SLICE: Final = 50
_ROOM: Final = cores(2_000, slots=10_000)
#: Fits an empty node, and not beside what runs.
_LARGE: Final = cores(1_000)
_SMALL: Final = OperationId("small")
_TOLD: Final[Mapping[PoolName, EphemeralPool]] = {}


@REGISTRY.add(
    "shares_of_all_told_ms", f"of cpu, an update that changes the shares of {WAITING:,} operations, encoded", 25
)
def told() -> Figure:
    return Figure.of(measured()[0], "ms")


@REGISTRY.add("shares_of_all_taken_ms", "of cpu, the same in the allocator, until each has its new place", 40)
def taken() -> Figure:
    return Figure.of(measured()[1], "ms")


@cache
def measured() -> tuple[list[float], list[float]]:
    """Milliseconds of a processor for both sides. Measured once."""
    live = [an_operation(f"{number:036x}", 1, _LARGE) for number in range(WAITING)]
    live = [
        replace(each, spec=replace(each.spec, pool=PoolName(f"pool-{number % POOLS}")), started_at_ms=number)
        for number, each in enumerate(live)
    ]
    live.append(replace(an_operation(_SMALL), spec=replace(an_operation(_SMALL).spec, pool=PoolName("pool-small"))))
    desk = Desk({"node": _ROOM})
    desk.engine.check = list  # type: ignore[method-assign]  # checking everything is no part of it
    desk.engine.on_operations(live, desk.now)
    desk.beat("node")
    known = [
        KnownOperation.of(each.spec, 1, operation=each.operation, state=each.state, suspended=False, user=each.user)
        for each in live
    ]
    wanted = {each.operation: UsageItem(each.operation, pending=_LARGE, pending_jobs=1) for each in live}
    cut = UpdateFacts(
        pools=PoolTree(Tree(TREE, [])),
        operations={each.operation: each for each in known},
        usage=wanted,
        total=_ROOM,
        usage_counts=True,
        ephemeral_pools=_TOLD,
    )
    updater, publisher = Updater(), _publisher()
    reader: SnapshotReader[ShareItem, ShareFrame] = SnapshotReader(TREE, ShareFrame(), key=lambda item: item.key)
    reader.on_part(decode(publisher.page(WholeRequest()), SharePart))
    told_ms, taken_ms = [], []
    for number in range(_RUNS):
        pending = Resources(user_slots=1, cpu=100 * (1 + number % 3))
        small = UsageItem(_SMALL, pending=pending, pending_jobs=1)
        cut = replace(cut, usage={**wanted, _SMALL: small}, clock_ms=50 * number)
        begun = time.thread_time()
        update = updater.update(cut)
        parts = publisher.advance(update.frame, update.changed, update.removed)
        told_ms.append((time.thread_time() - begun) * 1e3)
        cut = replace(cut, clocks=update.clocks)
        assert len(update.changed) > WAITING
        begun = time.thread_time()
        for part in parts:
            applied = reader.on_part(decode(part, SharePart))
        assert applied is not None
        shares = ShareSnapshot(reader.items, applied.changed, applied.removed, reader.frame.total, reader.frame.options)
        desk.engine.on_shares(shares, desk.now)
        while desk.engine.on_refresh_due(_REFRESH_SLICE, desk.now).answer:
            pass
        taken_ms.append((time.thread_time() - begun) * 1e3)
    return told_ms[3:], taken_ms[3:]


def _publisher() -> SnapshotPublisher[ShareItem, ShareFrame]:
    return SnapshotPublisher(SharePart, TREE, 1, ShareFrame(), key=lambda item: item.key, moved=MovedShare.between)
