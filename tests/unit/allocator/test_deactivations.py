"""What a decision on a heartbeat passes over is counted by reason, a class of jobs at a time."""

from __future__ import annotations

import msgspec

from headrace.ids import NodeName
from headrace.resources import Resources
from headrace.wire.ledger import LiveOperation
from headrace.wire.nodes import NodeRecord
from headrace.wire.snapshots import PreemptionPriority, ShareItem, StarvationStatus
from headrace_allocator.gangs.gang import GangPhase
from headrace_allocator.preemption.audit.deactivations import Deactivations
from tests.support.allocating import Desk, an_operation, cores, with_task_sizes
from tests.support.taken_back import on_a_full_node
from tests.unit.allocator.test_counted_reasons import counted
from tests.unit.allocator.test_gangs import Fleet, a_gang
from tests.unit.allocator.test_limits import Tree, a_pool, in_pool
from tests.unit.allocator.test_preemption import FOUR, Host, a_share


def passed_over(desk: Desk) -> dict[str, float]:
    return counted(desk, "deactivations_")


def a_desk(*operations: LiveOperation) -> Desk:
    """A node of four cores with room for one of whichever comes first and little more, in whose tree all of them wait."""
    desk = Desk({"n": cores(4, slots=9)})
    desk.beat("n")
    desk.start(*operations)
    desk.tell([a_share(one.operation, 1, demand=40) for one in operations], total=FOUR)
    return desk


def test_each_class_that_does_not_fit_counts_once_a_heartbeat_however_many_operations_it_has() -> None:
    desk = a_desk(*(an_operation(f"large-{number}", size=cores(5)) for number in range(3)))
    desk.beat("n")
    assert passed_over(desk) == {"min_needed_resources_unsatisfied": 1}

    desk.engine.on_more_operations([an_operation("small", 1)], desk.now)
    names = ["small", *(f"large-{number}" for number in range(3))]
    desk.tell([a_share(name, 1, demand=40) for name in names], total=FOUR)
    assert desk.beat("n")[0].start
    assert passed_over(desk)["min_needed_resources_unsatisfied"] == 2, "by a decision, too"


def test_a_node_that_is_full_passes_over_nobody() -> None:
    desk = a_desk(an_operation("all", 1, size=cores(4, slots=9)), an_operation("more", size=cores(5)))
    desk.beat("n")

    assert passed_over(desk) == {}


def test_classes_whose_filters_differ_from_the_tags_are_told_apart_from_those_too_large() -> None:
    picky = an_operation("picky")
    picky = msgspec.structs.replace(picky, spec=msgspec.structs.replace(picky.spec, scheduling_tag_filter="ssd"))
    desk = a_desk(picky, an_operation("large", size=cores(5)))
    desk.engine.on_nodes({NodeName("n"): NodeRecord(NodeName("n"), tags=[])}, desk.now)
    desk.beat("n")

    assert passed_over(desk) == {"min_needed_resources_unsatisfied": 1, "unmatched_scheduling_tag": 1}


def test_classes_that_the_limit_of_a_pool_holds_back_count_in_each_such_pool_until_it_is_higher() -> None:
    live = {"a": ("p", cores(1)), "small": ("p", cores(0.5)), "b": ("q", cores(1))}
    operations = [in_pool(an_operation(name, size=size), pool) for name, (pool, size) in live.items()]
    tree = Tree([a_pool("p", cpu=0.3), a_pool("q", cpu=0.2)], *operations)
    tree.beat("n")
    assert (tree.used("a", "small"), tree.used("b")) == (3, 2)
    assert passed_over(tree).get("resource_limits_exceeded", 0) == 0, "at the beginning of the decision none was"

    tree.report()
    assert passed_over(tree)["resource_limits_exceeded"] == 3, "two classes in p and one in q"
    tree.tell([a_pool("p"), a_pool("q", cpu=0.2)])
    tree.report()
    assert passed_over(tree)["resource_limits_exceeded"] == 4
    tree.report()
    assert passed_over(tree)["resource_limits_exceeded"] == 5, "q alone holds anything back"


def test_a_pool_that_is_forgotten_holds_nothing_back() -> None:
    tree = Tree([a_pool("p", cpu=0.3)], in_pool(an_operation("a"), "p"))
    tree.beat("n")
    tree.engine.ranking.order.settle()
    assert tree.engine.ranking.order.shut_classes == 1

    tree.engine.on_operations([], tree.now)

    assert tree.engine.ranking.order.shut_classes == 0


def test_gangs_that_wait_while_room_is_held_for_another_count() -> None:
    fleet = Fleet({name: cores(4, slots=9) for name in ("a", "b", "c")}, gang_hold_s=30)
    fleet.start(a_gang("first", 3, cores(2.5)), a_gang("second", 2))
    fleet.tell([a_share("first", 2, demand=40), a_share("second", 1, demand=40)], total=FOUR)
    fleet.say("a")
    before = passed_over(fleet)
    fleet.say("b")

    assert (fleet.phase("first"), fleet.phase("second")) == (GangPhase.GATHERING, GangPhase.WAITING)
    assert "gang_waits_for_a_turn" not in before, "whose turn it is was not decided yet"
    assert passed_over(fleet)["gang_waits_for_a_turn"] == 1


NORMAL = a_share("poor", 2, starves=True)
AGGRESSIVE = msgspec.structs.replace(
    NORMAL,
    starvation_status=StarvationStatus.AGGRESSIVELY_STARVING,
    preemption_priority=PreemptionPriority.AGGRESSIVE,
)


def beside(host: Host, *, starving: ShareItem) -> None:
    """Beside the one that starves another waits that does not."""
    host.engine.on_more_operations([an_operation("large", size=cores(9))], host.now)
    host.tell([a_share("rich", 2), a_share("large", 1, demand=40), starving], total=FOUR)


def test_a_preemptive_stage_passes_over_all_classes_of_another_priority_and_what_there_is_too_little_to_take_for() -> (
    None
):
    host = on_a_full_node(poor={"resources": cores(3)})
    beside(host, starving=NORMAL)
    before = passed_over(host)
    host.next_beat()

    assert before == {}
    assert passed_over(host) == {
        "is_not_eligible_for_normal_preemptive_scheduling": 1,
        "min_needed_resources_unsatisfied": 1,
    }


def test_a_preemptive_stage_that_started_something_passed_over_no_more_than_those_of_another_priority() -> None:
    host = on_a_full_node(owed=4, aggressive=True)
    beside(host, starving=AGGRESSIVE)
    assert host.next_beat().start

    assert passed_over(host) == {"is_not_eligible_for_aggressive_preemptive_scheduling": 1}


def test_operations_of_which_no_size_fits_count_one_by_one() -> None:
    desk = Desk({"n": Resources(9, 200, memory=20)})
    desk.start(with_task_sizes(an_operation("a"), (1, Resources(1, 100, memory=50)), (1, Resources(1, 500, memory=10))))
    desk.tell([msgspec.structs.replace(a_share("a", 1), demand_share=(9.0,) * 5)])
    desk.beat("n")

    assert passed_over(desk) == {"schedule_allocation_failed": 1, "no_best_leaf_descendant": 1}


def test_pools_that_a_walk_leaves_without_an_operation_count() -> None:
    tree = Tree([a_pool("p"), a_pool("q")], in_pool(an_operation("first", 1), "q"))
    tree.beat("n")
    # Its pool comes before the other, and its job would fit an empty node.
    later = [in_pool(an_operation("large", size=cores(10)), "p"), in_pool(an_operation("small", 1), "q")]
    tree.engine.on_more_operations(later, tree.now)
    tree.told += [a_share("large", 0.9, demand=10), a_share("small", 0.5)]
    tree.tell([])
    before = passed_over(tree).get("no_best_leaf_descendant", 0)
    tree.report()

    assert tree.used("small") == 1
    assert passed_over(tree)["no_best_leaf_descendant"] - before == 3


def test_what_a_walk_meets_where_preemption_is_only_observed_is_not_counted_once_more() -> None:
    counts = []
    for switch in ("observe", "off"):
        host = on_a_full_node({"preemption": switch})
        large = in_pool(an_operation("large", size=cores(9)), "a")
        host.engine.on_more_operations([large], host.now)
        # Its pool comes first, and is left without it.
        host.tell([a_share("rich", 2), a_share("large", 4, demand=40), NORMAL], total=FOUR)
        host.next_beat()
        assert bool(host.engine.answers.decided.observed) is (switch == "observe")
        counts.append(passed_over(host))

    assert counts[0] == counts[1] != {}


def test_counts_are_added_reason_by_reason() -> None:
    counts = Deactivations(1, 2)
    counts.add(Deactivations(3, no_best_leaf_descendant=4))

    assert counts == Deactivations(4, 2, no_best_leaf_descendant=4)
