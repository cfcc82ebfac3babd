"""Preemption into which something else falls: its operations end, the node is drained or lost, or the victim was done anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace.ids import NodeName
from headrace.wire.heartbeat import (
    AllocationReport,
    AllocationState,
    JobEnd,
    JobResult,
    JobSlot,
    Start,
    TakeBack,
    TakeBackReason,
)
from headrace.wire.log import OperationStateChanged, StateCause
from headrace.wire.nodes import NodeRecord
from headrace.wire.operations import OperationState
from headrace_allocator.effects import Effect, Release, Report
from tests.support.allocating import Desk, an_operation, cores
from tests.unit.allocator.test_preemption import FOUR, Host, a_share, report, used


class Preempting(NamedTuple):
    """A node on which the newest job of `rich` makes room for one of `poor`, which waits there."""

    host: Host
    victim: TakeBack
    start: Start
    waiting: AllocationReport

    def picture(self) -> list[AllocationReport]:
        """What the node shows while the victim closes."""
        return [*self.host.picture(closing=[self.victim.allocation]), self.waiting]

    def slot(self) -> JobSlot:
        """The job of the victim."""
        return next(one.slots[0] for one in self.host.starts if one.allocation == self.victim.allocation)

    def end(self, result: JobResult) -> JobEnd:
        """The end of that job, without the record of what interrupted it."""
        slot = self.slot()
        return JobEnd(self.host.operation("rich").id, slot.index, slot.attempt, self.victim.allocation, result)


def preempting() -> Preempting:
    host = Host(an_operation("poor", jobs=1))
    host.next_beat()
    host.tell([a_share("rich", 2), a_share("poor", 1, starves=True)], total=FOUR)
    orders = host.next_beat()
    (victim,), (start,) = orders.take_back, orders.start
    waiting = msgspec.structs.replace(report(start, 5, AllocationState.WAITING), job=None, unstarted=list(start.slots))
    return Preempting(host, victim, start, waiting)


def abort(host: Host, operation: str) -> None:
    name = host.operation(operation).id
    host.learn(OperationStateChanged(name, OperationState.ABORTING, StateCause.ABORTED_BY_USER, "", 1))


def ends_told(effects: Sequence[Effect]) -> list[JobEnd]:
    return [one.end for effect in effects if isinstance(effect, Report) for one in effect.ends]


def test_a_node_that_is_lost_meanwhile_ends_the_victim_with_its_record_and_both_jobs_run_elsewhere() -> None:
    now = preempting()
    now.host.next_beat(allocations=now.picture())

    effects = [*now.host.tick(now.host.now_s + 100), *now.host.tick(now.host.now_s + 700)]

    lost = {end.allocation: end for end in ends_told(effects)}
    assert {end.result for end in lost.values()} == {JobResult.LOST}
    assert lost[now.victim.allocation].preemption == now.victim.preemption
    assert [end.preemption for end in lost.values()].count(None) == 4
    assert (used(now.host, "rich"), used(now.host, "poor")) == (0, 0)


def test_an_operation_that_is_aborted_while_its_victim_closes_is_released_when_all_have_gone() -> None:
    now = preempting()
    now.host.next_beat(allocations=now.picture())

    abort(now.host, "rich")
    orders = now.host.next_beat(allocations=now.picture())
    told = {one.allocation: one.reason for one in orders.take_back}
    ends = [JobEnd(one.operation, one.slots[0].index, 1, one.allocation, JobResult.ABORTED) for one in now.host.starts]
    _, effects = now.host.beat("n", allocations=[now.waiting], ends=ends)

    # The order by which the victim closes stands.
    others = {one.allocation for one in now.host.starts} - {now.victim.allocation}
    assert {name: told[name] for name in others} == dict.fromkeys(others, TakeBackReason.OPERATION_ENDED)
    assert {end.allocation for end in ends_told(effects)} == {one.allocation for one in now.host.starts}
    assert [one for one in [*effects, *now.host.tick(now.host.now_s)] if isinstance(one, Release)]


def test_whoever_the_room_is_for_may_be_aborted_and_the_victim_goes_nevertheless() -> None:
    now = preempting()
    now.host.next_beat(allocations=now.picture())

    abort(now.host, "poor")
    orders = now.host.next_beat(allocations=now.picture())
    after = now.host.next_beat(allocations=now.host.picture(closing=[now.victim.allocation]))

    assert [one.allocation for one in orders.take_back] == [now.start.allocation]
    # The room goes to whoever is next. That the victim closes was told, and stays so.
    assert [one.operation for one in after.start] == ["rich"]
    assert (used(now.host, "rich"), used(now.host, "poor")) == (4, 0)


def test_a_node_that_is_drained_meanwhile_gives_the_start_back_that_has_not_begun() -> None:
    now = preempting()
    now.host.next_beat(allocations=now.picture())

    now.host.engine.on_nodes({NodeName("n"): NodeRecord(NodeName("n"), drained=True)}, now.host.now)
    orders = now.host.next_beat(allocations=now.picture())
    ended = msgspec.structs.replace(now.waiting, state=AllocationState.ENDED)
    after = now.host.next_beat(allocations=[*now.picture()[:-1], ended])

    assert [(one.allocation, one.reason) for one in orders.take_back] == [
        (now.start.allocation, TakeBackReason.NODE_DRAINED)
    ]
    assert (after.start, used(now.host, "poor")) == ([], 0)
    assert now.host.operation("poor").slots.ready_count == 1


def test_a_victim_whose_job_was_done_before_the_signal_is_done_and_was_not_preempted() -> None:
    now = preempting()

    pictures = [one for one in now.picture() if one.id != now.victim.allocation]
    _, effects = now.host.beat("n", allocations=pictures, ends=[now.end(JobResult.COMPLETED)])

    (end,) = ends_told(effects)
    assert (end.result, end.preemption) == (JobResult.COMPLETED, None)
    assert now.host.engine.alarms.repeated == 0
    assert (used(now.host, "rich"), used(now.host, "poor")) == (3, 1)


def test_nobody_loses_a_place_for_room_that_stays_free_because_an_answer_is_full() -> None:
    """Six long commands would fill the free places, and their answer has room for four."""
    desk = Desk({"n": cores(7, slots=9), "elsewhere": cores(1, slots=9)})
    rich, poor = an_operation("rich", jobs=1), an_operation("poor", jobs=3)
    desk.beat("elsewhere", trouble="no log folder")
    desk.start(rich)
    (first,) = desk.beat("n")[0].start
    desk.start(rich, poor)
    desk.beat("elsewhere")
    commands = [an_operation(f"long-{number}", jobs=1) for number in range(6)]
    commands = [
        msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, argv=["x" * 120_000]))
        for each in commands
    ]
    desk.start(rich, poor, *commands)
    owed = [a_share(each.operation, 1) for each in commands]
    desk.tell([a_share("rich", 0), a_share("poor", 2, demand=20, starves=True), *owed])
    shown = [report(first, 1)]

    desk.now_s += 6
    full = desk.beat("n", allocations=shown)[0]
    rest = desk.beat("n", allocations=[*shown, *(report(one, 2) for one in full.start)])[0]

    assert (len(full.start), full.take_back) == (4, [])
    assert [one.operation for one in rest.start] == ["long-4", "long-5", "poor"]
    assert [one.allocation for one in rest.take_back] == [first.allocation]
