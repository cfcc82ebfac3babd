"""The order is found anew in slices, while nodes join between any two of them."""

from __future__ import annotations

import msgspec

from headrace.ids import ROOT_POOL, PoolName
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.pool_config import FifoPoolSchedulingOrder
from headrace.wire.snapshots import ElementKind, MovedShare, PreemptionPriority, ShareItem
from headrace_allocator.facts.pool_tree import ShareSnapshot
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
    desk.engine.on_shares(ShareSnapshot(items, items.keys(), options=desk.options), desk.now)
    for _ in range(10 * COUNT // SLICE):
        desk.engine.ranking.mark_all()
        desk.engine.on_refresh_due(SLICE, desk.now)

    owed = [desk.operation(f"operation-{number}").fair_share[1] for number in range(COUNT)]
    assert owed == [0.02] * COUNT


def of_fifo(number: int, order: FifoPoolSchedulingOrder) -> ShareItem:
    """A pool whose operations get room in that order, and which nodes of one tag serve."""
    options = EffectiveOptions(fifo_pool_scheduling_order=order, scheduling_tag_filters=("ssd",))
    return ShareItem(ElementKind.POOL, f"pool-{number}", ROOT_POOL, options=options)


def test_a_pool_that_comes_changes_or_goes_moves_nobody_but_those_in_it() -> None:
    desk = Desk({"n": cores(1)})
    desk.beat("n")
    started = [an_operation(f"operation-{number}") for number in range(COUNT)]
    desk.start(
        *(
            msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, pool=PoolName(f"pool-{number}")))
            for number, each in enumerate(started)
        )
    )
    desk.tell(a_snapshot(0.01), total=cores(1))
    items = {item.key: item for item in a_snapshot(0.01)}

    def after(changed: list[ShareItem], removed: list[str]) -> tuple[bool, bool]:
        """Whether one look settles all, and whether the operation is told to fit somewhere then."""
        items.update((item.key, item) for item in changed)
        for key in removed:
            del items[key]
        keys = [item.key for item in changed]
        cut = ShareSnapshot(items, keys, removed, cores(1), desk.options)
        desk.engine.on_shares(cut, desk.now)
        more = desk.engine.on_refresh_due(1, desk.now).answer  # the operation: the pool has no turn of its own
        assert desk.engine.check() == []
        return not more, desk.operation("operation-7").fits_somewhere

    tree = FifoPoolSchedulingOrder.SATISFACTION
    assert after([], ["/pool-7"]) == (True, True)
    assert after([of_fifo(7, tree)], []) == (True, False)
    assert after([of_fifo(7, FifoPoolSchedulingOrder.FIFO)], []) == (True, False)
    assert after([], ["/pool-7"]) == (True, True)


def test_an_operation_of_which_a_snapshot_tells_no_more_than_its_usage_keeps_its_place() -> None:
    """So it is of many in a snapshot: jobs of them came and went."""
    desk = Desk({"n": cores(2)})
    desk.start(an_operation("first"), an_operation("second"))
    desk.share(first=0.5, second=0.5)
    before = desk.operation("first").share
    assert before is not None
    used = MovedShare("first", satisfaction=(0.5, 0.5), usage=(0.5, 0.5, 0.0, 0.0, 0.0)).applied(before)
    prepared = desk.operation("first").owed

    desk.tell([used, a_share("second", 0.4)])

    assert desk.operation("first").share == used
    assert desk.operation("first").owed is prepared is not None
    assert desk.operation("second").fair_share[1] == 0.4


def test_whatever_else_a_snapshot_tells_of_an_operation_is_taken_with_its_usage() -> None:
    desk = Desk({"n": cores(2)})
    desk.start(an_operation("first"))
    desk.share(first=0.5)
    before = desk.operation("first").share
    assert before is not None
    usage = (0.5, 0.5, 0.0, 0.0, 0.0)

    wants_more = MovedShare("first", usage=usage, demand=(1.0, 0.75, 0.0, 0.0, 0.0)).applied(before)
    desk.tell([wants_more])
    assert desk.operation("first").demand_share[1] == 0.75

    starves = msgspec.structs.replace(wants_more, preemption_priority=PreemptionPriority.NORMAL)
    desk.tell([starves])
    assert desk.operation("first").preemption_priority is PreemptionPriority.NORMAL


def test_where_guarantees_give_priority_the_usage_that_a_snapshot_tells_counts() -> None:
    desk = Desk({"n": cores(2)})
    desk.options = msgspec.structs.replace(desk.options, enable_guarantee_priority_scheduling=True)
    desk.start(an_operation("first"))
    promised = msgspec.structs.replace(
        a_share("first", 0.5), promised_fair_share=(0.0, 0.5, 0.0, 0.0, 0.0), usage_share=(1.0, 0.5, 0.0, 0.0, 0.0)
    )
    desk.tell([promised])
    assert not desk.engine.ranking.order.is_high(desk.operation("first").id)

    desk.tell([MovedShare("first", usage=(0.0, 0.25, 0.0, 0.0, 0.0)).applied(promised)])

    assert desk.engine.ranking.order.is_high(desk.operation("first").id)
