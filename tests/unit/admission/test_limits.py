"""Limits, queues and what promotes, beyond what the conformance cases show: here a tree promotes at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.ids import NodeName, PoolName
from headrace.wire import operations as wire
from headrace.wire.operations import OperationState
from headrace.wire.placements import WaitingFor
from headrace.wire.refusals import BadRequest, LimitBroken, NotAllowed, NotFound, OverLimit, WrongState
from headrace_admission import queries
from headrace_admission.state.rules import GlobalRules
from headrace_admission.state.state import Page, Restored
from headrace_admission.state.tree_book import TreeBook
from headrace_agent.settings import AgentSettings
from tests.support.clocks import NOW
from tests.unit.admission.desk import TREE, Desk, oid


def test_a_raised_limit_promotes_at_once() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}})
    desk.started("a", "b", "c", pool="p")

    desk.configure({"p": {"max_running_operation_count": 2}})

    assert desk.running() == ["a", "b"]
    assert desk.queue("p") == ["c"]


def test_a_raised_limit_of_the_tree_promotes_at_once() -> None:
    desk = Desk(max_running_operation_count=1, max_ephemeral_pools_per_user=9)
    desk.started("a", "b", "c", pool="p")

    desk.configure({}, max_running_operation_count=3)

    assert desk.running() == ["a", "b", "c"]


def test_a_pool_that_moves_away_from_the_limit_takes_its_waiting_operations_along() -> None:
    pools = {"old": {"max_running_operation_count": 1}, "new": {}, "p": {"parent": "old"}, "q": {"parent": "old"}}
    desk = Desk(pools)
    desk.started("a", pool="q")
    desk.started("b", pool="p")

    desk.configure(pools | {"p": {"parent": "new"}})

    assert desk.running() == ["a", "b"]


def test_a_moved_pool_leaves_its_slots_to_who_waits_where_it_was() -> None:
    pools = {"old": {"max_running_operation_count": 1}, "new": {}, "p": {"parent": "old"}, "q": {"parent": "old"}}
    desk = Desk(pools)
    desk.started("a", pool="p")
    desk.started("b", pool="q")

    desk.configure(pools | {"p": {"parent": "new"}})

    assert desk.running() == ["a", "b"]


def test_a_moved_operation_leaves_its_slot_to_the_next() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}, "q": {}})
    desk.started("a", "b", pool="p")

    desk.move("a", "q")

    assert desk.running() == ["a", "b"]


def test_an_operation_that_becomes_lightweight_leaves_its_slot_to_the_next() -> None:
    pools = {"top": {"max_running_operation_count": 1}, "light": {"parent": "top", "mode": "fifo"}}
    desk = Desk(pools)
    desk.started("a", pool="light")
    desk.started("b", pool="light", type="map")

    desk.configure(pools | {"light": {"parent": "top", "mode": "fifo", "enable_lightweight_operations": True}})

    assert desk.running() == ["a", "b"]
    assert desk.counts("top") == (2, 1, 1)


def test_lightweight_operations_pass_a_limit_of_none_but_not_the_one_on_all() -> None:
    light = {"mode": "fifo", "enable_lightweight_operations": True, "max_operation_count": 2}
    desk = Desk({"top": {"max_running_operation_count": 0}, "light": {"parent": "top"} | light})
    desk.started("a", "b", pool="light")

    refused = desk.start("c", "light")

    assert desk.running() == ["a", "b"]
    assert refused == OverLimit([LimitBroken("max_operation_count", 2, 2, pool="light", tree="default")])


def test_a_waiting_operation_that_is_aborted_is_over_at_once_and_leaves_its_queue() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}})
    desk.started("a", "b", "c", pool="p")

    desk.abort("b")

    assert desk.state_of("b") is OperationState.ABORTED
    assert desk.queue("p") == ["c"]
    assert desk.counts("p") == (2, 1, 0)


def test_what_is_ending_keeps_its_slot_until_it_is_over() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}})
    desk.started("a", "b", pool="p")

    desk.abort("a")

    assert desk.state_of("a") is OperationState.ABORTING
    assert desk.waiting() == ["b"]
    desk.released("a")
    assert desk.running() == ["b"]


def test_what_waits_is_shown_with_its_place_and_the_limit() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}})
    desk.started("a", "b", pool="p")

    answer = desk.start("c", "p")
    view = queries.get_operation(desk.state, wire.GetOperation(oid("b")))

    assert isinstance(view, wire.OperationView)
    assert answer.waiting == [WaitingFor(TREE, "p", limit=1, running=1, place=2, waiting=2)]  # type: ignore[arg-type]
    assert [each.place for each in view.waiting] == [1]


def test_waiting_is_another_word_for_pending_in_lists() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}})
    desk.started("a", "b", pool="p")

    listed = queries.list_operations(desk.state, wire.ListOperations(state="waiting"))

    assert isinstance(listed, wire.OperationList)
    assert [(view.operation, view.waiting[0].blocked_by) for view in listed.operations] == [(oid("b"), "p")]


def test_explain_names_every_level_that_holds_back_and_who_holds_its_slots() -> None:
    desk = Desk({"top": {"max_running_operation_count": 1}, "p": {"parent": "top", "max_running_operation_count": 1}})
    desk.started("a", "b", pool="p")

    told = queries.explain_operation(desk.state, wire.ExplainOperation(oid("b")))

    assert isinstance(told, wire.OperationExplanation)
    levels = [(level.pool, level.full, [holder.operation for holder in level.holders]) for level in told.levels]
    assert levels == [("<Root>", False, []), ("top", True, [oid("a")]), ("p", True, [oid("a")])]
    assert told.levels[2].waiting == 1


def test_who_holds_the_slots_of_a_pool_is_looked_for_below_it_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred full pools, among 10,000 with operations, once kept the loop for 1.6 s."""
    hub = {"parent": "top", "create_ephemeral_subpools": True}
    desk = Desk(
        {"top": {}, "p": {"parent": "top"}, "hub": hub, "other": {}},
        max_operation_count=100,
        max_operation_count_per_pool=100,
        max_running_operation_count_per_pool=24,
    )
    for number in range(22):
        desk.started(f"p-{number:02}", pool="p")
    desk.started("h", pool="hub")
    desk.started("o", pool="other")
    desk.started("t", "waits", pool="top")
    book = desk.state.books[TREE]
    looked: list[str] = []
    upwards = TreeBook.upwards

    def counted(book: TreeBook, pool: PoolName) -> Iterator[PoolName]:
        looked.append(pool)
        return upwards(book, pool)

    monkeypatch.setattr(TreeBook, "upwards", counted)
    counts = queries.count_pools(desk.state, wire.CountPools(PoolName("top")))

    assert isinstance(counts, wire.PoolCounts)
    [top] = counts.pools
    assert (top.full, top.running_operation_count, top.more_holders) == (True, 24, 4)
    assert [holder.operation for holder in top.holders] == [oid(f"p-{number:02}") for number in range(20)]
    assert {member.operation for member in book.slots_below(PoolName("hub"))} == {oid("h")}
    assert looked == []


def test_the_cap_on_all_trees_together_is_told_without_a_pool() -> None:
    desk = Desk({"p": {}}, everywhere=GlobalRules(max_operation_count=1))
    desk.started("a", pool="p")

    refused = desk.start("b", "p")

    assert isinstance(refused, OverLimit)
    assert refused.text() == (
        "too many operations: 1 operations are registered in all trees together; max_operation_count is 1"
    )


def test_a_user_at_the_limit_of_their_own_is_refused_and_nobody_else() -> None:
    desk = Desk({"p": {}}, everywhere=GlobalRules(max_operation_count=10, max_operation_count_per_user=2))
    desk.started("a", "b", pool="p")

    refused = desk.start("c", "p")

    assert isinstance(refused, OverLimit)
    assert refused.text() == (
        "too many operations: anna has 2 operations in all trees together; max_operation_count_per_user is 2"
    )
    assert not isinstance(desk.start("d", "p", user="ben"), OverLimit)
    # A start that was made before gets its answer again.
    assert not isinstance(desk.start("b", "p"), OverLimit)
    desk.finish("a")
    desk.started("e", pool="p")
    desk.abort("b")
    desk.released("b")
    desk.started("f", pool="p")
    assert desk.state.live_of_user == {"anna": 2, "ben": 1}
    restored = desk.state.emptied()
    restored.restore_page(Page([each.to_record() for each in desk.state.operations.values()]))
    restored.restore(Restored())
    assert restored.live_of_user == desk.state.live_of_user


def test_a_refusal_names_pool_tree_count_and_limit() -> None:
    desk = Desk({"p": {"max_operation_count": 1}})
    desk.started("a", pool="p")

    assert desk.start("b", "p").text() == (
        "too many operations: pool 'p' of tree default has 1 operations; its max_operation_count is 1"
    )
    assert desk.state.operations.keys() == {oid("a")}


def test_only_the_own_flag_of_a_pool_forbids_operations() -> None:
    closed = {"forbid_immediate_operations": True}
    desk = Desk({"top": closed, "p": {"parent": "top"}, "hub": closed | {"create_ephemeral_subpools": True}})

    assert isinstance(desk.start("a", "top"), WrongState)
    desk.started("b", pool="p")
    assert desk.start("c", "hub").pool == "hub$anna"


def test_gang_operations_run_in_fifo_pools_only_where_the_tree_says_so() -> None:
    pools = {"fair": {}, "fifo": {"mode": "fifo"}, "open": {"always_allow_gang_operations": True}}
    desk = Desk(pools, allow_gang_operations_only_in_fifo_pools=True)

    assert isinstance(desk.start("a", "fair", is_gang=True), WrongState)
    desk.started("b", pool="fifo", is_gang=True)
    desk.started("c", pool="open", is_gang=True)
    desk.started("d", pool="fair")


def test_a_gang_operation_moves_only_where_it_might_have_started() -> None:
    """A hub makes pools of its own mode: the gang counts by that, and not by the hub's."""
    subpools = {"create_ephemeral_subpools": True, "ephemeral_subpool_config": {"mode": "fifo"}}
    desk = Desk({"fair": {}, "fifo": {"mode": "fifo"}, "hub": subpools}, allow_gang_operations_only_in_fifo_pools=True)
    desk.started("gang", pool="fifo", is_gang=True)
    desk.started("plain", pool="fifo")

    assert isinstance(desk.move("gang", "fair"), WrongState)
    assert not isinstance(desk.move("plain", "fair"), WrongState)
    assert not isinstance(desk.move("gang", "hub"), WrongState)
    desk.started("first", "second", pool="hub", is_gang=True)


def test_a_log_cap_above_what_nodes_usually_keep_is_warned() -> None:
    desk = Desk({"p": {}})

    usual, larger = desk.start("a", "p", log_cap_bytes=2**30), desk.start("b", "p", log_cap_bytes=2**40)

    assert usual.warnings == []
    assert larger.warnings[0].startswith("log_cap_bytes: a node keeps at most 1GiB of each output stream, unless")
    assert AgentSettings(node=NodeName("n")).largest_log_cap_bytes == 2**30


def test_an_unknown_type_is_answered_with_the_nearest() -> None:
    assert desk_refusal("p", type="vanila") == BadRequest("spec.type", "vanila", "did you mean vanilla?")


def desk_refusal(pool: str, **spec: str) -> object:
    return Desk({"p": {}}).start("a", pool, **spec)


def test_a_start_in_a_lightweight_pool_that_is_no_lightweight_operation_is_warned() -> None:
    desk = Desk({"light": {"mode": "fifo", "enable_lightweight_operations": True}})

    ordinary = desk.start("a", "light", type="map")
    wide = desk.start("b", "light", job_count=5)

    assert ordinary.warnings == [
        "pool light is for lightweight operations; an operation of type map is not lightweight and counts like any other operation"
    ]
    assert wide.warnings == ["pool light is for lightweight operations with one small job; this operation has 5 jobs"]


def test_suspended_operations_keep_their_slot_and_resuming_others_is_refused() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}})
    desk.started("a", "b", pool="p")

    desk.suspend("a")

    assert desk.state.operations[oid("a")].suspended
    assert desk.waiting() == ["b"]
    assert isinstance(desk.resume("b"), WrongState)
    desk.resume("a")
    assert not desk.state.operations[oid("a")].suspended


def test_only_a_running_operation_can_be_completed() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}})
    desk.started("a", "b", pool="p")

    waiting = desk.complete("b")
    desk.complete("a")

    assert waiting == WrongState("operation", oid("b"), "pending", "running")
    assert desk.state_of("a") is OperationState.COMPLETING


def test_a_misspelt_pool_is_refused_where_pools_must_exist() -> None:
    desk = Desk({"research": {}}, everywhere=GlobalRules(require_specified_pools_existence=True))

    assert desk.start("a", "reserch") == NotFound("pool", "reserch", near=["research"])
    assert desk.start("b", "research").pool == "research"


def test_replaying_the_events_gives_the_same_queues_in_the_same_order() -> None:
    pools = {"top": {"max_running_operation_count": 2}, "p": {"parent": "top", "max_running_operation_count": 1}}
    desk = Desk(pools | {"hub": {"create_ephemeral_subpools": True}})
    desk.started("a", "b", "c", pool="p")
    desk.started("d", pool="top")
    desk.started("e", "f", pool="top")
    desk.started("g", pool="hub")
    desk.abort("b")
    desk.finish("d")
    desk.move("e", "hub")

    replayed = desk.replayed().state

    book, other = desk.state.books[TREE], replayed.books[TREE]
    assert {pool: list(queue.values()) for pool, queue in book.queues.items()} == {
        pool: list(queue.values()) for pool, queue in other.queues.items()
    }
    assert (other.members, other.ephemeral.by_name) == (book.members, book.ephemeral.by_name)
    assert {name: o.to_record() for name, o in replayed.operations.items()} == {
        name: o.to_record() for name, o in desk.state.operations.items()
    }


def test_who_is_not_named_for_a_pool_runs_nothing_in_it() -> None:
    desk = Desk({"p": {"access": {"use": ["boris"]}}}, everywhere=GlobalRules(administrators=frozenset()))

    assert isinstance(desk.start("a", "p"), NotAllowed)
    assert isinstance(desk.start("b", "p", user="boris"), wire.StartAnswer)


def test_operations_of_others_are_changed_by_who_manages_their_pool_but_not_moved() -> None:
    pools = {"p": {"access": {"manage": ["chris"]}}, "q": {}}
    desk = Desk(pools, everywhere=GlobalRules(administrators=frozenset()))
    desk.started("a", pool="p")

    assert isinstance(desk.update("a", "boris", weight=2.0), NotAllowed)
    assert desk.update("a", "chris", weight=2.0).spec.weight == 2.0
    assert isinstance(desk.update("a", "chris", pool=PoolName("q")), NotAllowed)
    assert desk.update("a", "anna", pool=PoolName("q")).spec.pool == "q"


def test_only_administrators_have_the_queues_judged_out_of_turn() -> None:
    desk = Desk({"p": {"max_running_operation_count": 1}}, promote_only_on_scan=True)
    desk.started("a", "b", pool="p")
    desk.configure({"p": {"max_running_operation_count": 2}}, promote_only_on_scan=True)

    done = desk.engine.on_scan_asked(wire.ScanQueues(), "anna", NOW)
    nobody = Desk(everywhere=GlobalRules(administrators=frozenset({"root"}))).engine.on_scan_asked(
        wire.ScanQueues(), "anna", NOW
    )

    assert done.answer == wire.Scanned(promoted=1, still_waiting=0)
    assert isinstance(nobody.answer, NotAllowed)


def test_pools_are_counted_with_their_limits_and_who_waits_first() -> None:
    desk = Desk({"top": {}, "p": {"parent": "top", "max_running_operation_count": 1}})
    desk.started("a", "b", pool="p")

    counted = queries.count_pools(desk.state, wire.CountPools())
    page = queries.count_pools(desk.state, wire.CountPools(after="<Root>", limit=1))
    missing = queries.count_pools(desk.state, wire.CountPools(PoolName("topp")))

    assert isinstance(counted, wire.PoolCounts)
    assert isinstance(page, wire.PoolCounts)
    assert [(level.pool, level.operation_count, level.first_waiting) for level in counted.pools] == [
        ("<Root>", 2, []),
        ("p", 2, [oid("b")]),
        ("top", 2, []),
    ]
    assert ([level.pool for level in page.pools], page.more) == (["p"], True)
    assert missing == NotFound("pool", "topp", near=["top"])


def test_that_what_runs_of_a_suspended_operation_ends_is_kept_until_it_goes_on() -> None:
    desk = Desk({"p": {}})
    desk.started("a", pool="p")

    desk.suspend("a")
    softly = queries.live_operation(desk.replayed().state.operations[oid("a")], TREE)
    desk.suspend("a", abort_running_jobs=True)
    hard = queries.live_operation(desk.replayed().state.operations[oid("a")], TREE)
    desk.resume("a")

    assert (softly.suspended, softly.ends_running_jobs) == (True, False)
    assert (hard.suspended, hard.ends_running_jobs) == (True, True)
    assert not queries.live_operation(desk.state.operations[oid("a")], TREE).ends_running_jobs
