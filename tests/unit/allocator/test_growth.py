"""Nothing that the allocator does at one go, between two turns of the loop, grows with nodes or operations."""

from __future__ import annotations

import sys

import msgspec

from headrace.ids import NodeName, PoolName
from headrace.pools import TreeOptions
from headrace.pools.node_filter import matches
from headrace.resources import ZERO
from headrace.wire.heartbeat import AllocationReport, AllocationState, RunningJob, Start
from headrace.wire.nodes import NodeRecord
from headrace.wire.snapshots import PreemptionPriority, StarvationStatus
from headrace_allocator.facts.free_resources import FreeResources
from headrace_allocator.facts.pool_tree import ShareSnapshot
from headrace_allocator.facts.recovery import Recovery
from tests.support.allocating import Desk, a_share, an_operation, cores
from tests.support.work import lines_run

SLICE = 50
FEW, MANY = 1_000, 2_000


def of_nodes(count: int) -> Desk:
    desk = Desk({f"n{number}": cores(1) for number in range(count)})
    desk.engine.check = list  # type: ignore[method-assign]  # checking everything is no part of a heartbeat
    for name in desk.nodes:
        desk.beat(name)
    return desk


def test_the_last_slice_of_a_cut_costs_no_more_for_all_that_the_cut_tells() -> None:
    def last_slice(operations: int) -> int:
        desk = Desk({"n": cores(1)})
        desk.start(*(an_operation(f"operation-{number}") for number in range(operations)))
        for _ in range(operations // SLICE - 1):
            assert desk.engine.on_usage_due(SLICE, desk.now).answer is None
        return lines_run(lambda: desk.engine.on_usage_due(SLICE, desk.now))

    assert last_slice(MANY) < 1.1 * last_slice(FEW)


def test_options_that_leave_the_node_filter_as_it_was_cost_no_look_at_the_nodes() -> None:
    def same_options(nodes: int) -> int:
        desk = of_nodes(nodes)
        return lines_run(lambda: desk.engine.on_options(TreeOptions(), desk.now))

    assert same_options(MANY) == same_options(FEW)


def test_another_node_filter_judges_few_nodes_at_a_time_and_each_node_that_speaks() -> None:
    def other_filter(nodes: int) -> int:
        desk = of_nodes(nodes)
        # A formula is read once.
        assert not matches("ssd", [])
        asked = lines_run(lambda: desk.engine.on_options(TreeOptions(node_filter="ssd"), desk.now))
        assert desk.facts.total != ZERO
        return asked

    assert other_filter(MANY) == other_filter(FEW)
    desk = of_nodes(FEW)
    desk.engine.on_options(TreeOptions(node_filter="ssd"), desk.now)
    last = list(desk.nodes)[-1]
    assert not desk.node(last).outside
    desk.beat(last)
    assert desk.node(last).outside
    desk.refresh()
    assert desk.facts.total == ZERO


def test_what_is_used_of_all_nodes_is_checked_without_a_look_at_each() -> None:
    def check(nodes: int) -> int:
        desk = of_nodes(nodes)
        assert desk.facts.rooms.online() == desk.facts.total
        return sum(lines_run(check) for check in desk.facts.checks() if "used" in getattr(check, "__name__", ""))

    assert 0 < check(MANY) == check(FEW)


def test_the_word_of_a_node_is_not_held_against_all_that_were_lost() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == str(other)

    recovery = Recovery()
    lost = [NodeName(Name(f"n{number}")) for number in range(FEW)]
    recovery.begin(lost)
    for name in lost:
        recovery.settle(name, lost=True)
    compared = 0
    recovery.settle(NodeName("stranger"), lost=False)
    recovery.settle(NodeName(f"n{FEW - 1}"), lost=False)
    assert compared < 10
    assert list(recovery.lost_nodes) == lost[:-1]


def test_who_looks_for_room_enters_only_what_changed_of_late() -> None:
    def look(nodes: int) -> int:
        desk, rooms = of_nodes(nodes), FreeResources()
        for node in desk.facts.nodes.values():
            rooms.note(node)
        return lines_run(lambda: list(rooms.fitting(cores(2))))

    assert look(MANY) < 1.2 * look(FEW)


def test_whoever_waits_for_a_busy_node_with_tags_costs_no_look_at_each_free_node_without() -> None:
    def news_of_waiting(nodes: int) -> int:
        desk = of_nodes(nodes)
        names = [f"waits-{number}" for number in range(SLICE)]
        desk.engine.on_nodes({NodeName("tagged"): NodeRecord(NodeName("tagged"), tags=["gpu"])}, desk.now)
        desk.nodes["tagged"], desk.seq["tagged"], desk.applied["tagged"] = cores(0.5), 0, 0
        desk.beat("tagged")
        tagged = [an_operation(name) for name in names]
        spec = msgspec.structs.replace(tagged[0].spec, scheduling_tag_filter="gpu")
        desk.engine.on_operations([msgspec.structs.replace(each, spec=spec) for each in tagged], desk.now)
        desk.refresh()
        items = {each.key: each for each in (a_share(name, 0.01) for name in names)}
        total = cores(nodes, slots=nodes)
        desk.engine.on_shares(ShareSnapshot(items, items.keys(), total=total, options=desk.options), desk.now)
        return lines_run(lambda: desk.engine.on_refresh_due(SLICE, desk.now))

    assert news_of_waiting(MANY) < 1.1 * news_of_waiting(FEW)


def test_whether_some_node_could_run_a_job_is_known_without_a_look_at_all_tags_and_sizes_of_nodes() -> None:
    """Each node has a tag and a size of its own. Another one that changes makes everything that was known of them doubtful."""

    def another_size(nodes: int) -> int:
        desk = Desk({"other": cores(1)} | {f"n{number}": cores(1) for number in range(nodes)})
        desk.engine.check = list  # type: ignore[method-assign]  # checking everything is no part of a heartbeat
        for number, name in enumerate(desk.nodes):
            record = NodeRecord(NodeName(name), tags=[f"host-{number}", "ssd"])
            desk.engine.on_nodes({record.node: record}, desk.now)
            desk.nodes[name] = cores(1 + number / 100)
            desk.beat(name)
        lives = [an_operation(f"operation-{number}", size=cores(number + 10_000)) for number in range(SLICE)]
        spec = msgspec.structs.replace(lives[0].spec, scheduling_tag_filter="ssd & !host-7")
        desk.start(*(msgspec.structs.replace(each, spec=spec) for each in lives))
        desk.nodes["other"] = cores(0.5)

        def change() -> None:
            desk.beat("other")
            desk.engine.on_refresh_due(SLICE, desk.now)

        return lines_run(change)

    assert another_size(MANY) < 1.1 * another_size(FEW)


def test_shares_that_changed_cost_the_heartbeats_after_them_nothing() -> None:
    names = [f"operation-{number}" for number in range(10)]
    desk = Desk({"n": cores(20, slots=20)})
    desk.start(*(an_operation(name) for name in names), an_operation("large", size=cores(30)))

    def tell(share: float) -> None:
        starving = msgspec.structs.replace(
            a_share("large", 1.0, demand=2.0),
            starvation_status=StarvationStatus.STARVING,
            preemption_priority=PreemptionPriority.NORMAL,
        )
        desk.tell([*(a_share(name, share) for name in names), starving], total=desk.nodes["n"])

    def running(start: Start) -> AllocationReport:
        job = RunningJob(start.slots[0].index, start.slots[0].attempt, 1, 10)
        return AllocationReport(start.allocation, start.operation, AllocationState.RUNNING, start.resources, job)

    def next_beat() -> None:
        # The pause between preemptive stages is over.
        desk.now_s += 10
        orders, _ = desk.beat("n", allocations=picture)
        assert not orders.start
        assert not orders.take_back
        assert desk.node("n").tries[PreemptionPriority.NORMAL].candidates == 10

    tell(1 / 20)
    picture = [running(start) for start in desk.beat("n")[0].start]
    assert len(picture) == 20
    desk.engine.check = list  # type: ignore[method-assign]  # checking everything is no part of a heartbeat
    next_beat()
    before = lines_run(next_beat)
    tell(1 / 25)
    assert lines_run(next_beat) < 1.1 * before


def test_the_next_pool_to_be_placed_is_not_looked_for_among_the_places_of_all_that_were() -> None:
    desk = Desk({"n": cores(1)})
    lives = [an_operation(f"operation-{number}") for number in range(500)]
    # All pools got their place at once, and no line of Python tells how long the next one is looked for.
    desk.start(
        *(
            msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, pool=PoolName(f"pool-{number}")))
            for number, live in enumerate(lives)
        )
    )
    desk.engine.ranking.mark_all()
    desk.refresh()
    assert len(desk.engine.ranking.order.pools()) > 500
    assert sys.getsizeof(desk.engine.ranking.order._stale) == sys.getsizeof(set())
