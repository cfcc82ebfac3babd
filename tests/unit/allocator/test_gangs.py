"""Gangs: their jobs start together or not at all, and go together when one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headrace.ids import ROOT_POOL, AllocationId, NodeName, OperationId, PoolName
from headrace.pools.amounts import PartialResources
from headrace.pools.effective_options import EffectiveOptions
from headrace.pools.tree_options import AllocationOptions
from headrace.resources import ZERO, Resources
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    JobEnd,
    JobResult,
    NodeState,
    Orders,
    Retry,
    RunningJob,
    TakeBackReason,
)
from headrace.wire.ledger import LiveOperation
from headrace.wire.log import JobsEnded, JobsRetried, LoggedEnd, OperationStateChanged, StateCause
from headrace.wire.operations import OperationState
from headrace.wire.snapshots import ElementKind, ShareItem
from headrace_allocator.effects import Effect, NudgeNode
from headrace_allocator.gangs.gang import GangPhase
from tests.support.allocating import TERM, Desk, an_operation, cores
from tests.support.clocks import at
from tests.support.work import lines_run
from tests.unit.allocator.test_preemption import a_share

GANG = OperationId("gang")


def a_gang(name: str, jobs: int, size: Resources | None = None, **changes: Any) -> LiveOperation:
    live = an_operation(name, jobs, size, **changes)
    return msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, is_gang=True))


class Fleet(Desk):
    """Nodes that obey: each shows what it was told to start until that is taken back or ends."""

    def __init__(self, nodes: dict[str, Resources], **timing: Any) -> None:
        super().__init__(nodes, **timing)
        self.shown: dict[str, dict[AllocationId, AllocationReport]] = {name: {} for name in nodes}
        for name in nodes:
            self.say(name)

    def say(self, node: str, *, obeys: bool = True, ends: Sequence[JobEnd] = (), **changes: Any) -> Orders:
        """A heartbeat with all that runs on the node. The orders in its answer are obeyed, or lost."""
        orders, effects = self.beat(
            node, term=TERM, allocations=[*self.shown[node].values()], ends=list(ends), **changes
        )
        self.effects: Sequence[Effect] = effects
        if obeys:
            for start in orders.start:
                job = RunningJob(start.slots[0].index, start.slots[0].attempt, 1, 1)
                report = AllocationReport(
                    start.allocation, start.operation, AllocationState.RUNNING, start.resources, job
                )
                self.shown[node][start.allocation] = report
        return orders

    def say_all(self) -> dict[str, Orders]:
        return {node: self.say(node) for node in self.nodes}

    def gather(self) -> None:
        """Every node speaks: room is held on it, and it is told of nothing."""
        for node, orders in self.say_all().items():
            assert not orders.start, node

    def runs(self, operation: str = GANG) -> int:
        return sum(one.operation == operation for there in self.shown.values() for one in there.values())

    def end(self, node: str, result: JobResult, operation: str = GANG) -> JobEnd:
        """A job of the operation on the node is over. It is not shown any more."""
        name = next(name for name, one in self.shown[node].items() if one.operation == operation)
        job = self.shown[node].pop(name).job
        assert job is not None
        return JobEnd(OperationId(operation), job.index, job.attempt, name, result)

    def recorded(self, end: JobEnd, node: str) -> JobsEnded:
        """The ledger's word on it: what did not complete runs again."""
        retry = None if end.result is JobResult.COMPLETED else Retry(end.index, end.attempt + 1)
        return JobsEnded(end.operation, [LoggedEnd(end, NodeName(node), retry)], at_ms=1)

    def phase(self, operation: str = GANG) -> GangPhase:
        gang = self.operation(operation).gang
        assert gang is not None
        return gang.phase


def three_nodes(**timing: Any) -> Fleet:
    return Fleet({name: cores(2, slots=9) for name in ("a", "b", "c")}, **timing)


FILLER = an_operation("filler", 1)


def with_one_job(**timing: Any) -> Fleet:
    """A job runs on one of three nodes, so that five of six places are free."""
    fleet = three_nodes(**timing)
    fleet.start(FILLER)
    fleet.say("a")
    fleet.say("a")
    return fleet


def a_running_gang(jobs: int = 5) -> Fleet:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, jobs))
    fleet.gather()
    fleet.say_all()
    fleet.say_all()
    assert (fleet.phase(), fleet.runs()) == (GangPhase.RUNNING, jobs)
    return fleet


def test_no_job_starts_before_all_have_a_place_and_then_all_do_in_one_round() -> None:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 5))
    fleet.gather()
    assert [effect for effect in fleet.effects if isinstance(effect, NudgeNode)] == [
        NudgeNode(NodeName(n)) for n in "abc"
    ]

    starts = {node: len(orders.start) for node, orders in fleet.say_all().items()}

    assert starts == {"a": 2, "b": 2, "c": 1}
    assert all(len(start.slots) == 1 for start in fleet.say_all()["a"].start)


def test_nodes_that_are_to_wait_long_between_heartbeats_show_a_gang_before_it_is_given_up() -> None:
    """Each was to come within its pace, and a gang that not all have shown in time is taken back: none ever started."""
    fleet = three_nodes(heartbeats_per_s=1)
    for _ in range(20):
        fleet.engine.pace.on_load(1_000.0, at(fleet.now_s))
    fleet.start(a_gang(GANG, 5))
    fleet.gather()

    due = [(fleet.now_s + orders.next_heartbeat_ms / 1000, node) for node, orders in fleet.say_all().items()]
    for due_s, node in sorted(due):
        fleet.now_s = due_s
        fleet.tick(due_s)
        fleet.say(node)

    assert (fleet.phase(), fleet.runs()) == (GangPhase.RUNNING, 5)


def test_a_gang_for_which_there_is_too_little_room_starts_nothing_and_tells_what_is_held() -> None:
    fleet = with_one_job(gang_hold_s=30)
    fleet.start(FILLER, a_gang(GANG, 6))
    fleet.gather()
    fleet.start(FILLER, a_gang(GANG, 6), an_operation("other", 9))

    assert (
        fleet.reasons(GANG)[0]
        == "a gang of 6 jobs: resources for 5 of them on 3 nodes are held for 30 s more; they start when all have resources"
    )
    fleet.now_s += 31
    fleet.tick(fleet.now_s)
    assert fleet.reasons(GANG)[0] == (
        "a gang of 6 jobs: not all got resources in time; other operations may use them, and the gang tries again in 5 s"
    )
    fleet.say_all()
    assert (fleet.runs(), fleet.runs("other")) == (0, 5)


def test_each_pause_is_twice_as_long_and_ends() -> None:
    fleet = with_one_job(gang_hold_s=30)
    fleet.start(FILLER, a_gang(GANG, 6))
    pauses = []
    for _ in range(3):
        fleet.gather()
        fleet.now_s += 30
        fleet.tick(fleet.now_s)
        began_s = fleet.now_s
        while fleet.phase() is GangPhase.PAUSED:
            fleet.now_s += 1
            fleet.tick(fleet.now_s)
        pauses.append(fleet.now_s - began_s)

    assert pauses == [5, 10, 20]


def test_of_two_gangs_of_which_one_fits_one_gathers_and_the_other_waits_for_its_turn() -> None:
    """Were room held for both, neither would ever start."""
    fleet = three_nodes(gang_hold_s=30)
    fleet.start(a_gang("first", 4), a_gang("second", 4))
    fleet.gather()

    assert fleet.phase("first") is GangPhase.STARTING
    assert fleet.phase("second") in (GangPhase.WAITING, GangPhase.GATHERING)
    fleet.say_all()
    fleet.say_all()
    assert (fleet.runs("first"), fleet.runs("second")) == (4, 0)


def test_a_gang_that_does_not_fit_now_holds_up_another_no_longer_than_its_turn() -> None:
    fleet = with_one_job(gang_hold_s=30)
    fleet.start(FILLER, a_gang("large", 6), a_gang("small", 4))
    fleet.gather()
    assert "resources are held for another gang, large" in fleet.reasons("small")[0]
    fleet.now_s += 30
    fleet.tick(fleet.now_s)

    fleet.gather()
    fleet.say_all()

    assert (fleet.runs("large"), fleet.runs("small")) == (0, 4)


def in_pool(pool: str, live: LiveOperation) -> LiveOperation:
    return msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, pool=PoolName(pool)))


def test_however_many_gangs_of_a_pool_find_no_room_one_of_another_pool_has_the_next_turn() -> None:
    """All pools are owed as much at the end of a turn in vain, and the first of them by name had each turn."""
    fleet = with_one_job(gang_hold_s=30)
    many = [in_pool(pool, a_gang(f"{pool}-{number}", 6)) for pool in ("p", "q") for number in range(4)]
    small = in_pool("r", a_gang("small", 4))
    fleet.start(FILLER, *many, small)
    gathered = []
    for _ in range(2):
        fleet.gather()
        gathered.append(fleet.facts.gangs.gathering)
        fleet.now_s += 30
        fleet.tick(fleet.now_s)
        fleet.refresh()
    assert gathered == ["p-0", "q-0"]
    assert fleet.reasons("p-1")[0] == (
        "a gang of 6 jobs: resources were held in vain for a gang of its pool, so gangs of other pools go first for 5 s"
    )

    fleet.gather()
    fleet.say_all()

    assert fleet.runs("small") == 4
    fleet.now_s += 5
    fleet.tick(fleet.now_s)
    assert fleet.phase("p-1") is GangPhase.WAITING


NEVER = "a gang of 7 jobs that cannot start, even if all other jobs end: "


def test_for_a_gang_of_more_jobs_than_all_nodes_have_room_for_no_room_is_held() -> None:
    fleet = three_nodes()
    fleet.start(a_gang("large", 7), a_gang("small", 4))

    fleet.gather()
    fleet.say_all()

    assert fleet.reasons("large") == [f"{NEVER}all nodes that take its jobs together have resources for 6 of its jobs"]
    assert (fleet.phase("large"), fleet.runs("small")) == (GangPhase.WAITING, 4)
    wanted = {item.operation: item.pending for item in fleet.cut_usage().items}
    assert wanted[OperationId("large")] == ZERO, "what nobody can run is no demand"


def test_a_gang_that_never_fitted_starts_once_a_node_more_takes_its_jobs_and_waits_again_without_it() -> None:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 7))
    fleet.nodes["a"] = cores(3, slots=9)
    fleet.say("a")
    fleet.refresh()
    assert (
        fleet.reasons(GANG)[0]
        == "a gang of 7 jobs: no resources are held for it yet; they are, job by job, once it comes first for free resources"
    )

    fleet.say("a", state=NodeState.DRAINING)
    fleet.refresh()
    assert fleet.reasons(GANG)[0] == f"{NEVER}all nodes that take its jobs together have resources for 4 of its jobs"
    fleet.say("a")
    fleet.refresh()
    fleet.gather()
    fleet.say_all()
    assert fleet.runs() == 7


def test_room_that_is_held_is_let_go_of_once_there_can_never_be_enough() -> None:
    fleet = with_one_job()
    fleet.start(FILLER, a_gang(GANG, 6))
    fleet.gather()
    assert fleet.phase() is GangPhase.GATHERING

    fleet.say("c", state=NodeState.DRAINING)
    fleet.refresh()

    assert fleet.phase() is GangPhase.WAITING
    assert fleet.facts.used == cores(1)


def test_nothing_starts_in_less_room_than_the_tree_spares_so_that_fewer_jobs_of_a_gang_fit() -> None:
    fleet = three_nodes()
    fleet.options = AllocationOptions(min_spare_allocation_resources_on_node=PartialResources(cpu=100))
    fleet.tell([])
    fleet.start(a_gang("fits", 9, cores(0.5)), a_gang("large", 10, cores(0.5)))

    fleet.gather()
    fleet.say_all()

    assert fleet.reasons("large")[0].endswith("have resources for 9 of its jobs")
    assert fleet.runs("fits") == 9


@pytest.mark.parametrize(("tolerance", "most"), [(0, 5), (100, 6)])
def test_a_limit_that_leaves_no_room_for_all_jobs_of_a_gang_is_named(tolerance: int, most: int) -> None:
    fleet = Fleet({name: cores(9, slots=9) for name in "ab"})
    options = EffectiveOptions(resource_limits_overcommit_tolerance=PartialResources(cpu=tolerance))
    pool = ShareItem(ElementKind.POOL, "p", ROOT_POOL, limits=PartialResources(cpu=500), options=options)
    fleet.tell([pool])
    own = a_gang("own", 7)
    own = msgspec.structs.replace(
        own, spec=msgspec.structs.replace(own.spec, pool="q", resource_limits=PartialResources(cpu=300))
    )
    fleet.start(a_gang("large", 7), own, a_gang("small", 4))
    fleet.gather()
    fleet.say_all()

    assert fleet.reasons("large")[0] == f"{NEVER}resource_limits of pool p allow {most} of its jobs"
    assert fleet.reasons("own")[0] == f"{NEVER}the operation's own resource_limits allow 3 of its jobs"
    assert fleet.runs("small") == 4

    fleet.tell([msgspec.structs.replace(pool, limits=PartialResources(cpu=1_100))])
    assert NEVER not in fleet.reasons("large")[0]


@pytest.mark.parametrize("result", [JobResult.FAILED, JobResult.ABORTED, JobResult.LOST])
def test_when_a_job_does_not_complete_all_others_are_taken_back_and_start_anew_together(result: JobResult) -> None:
    fleet = a_running_gang()
    end = fleet.end("a", result)
    orders = fleet.say("a", ends=[end])
    nudged = {effect.node for effect in fleet.effects if isinstance(effect, NudgeNode)}

    assert [one.reason for one in orders.take_back] == [TakeBackReason.GANG]
    assert nudged == {"a", "b", "c"}
    ends = [(end, "a")]
    for node in "abc":
        fleet.say(node)
        gone = [fleet.end(node, JobResult.ABORTED) for _ in list(fleet.shown[node])]
        assert not fleet.say(node, ends=[end, *gone] if node == "a" else gone).start
        ends += [(each, node) for each in gone]
    for each, node in ends[:-1]:
        fleet.learn(fleet.recorded(each, node))
    fleet.gather()
    assert fleet.phase() is GangPhase.WAITING
    fleet.learn(fleet.recorded(*ends[-1]))

    fleet.gather()
    starts = [start for orders in fleet.say_all().values() for start in orders.start]
    assert sorted(start.slots[0].index for start in starts) == [0, 1, 2, 3, 4]
    assert {start.slots[0].attempt for start in starts} == {2}


def test_jobs_that_completed_do_not_run_again_and_the_others_go_on() -> None:
    fleet = a_running_gang()
    end = fleet.end("a", JobResult.COMPLETED)
    assert not fleet.say("a", ends=[end]).take_back
    fleet.learn(fleet.recorded(end, "a"))
    assert fleet.phase() is GangPhase.RUNNING
    failed = fleet.end("b", JobResult.FAILED)
    fleet.say("b", ends=[failed])

    assert [len(orders.take_back) for orders in fleet.say_all().values()] == [1, 1, 1]


def test_an_answer_that_was_lost_is_told_again_with_the_same_allocations() -> None:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 5))
    fleet.gather()
    lost = fleet.say("a", obeys=False)
    again = fleet.say("a", obeyed=False)

    assert {one.allocation for one in again.start} == {one.allocation for one in lost.start}
    fleet.say("b"), fleet.say("c")
    fleet.say_all()
    assert (fleet.phase(), fleet.runs()) == (GangPhase.RUNNING, 5)


def test_a_node_that_takes_no_jobs_any_more_lets_go_of_what_is_held_there() -> None:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 6))
    fleet.say("a"), fleet.say("b")
    assert fleet.facts.used == cores(4, slots=4)

    fleet.say("a", state=NodeState.DRAINING)

    assert (fleet.facts.used, fleet.operation(GANG).slots.ready_count) == (cores(2, slots=2), 4)
    assert not fleet.say("c").start


def test_jobs_that_are_not_shown_in_time_take_the_others_back() -> None:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 5))
    fleet.gather()
    fleet.say("a"), fleet.say("b")
    for _ in range(2):
        fleet.now_s += 6
        fleet.tick(fleet.now_s)

    assert fleet.phase() is GangPhase.BREAKING
    assert [one.reason for one in fleet.say("b").take_back] == [TakeBackReason.GANG] * 2
    assert not fleet.say("c").start


def test_no_node_is_told_before_each_was_heard_of_late() -> None:
    fleet = three_nodes(gang_hold_s=300)
    fleet.start(a_gang(GANG, 5))
    fleet.say("a"), fleet.say("b")
    fleet.now_s += 20
    fleet.say("c")
    assert fleet.phase() is GangPhase.GATHERING
    assert [effect.node for effect in fleet.effects if isinstance(effect, NudgeNode)] == ["a", "b"]

    assert not fleet.say("a").start
    assert len(fleet.say("b").start) == 2
    assert (len(fleet.say("a").start), len(fleet.say("c").start)) == (2, 1)


def test_room_that_is_held_is_let_go_when_the_operation_ends() -> None:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 7))
    fleet.gather()
    fleet.learn(OperationStateChanged(GANG, OperationState.ABORTING, StateCause.ABORTED_BY_USER, "", at_ms=1))

    assert fleet.facts.used == cores(0, slots=0)
    assert fleet.facts.gangs.gathering is None


def test_a_gang_of_one_job_is_none() -> None:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 1))

    assert fleet.operation(GANG).gang is None
    assert len(fleet.say("a").start) == 1


def test_a_heartbeat_costs_no_more_for_gangs_that_wait_for_their_turn() -> None:
    def heartbeat(gangs: int) -> int:
        fleet = Fleet({"a": cores(9, slots=9), "b": cores(9, slots=9)})
        fleet.start(
            a_gang("large", 40), *(a_gang(f"gang-{number:04}", 50) for number in range(gangs)), an_operation("x")
        )
        fleet.say("a"), fleet.say("b")
        fleet.engine.check = list  # type: ignore[method-assign]  # checking everything is no part of a heartbeat
        fleet.nodes["a"] = cores(10, slots=10)
        return lines_run(lambda: fleet.say("a"))

    assert heartbeat(400) <= heartbeat(200) + 40


def test_a_gang_of_which_a_job_waits_to_be_tried_again_starts_with_it_and_not_before() -> None:
    """By the ledger's word at the start: the job is among those that are done until then."""
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 3, done=b"\1", pausing=1))
    fleet.gather()
    assert fleet.phase() is GangPhase.WAITING
    fleet.learn(JobsRetried(GANG, [Retry(0, 2)], at_ms=2))

    fleet.gather()

    assert sum(len(orders.start) for orders in fleet.say_all().values()) == 3


def test_when_a_job_is_preempted_all_others_are_taken_back_before_it_is_gone() -> None:
    fleet = Fleet({name: cores(2, slots=2) for name in "ab"})
    fleet.start(a_gang(GANG, 4))
    fleet.gather()
    fleet.say_all()
    fleet.say_all()
    fleet.start(a_gang(GANG, 4), an_operation("poor", 2))
    fleet.tell([a_share(GANG, 2), a_share("poor", 2, starves=True)])
    fleet.now_s += 20

    # The newest are on node b.
    first = fleet.say("b")
    nudged = {effect.node for effect in fleet.effects if isinstance(effect, NudgeNode)}

    assert [one.reason for one in first.take_back] == [TakeBackReason.PREEMPTED]
    assert nudged == {"a", "b"}
    assert [one.reason for one in fleet.say("a").take_back] == [TakeBackReason.GANG] * 2


def test_room_that_is_held_is_let_go_when_the_operation_is_over() -> None:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 7))
    fleet.gather()
    fleet.start()

    assert fleet.facts.used == cores(0, slots=0)
    fleet.gather()


def test_each_job_of_a_gang_has_a_place_of_its_own_however_short_its_jobs_are() -> None:
    fleet = three_nodes()
    fleet.start(a_gang(GANG, 6))
    fleet.operation(GANG).note_length(1)
    fleet.gather()

    assert sum(len(orders.start) for orders in fleet.say_all().values()) == 6
