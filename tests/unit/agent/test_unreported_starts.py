"""What an agent hands back of how an allocation started: with the end of each job, and to an allocator that is new."""

from __future__ import annotations

import msgspec

from headrace.wire.heartbeat import MOST_STARTS_PER_HEARTBEAT, JobEnd, JobResult, Start
from headrace.wire.start_stages import StartRecord, StartStage
from headrace_agent.runner.protocol import Run, RunAhead
from tests.support.agent_desk import Desk, end_of, job, kept, start

RECORD = StartRecord(StartStage.PREEMPTIVE_NORMAL, (0.1, 0.125, 0.0, 0.0, 0.0), (0.2, 0.5, 0.0, 0.0, 0.0), 2)


def a_start(allocation: str, indexes: list[int]) -> Start:
    return msgspec.structs.replace(start(allocation, indexes), record=RECORD)


def test_the_runner_is_told_of_the_start_with_each_job_of_the_allocation() -> None:
    desk = Desk(picture=False)
    desk.picture(runs_ahead=True)
    desk.enrolled()

    desk.turn(a_start("a", [0, 1]), start("b", [2]))

    runs = [*desk.told(Run), *(order.run for order in desk.told(RunAhead))]
    assert {run.job.index: run.start for run in runs} == {0: RECORD, 1: RECORD, 2: None}


def test_an_end_that_the_runner_told_without_the_start_has_it() -> None:
    desk = Desk()
    desk.turn(a_start("a", [0, 1]), start("b", [2]))

    for index, allocation in ((0, "a"), (1, "a"), (2, "b")):
        desk.ended(end_of(job(index), allocation))

    assert [end.start for end in desk.turn().ends] == [RECORD, RECORD, None]


def test_after_a_restart_the_end_has_the_start_whether_it_ran_on_ended_meanwhile_or_was_lost() -> None:
    former = Desk()
    former.turn(a_start("a", [0]), a_start("b", [1]), a_start("c", [2]))
    ended = msgspec.structs.replace(end_of(job(1), "b"), start=RECORD)

    desk = Desk(incarnation="life-2", picture=False)
    desk.picture([kept(former, job(0)), kept(former, job(2))], [ended])
    desk.ended(end_of(job(0), "a"))
    desk.picture([], [ended, end_of(job(0), "a")], pid=78)
    desk.enrolled()

    ends = {end.index: end for end in desk.turn().ends}
    assert {index: end.start for index, end in ends.items()} == {0: RECORD, 1: RECORD, 2: RECORD}
    assert ends[2].result is JobResult.LOST


def test_a_new_allocator_is_told_of_all_starts_some_at_a_time_until_it_has_answered_them() -> None:
    desk, count = Desk(cpu=100_000), MOST_STARTS_PER_HEARTBEAT + 2
    names = [f"a{number}" for number in range(count)]
    desk.turn(*(a_start(name, [number]) for number, name in enumerate(names)), start("older", [count]))
    assert desk.turn().starts == {}, "the allocator that gave them knows them"

    desk.term = 2
    told = [desk.turn()]
    desk.lose()
    told += [desk.next_beat(), desk.turn(), desk.turn()]

    some, rest = dict.fromkeys(names[:-2], RECORD), dict.fromkeys(names[-2:], RECORD)
    assert [beat.starts for beat in told] == [some, some, rest, {}]


def test_an_allocator_that_does_not_know_the_node_yet_is_told_of_all_starts_once_it_does() -> None:
    desk = Desk()
    desk.turn(a_start("a", [0]))
    desk.term = 2

    told = []
    for enrolled in (False, False, True):
        desk.next_beat()
        desk.answer(enrolled=enrolled)
        desk.enrolled()
        told.append(desk.next_beat().starts)

    assert told == [{"a": RECORD}, {"a": RECORD}, {}]


def test_an_end_that_was_kept_by_a_former_version_is_read_and_says_nothing_of_its_start() -> None:
    fields = {name: getattr(end_of(job(0)), name) for name in JobEnd.__struct_fields__ if name != "start"}

    read = msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=JobEnd)

    assert read == end_of(job(0))
    assert read.start is None
