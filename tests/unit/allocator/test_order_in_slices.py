"""The order is found anew in slices, while nodes join between any two of them."""

from __future__ import annotations

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_allocator.facts.pool_tree import ShareCut
from tests.support.allocating import Desk, a_share, an_operation, cores

COUNT = 30
SLICE = 10


def a_snapshot(cpu: float) -> list[ShareItem]:
    """Pools with an operation each, which is owed so much."""
    pools = [ShareItem(ElementKind.POOL, f"pool-{number}", ROOT_POOL) for number in range(COUNT)]
    shares = [
        msgspec.structs.replace(a_share(f"operation-{number}", cpu), parent=PoolName(f"pool-{number}"))
        for number in range(COUNT)
    ]
    return [*pools, *shares]


def test_each_operation_gets_its_place_though_the_room_changes_before_every_slice() -> None:
    """Pools that began anew with each change of the room left no turn for any operation."""
    desk = Desk({"n": cores(1)})
    started = [an_operation(f"operation-{number}") for number in range(COUNT)]
    desk.tell(a_snapshot(0.01))
    desk.start(
        *(
            msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, pool=PoolName(f"pool-{number}")))
            for number, each in enumerate(started)
        )
    )
    assert len(desk.engine.ranking.order.pools()) > SLICE

    items = {item.key: item for item in a_snapshot(0.02)}
    desk.engine.on_shares(ShareCut(items, items.keys(), options=desk.options), desk.moment)
    for _ in range(10 * COUNT // SLICE):
        desk.engine.ranking.mark_all()
        desk.engine.on_refresh_due(SLICE, desk.moment)

    owed = [desk.operation(f"operation-{number}").fair_share[1] for number in range(COUNT)]
    assert owed == [0.02] * COUNT
