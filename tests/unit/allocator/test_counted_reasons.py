"""What keeps operations and rooms idle is counted, reason by reason."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import NodeName, OperationId
from headrace.pools.amounts import PartialResources
from headrace.wire.log import OperationSuspended
from headrace.wire.nodes import NodeRecord
from headrace_allocator import heartbeat_answer
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.unit.allocator.test_limits import Tree, a_pool


def counted(desk: Desk, start: str) -> dict[str, float]:
    """The reasons that were counted at all, by name without what all of them start with."""
    figures = [each for each in desk.engine.figures() if each.name.startswith(start) and each.value]
    return {each.name.removeprefix(start): float(each.value) for each in figures}  # type: ignore[arg-type]


def a_node() -> Desk:
    desk = Desk({"n": cores(2, slots=9)})
    desk.beat("n")
    return desk


def test_operations_out_of_the_order_are_counted_by_their_first_reason() -> None:
    desk = a_node()
    limited = an_operation("limited", 9)
    spec = msgspec.structs.replace(limited.spec, resource_limits=PartialResources(cpu=100))
    desk.start(an_operation("alone", 1), an_operation("idle", 9), msgspec.structs.replace(limited, spec=spec))
    desk.share(limited=0.4, alone=0.3)
    before = counted(desk, "held_back_")
    desk.beat("n")
    busy = counted(desk, "held_back_")
    desk.engine.on_events([OperationSuspended(OperationId("idle"), suspended=True, at_ms=0)], desk.now)
    suspended = counted(desk, "held_back_")
    desk.engine.on_operations([], desk.now)

    assert before == {}
    assert busy == {"operation_limit_reached": 1, "no_job_ready": 1}
    assert suspended == busy | {"operation_suspended": 1}
    assert counted(desk, "held_back_") == {}


def test_a_room_for_which_nobody_waits_is_counted_and_a_full_node_is_not() -> None:
    desk = a_node()
    empty = counted(desk, "room_left_")
    desk.start(an_operation("a", 9))
    desk.share(a=1.0)
    desk.nodes["n"] = cores(2, slots=2)
    desk.beat("n")

    assert empty == {"no_job_waits": 1}
    assert counted(desk, "room_left_") == empty


@pytest.mark.parametrize(("size", "tags", "why"), [(3, ["ssd"], "no_job_fits"), (1, [], "tags_differ")])
def test_a_room_that_no_job_fits_and_one_with_other_tags_are_told_apart(size: int, tags: list[str], why: str) -> None:
    desk = a_node()
    picky = an_operation("picky", 9, size=cores(size))
    spec = msgspec.structs.replace(picky.spec, scheduling_tag_filter="ssd")
    desk.engine.on_nodes({NodeName("n"): NodeRecord(NodeName("n"), tags=tags)}, desk.now)
    desk.start(msgspec.structs.replace(picky, spec=spec))
    desk.tell([a_share("picky", 1.0, demand=20)])
    desk.beat("n")

    assert counted(desk, "room_left_")[why] == 1


def test_a_room_that_stays_free_for_a_limit_is_counted_as_held_back() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], an_operation("a"))
    tree.beat("n")

    assert tree.used("a") == 3
    assert counted(tree, "room_left_") == {"no_job_waits": 1, "held_back": 1}


def test_of_a_node_in_whose_room_no_job_fits_no_decision_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most nodes of a busy cluster have some room that is of no use to anybody."""
    desk = a_node()
    desk.start(an_operation("large", 9, size=cores(3)))
    desk.tell([a_share("large", 1.0, demand=20)])
    desk.beat("n")
    monkeypatch.setattr(heartbeat_answer, "decide", None)
    desk.now_s += 1
    desk.beat("n")

    assert counted(desk, "room_left_")["no_job_fits"] == 2
