"""Ephemeral pools, hubs, moves and several trees, beyond what the conformance cases show."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.ids import PoolName, TreeName
from headrace.wire import operations as wire
from headrace.wire.ledger import DrawBlock
from headrace.wire.operations import OperationState, PerTree
from headrace.wire.refusals import BadRequest, LimitBroken, NotFound, OverLimit, WrongState
from headrace_admission.state.rules import GlobalRules
from tests.support.clocks import at
from tests.unit.admission.desk import TREE, Desk, oid

T1, T2 = TreeName("tree-1"), TreeName("tree-2")


def test_a_second_ephemeral_pool_of_a_user_is_over_the_cap_but_hubs_do_not_count() -> None:
    desk = Desk({"hub": {"create_ephemeral_subpools": True}})
    desk.started("a", pool="mine")
    desk.started("b", pool="hub")

    refused = desk.start("c", "another")

    assert refused == OverLimit(
        [LimitBroken("max_ephemeral_pools_per_user", 1, 1, "another", "default", user="anna", holders=["mine"])]
    )
    assert isinstance(desk.start("d", "another", user="boris"), wire.StartAnswer)


def test_an_ephemeral_pool_is_over_with_its_last_operation_even_one_that_waited() -> None:
    desk = Desk(max_running_operation_count_per_pool=1)
    desk.started("a", "b", pool="mine")

    desk.finish("a")
    assert desk.state.books[TREE].exists(PoolName("mine"))
    desk.finish("b")

    assert not desk.state.books[TREE].exists(PoolName("mine"))
    assert desk.start("c", "another").pool == "another"


def test_similar_pools_are_those_that_are_configured_now() -> None:
    desk = Desk({"research": {}})
    assert desk.start("a", "reserch").near == ["research"]

    desk.configure({"reserche": {}})

    assert desk.start("b", "reserch").near == ["reserche"]


def test_when_a_hub_is_switched_off_its_operations_move_into_it_and_who_waits_keeps_waiting() -> None:
    hub = {"create_ephemeral_subpools": True, "max_running_operation_count": 1}
    desk = Desk({"hub": hub}, promote_only_on_scan=True)
    desk.started("a", pool="hub")
    desk.started("b", pool="hub", user="boris")

    desk.configure({"hub": {"max_running_operation_count": 1}}, promote_only_on_scan=True)

    assert {name: operation.spec.pool for name, operation in desk.state.operations.items()} == {
        oid("a"): "hub",
        oid("b"): "hub",
    }
    assert desk.queue("hub") == ["b"]
    assert desk.state.books[TREE].ephemeral.by_name == {}
    assert not desk.state.operations[oid("a")].ephemeral_pool


def test_who_waits_at_a_hubs_pool_waits_at_the_hub_when_it_is_switched_off() -> None:
    config = {"ephemeral_subpool_config": {"max_running_operation_count": 0}}
    desk = Desk({"hub": {"create_ephemeral_subpools": True} | config}, promote_only_on_scan=True)
    desk.started("a", "b", pool="hub")
    assert desk.queue("hub$anna") == ["a", "b"]

    desk.configure({"hub": config}, promote_only_on_scan=True)
    assert desk.queue("hub") == ["a", "b"]

    desk.scan()
    assert desk.running() == ["a", "b"]


@pytest.mark.parametrize("limit", ["max_operation_count", "max_running_operation_count"])
def test_nothing_moves_into_a_new_ephemeral_pool_that_allows_no_operation(limit: str) -> None:
    """What moves has to run at once; what starts there waits."""
    desk = Desk({"hub": {"create_ephemeral_subpools": True, "ephemeral_subpool_config": {limit: 0}}, "p": {}})
    desk.started("a", pool="p")

    assert desk.move("a", "hub") == OverLimit([LimitBroken(limit, 0, 0, pool=PoolName("hub$anna"), tree=TREE)])
    assert desk.counts("p") == (1, 1, 0)
    options: dict[str, Any] = {f"{limit}_per_pool": 0}
    desk.configure({"p": {}}, **options)
    assert desk.move("a", "fresh") == OverLimit([LimitBroken(limit, 0, 0, pool=PoolName("fresh"), tree=TREE)])


def test_an_operation_keeps_its_slot_index_while_it_waits_and_when_it_runs() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}})
    desk.started("a", "b", "c", pool="p")
    before = slot_indexes(desk)
    desk.finish("a")

    assert before == {"a": 0, "b": 1, "c": 2}
    assert desk.running() == ["b"]
    assert slot_indexes(desk) | {"a": 0} == before
    desk.started("d", pool="p")
    assert slot_indexes(desk)["d"] == 0


def slot_indexes(desk: Desk) -> dict[str, int | None]:
    live = {name.removeprefix("operation-"): operation for name, operation in desk.state.live.items()}
    return {name: operation.placements[TREE].slot_index for name, operation in live.items()}


def test_a_removed_pool_lives_on_below_the_default_parent_and_counts_there() -> None:
    desk = Desk({"default_pool": {}, "p": {}}, default_parent_pool="default_pool")
    desk.started("a", pool="p")

    desk.configure({"default_pool": {}}, default_parent_pool="default_pool")

    assert desk.counts("default_pool") == (1, 1, 0)
    assert desk.state.operations[oid("a")].ephemeral_pool
    assert desk.start("b", "mine").pool == "mine"


def test_a_default_parent_that_is_removed_goes_below_the_root_with_its_ephemeral_pools() -> None:
    desk = Desk({"default_pool": {}, "p": {}}, default_parent_pool="default_pool")
    desk.started("a", pool="mine")
    desk.started("b", pool="p")

    desk.configure({}, default_parent_pool="default_pool")

    book = desk.state.books[TREE]
    parents = {pool: book.parent(PoolName(pool)) for pool in ("default_pool", "mine", "p")}
    assert parents == {"default_pool": "<Root>", "mine": "default_pool", "p": "default_pool"}


def test_pools_that_are_removed_with_the_default_parent_go_below_it_though_they_were_in_use_before() -> None:
    desk = Desk({"p": {}, "default_pool": {}}, default_parent_pool="default_pool")
    desk.started("a", pool="p")
    desk.started("b", pool="default_pool")

    desk.configure({}, default_parent_pool="default_pool")

    book = desk.state.books[TREE]
    assert (book.parent(PoolName("p")), book.parent(PoolName("default_pool"))) == ("default_pool", "<Root>")


def test_a_configuration_that_makes_a_pool_with_ephemeral_ones_below_it_fifo_waits_for_their_end() -> None:
    desk = Desk({"hub": {"create_ephemeral_subpools": True}, "p": {"max_operation_count": 1}})
    desk.started("a", pool="hub")

    desk.configure({"hub": {"mode": "fifo"}, "p": {"max_operation_count": 7}})

    assert "hub has hub$anna" in desk.state.configuration.held_back[TREE].reason
    assert desk.state.books[TREE].max_operation_count(PoolName("p")) == 1
    desk.finish("a")
    assert desk.state.configuration.held_back == {}
    assert desk.state.books[TREE].max_operation_count(PoolName("p")) == 7


def test_a_restart_while_a_removed_tree_still_has_ephemeral_pools_breaks_no_invariant() -> None:
    """Nobody knows any more what stood above them."""
    desk = Desk({"p": {}}, default_parent_pool="p")
    desk.started("a", pool="mine")
    desk.record(desk.engine.on_draw(DrawBlock(TREE, 1, oid("a"), below=1, more=1), at(0, 1)).effects)
    del desk.trees[TREE]
    desk.record(desk.engine.on_configuration(TREE, None, at(0, 2)).effects)

    assert desk.state_of("a") is OperationState.ABORTING
    assert desk.replayed().check() == []


def test_a_tree_that_was_removed_does_not_come_back_with_a_configuration_that_waited() -> None:
    desk = Desk({"hub": {"create_ephemeral_subpools": True}})
    desk.started("a", pool="hub")
    desk.configure({"hub": {"mode": "fifo"}})

    desk.record(desk.engine.on_configuration(TREE, None, at(0, 5)).effects)
    desk.released("a")

    assert desk.state_of("a") is OperationState.ABORTED
    assert isinstance(desk.start("b", "p"), NotFound)


def test_an_ephemeral_pool_that_only_a_queue_keeps_goes_with_the_queue() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}, "x": {"parent": "p"}}, promote_only_on_scan=True)
    desk.started("a", pool="p")
    desk.started("b", pool="x")
    desk.configure({"x": {}}, promote_only_on_scan=True)
    assert desk.queue("p") == ["b"]

    desk.finish("a")

    assert desk.running() == ["b"]
    assert not desk.state.books[TREE].exists(PoolName("p"))


def test_what_changed_while_nobody_looked_is_taken_at_the_next_start() -> None:
    desk = Desk({"p": {}, "hub": {"create_ephemeral_subpools": True}})
    desk.started("a", pool="p")
    desk.started("b", pool="hub")
    desk.started("c", pool="mine")
    before = list(desk.entries)
    desk.configure({"hub": {}, "mine": {}})
    wanted = desk.state.books[TREE]

    late = Desk()
    late.state.books.clear()
    late.entries = before
    late.replay(late.engine)
    late.configure({"hub": {}, "mine": {}})

    assert late.state.books[TREE].members.keys() == wanted.members.keys()
    assert late.state.books[TREE].ephemeral.by_name == wanted.ephemeral.by_name
    assert late.state.operations[oid("b")].spec.pool == "hub"


def test_a_move_is_refused_as_a_whole_and_changes_nothing() -> None:
    desk = Desk({"p": {}, "full": {"max_running_operation_count": 0}})
    desk.started("a", pool="p")

    refused = desk.update("a", pool=PoolName("full"), weight=3.0)

    assert isinstance(refused, OverLimit)
    assert desk.state.operations[oid("a")].spec.weight == 1.0


def test_pools_can_be_kept_from_changing_while_weights_do() -> None:
    desk = Desk({"p": {}, "q": {}}, everywhere=GlobalRules(pool_change_is_allowed=False))
    desk.started("a", pool="p")

    assert isinstance(desk.move("a", "q"), WrongState)
    assert desk.update("a", weight=2.0).spec.weight == 2.0


def test_nothing_is_changed_of_what_is_ending() -> None:
    desk = Desk({"p": {}})
    desk.started("a", pool="p")
    desk.abort("a")

    assert isinstance(desk.update("a", weight=2.0), WrongState)


def two_trees(first: dict[str, int], second: dict[str, int], promote_only_on_scan: bool = True) -> Desk:
    desk = Desk()
    for tree, limits in ((T1, first), (T2, second)):
        desk.configure({"p": limits, "q": {}}, tree, promote_only_on_scan=promote_only_on_scan)
    return desk


def test_an_operation_runs_as_soon_as_one_tree_has_room_and_there() -> None:
    desk = two_trees({"max_running_operation_count": 0}, {"max_running_operation_count": 1})

    answer = desk.start("a", "p", pool_trees=[T1, T2])

    assert answer.state is OperationState.RUNNING
    assert desk.state.operations[oid("a")].spec.tree == T2
    assert (desk.counts("p", T1), desk.counts("p", T2)) == ((1, 0, 0), (1, 1, 0))


def test_a_gang_is_refused_in_several_trees() -> None:
    desk = two_trees({}, {})

    refused = desk.start("a", "p", pool_trees=[T1], tentative_pool_trees=[T2], is_gang=True, job_count=2)

    assert isinstance(refused, BadRequest)
    assert (
        refused.text()
        == "spec.pool_trees: tree-1, tree-2 cannot be used; expected one tree, because all jobs of a gang start together in one tree"
    )
    desk.started("b", pool="p", pool_trees=[T1, T2], is_gang=True)


def test_an_operation_that_waits_everywhere_runs_in_the_tree_that_has_room_first() -> None:
    desk = two_trees({"max_running_operation_count": 0}, {"max_running_operation_count": 1})
    desk.started("a", pool="p", tree=T2)
    desk.started("b", pool="p", pool_trees=[T1, T2])
    assert desk.state.operations[oid("b")].spec.tree == T1

    desk.finish("a")

    assert desk.state_of("b") is OperationState.RUNNING
    assert desk.state.operations[oid("b")].spec.tree == T2
    assert desk.replayed().state.operations[oid("b")].to_record() == desk.state.operations[oid("b")].to_record()


def test_tentative_trees_must_be_others_and_there_must_be_regular_ones() -> None:
    desk = two_trees({}, {})

    alone = desk.start("a", "p", tree=T1, tentative_pool_trees=[T2])
    both = desk.start("a", "p", pool_trees=[T1], tentative_pool_trees=[T1])
    missing = desk.start("a", "p", pool_trees=[T1], tentative_pool_trees=[TreeName("tree-3")])
    left_out = desk.start(
        "a", "p", pool_trees=[T1], tentative_pool_trees=[TreeName("tree-3")], ignore_missing_tentative_trees=True
    )

    assert isinstance(alone, BadRequest)
    assert isinstance(both, BadRequest)
    assert missing == NotFound("tree", "tree-3", near=["tree-2", "tree-1"])
    assert left_out.state is OperationState.RUNNING


def test_types_without_tentative_trees_have_none() -> None:
    desk = two_trees({}, {})
    desk.started("a", pool="p", pool_trees=[T1], tentative_pool_trees=[T2], type="sort")
    desk.started("b", pool="p", pool_trees=[T1], tentative_pool_trees=[T2], type="map")

    assert list(desk.state.operations[oid("a")].placements) == [T1]
    assert list(desk.state.operations[oid("b")].placements) == [T1, T2]


def test_what_is_said_for_a_tree_hides_the_pool_and_yields_to_the_weight_said_for_the_whole() -> None:
    desk = two_trees({}, {})
    desk.started("a", pool="p", pool_trees=[T1, T2])

    desk.update("a", pool=PoolName("q"), weight=5.0, scheduling_options_per_pool_tree={T1: PerTree(weight=2.0)})

    operation = desk.state.operations[oid("a")]
    assert {tree: placement.pool for tree, placement in operation.placements.items()} == {T1: "p", T2: "q"}
    assert operation.spec.weight == 5.0


def test_a_change_for_a_tree_that_the_operation_is_not_in_is_refused() -> None:
    desk = two_trees({}, {})
    desk.started("a", pool="p", pool_trees=[T1])

    refused = desk.update("a", scheduling_options_per_pool_tree={T2: PerTree(weight=2.0)})

    assert refused == BadRequest("scheduling_options_per_pool_tree.tree-2", "tree-2", "a tree of the operation: tree-1")


def test_who_waits_in_one_tree_is_not_moved_in_another() -> None:
    desk = two_trees({"max_running_operation_count": 0}, {})
    desk.started("a", pool="p", pool_trees=[T1, T2])

    refused = desk.update("a", scheduling_options_per_pool_tree={T2: PerTree(pool=PoolName("q"))})

    assert isinstance(refused, OverLimit)
    assert refused.broken[0].tree == T1


def test_operations_of_a_removed_tree_are_aborted_unless_they_have_another() -> None:
    desk = two_trees({"max_running_operation_count": 0}, {})
    desk.started("a", pool="p", pool_trees=[T1])
    desk.started("b", pool="p", pool_trees=[T1, T2])

    desk.record(desk.engine.on_configuration(T1, None, at(0, 5)).effects)

    assert desk.state_of("a") is OperationState.ABORTED
    assert desk.state_of("b") is OperationState.RUNNING
    assert list(desk.state.operations[oid("b")].placements) == [T2]
    assert isinstance(desk.start("c", "p", tree=T1), NotFound)
