"""The history of one operation, read page by page from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from headrace.bus import Log
from headrace.ids import AllocationId, NodeName
from headrace.wire import ledger, subjects
from headrace.wire import operations as wire
from headrace.wire.happenings import GetOperationHistory, JobEnded, OperationHistory, OperationStep, happenings_of
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot
from headrace.wire.log import JobsEnded, LoggedEnd
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace.wire.refusals import NotFound
from headrace.wire.start_stages import StartRecord, StartStage
from headrace_admission.log import history_pages as log_pages
from headrace_admission.log.byte_budget import encode_event
from headrace_admission.log.history_pages import history_page
from headrace_admission.log.recorder import encode_batch
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer
from tests.unit.admission.desk import TREE, Desk, oid

RECORD = PreemptionRecord(PreemptionReason.PREEMPTION, oid("short"), share_before=(0.5,) * 5, share_after=(0.25,) * 5)


START = StartRecord(StartStage.PREEMPTIVE_NORMAL, (0.25,) * 5, (0.5,) * 5, 1)


def a_desk() -> Desk:
    """Two operations, of which one loses a job to the other and then goes on; both have entries of the log in turn."""
    desk = Desk()
    desk.started("early", job_count=9)
    desk.started("other", job_count=9)
    for attempt in (1, 2, 3):
        for name in ("early", "other"):
            report(desk, name, attempt, RECORD if name == "early" and attempt == 2 else None)
    return desk


def report(
    desk: Desk,
    name: str,
    attempt: int,
    record: PreemptionRecord | None,
    start: StartRecord | None = None,
    **fields: Any,
) -> None:
    aborted = JobEnd(oid(name), 0, attempt, AllocationId("1-1"), JobResult.ABORTED, ended_at_ms=attempt)
    end = replace(aborted, preemption=record, start=start, **fields)
    ends = [ledger.ReportedEnd(NodeName("alpha"), end)]
    desk.record(desk.engine.on_report(ledger.ReportEnds(TREE, 1, ends), desk._tick()).effects)


def read(
    desk: Desk, name: str = "early", *, after: int = 0, forget: int = 0, jobs: Sequence[int] = ()
) -> list[OperationHistory | NotFound]:
    """All pages, of a log that holds what the desk recorded and has forgotten the first entries of it."""

    async def course(loop: VirtualLoop) -> list[OperationHistory | NotFound]:
        async with connect_to(SimulatedServer(loop), "admission") as bus:
            log: Log = await bus.log(subjects.STREAM, subjects.LOG)
            for last, events in enumerate(desk.entries):
                entry = encode_batch(1, [encode_event(event) for event in events], "admission-1", last)
                await log.append(entry, expected_last=last, timeout_s=5.0)
            await log.forget(forget)
            request, pages = GetOperationHistory(oid(name), after, list(jobs)), []
            while True:
                page = await history_page(log, desk.state, request)
                pages.append(page)
                if isinstance(page, NotFound) or page.next is None:
                    return pages
                request = GetOperationHistory(oid(name), page.next, request.jobs)

    return run_virtually(1, course)


def told(pages: list[OperationHistory | NotFound]) -> list[object]:
    return [each for page in pages if isinstance(page, OperationHistory) for each in page.happenings]


def test_the_history_has_what_the_log_says_of_that_operation_with_the_proof_of_its_preemption() -> None:
    pages = read(a_desk())

    steps, ends = told(pages)[:1], told(pages)[1:]
    assert [type(each) for each in told(pages)] == [OperationStep, JobEnded, JobEnded, JobEnded]
    assert isinstance(steps[0], OperationStep)
    assert (steps[0].state, steps[0].user) == (wire.OperationState.RUNNING, "anna")
    assert [(end.slot.attempt, end.runs_again, end.preemption) for end in ends if isinstance(end, JobEnded)] == [
        (1, True, None),
        (2, True, RECORD),
        (3, True, None),
    ]


def test_each_run_says_how_it_started_and_nothing_where_the_log_does_not_have_it() -> None:
    desk = Desk()
    desk.started("early", job_count=9)
    report(desk, "early", 1, None, START)
    report(desk, "early", 2, None)

    ends = [each for each in told(read(desk)) if isinstance(each, JobEnded)]

    figures = (START.stage, START.share_before, START.fair_share, START.places_taken)
    assert [(end.stage, end.share_before, end.fair_share, end.places_taken) for end in ends] == [figures, (None,) * 4]


def test_each_run_has_what_it_used_and_nothing_if_that_was_not_measured() -> None:
    desk = Desk()
    desk.started("early", job_count=9)
    report(desk, "early", 1, None, cpu_ms=1_500, max_rss_bytes=2**30, from_cgroup=True)
    report(desk, "early", 2, None)

    ends = [each for each in told(read(desk)) if isinstance(each, JobEnded)]

    figures = [(end.cpu_ms, end.max_rss_bytes, end.from_cgroup) for end in ends]
    assert figures == [(1_500, 2**30, True), (None, None, False)]


def test_a_history_of_some_jobs_has_only_their_ends() -> None:
    desk = a_desk()
    report(desk, "early", 1, None, index=7)
    report(desk, "early", 1, None, index=8)

    ends = told(read(desk, jobs=[7, 0]))

    assert [each.slot for each in ends if isinstance(each, JobEnded)] == [
        *(JobSlot(0, n) for n in (1, 2, 3)),
        JobSlot(7),
    ]
    assert len(ends) == 4


def test_an_entry_of_a_former_version_is_read() -> None:
    desk = Desk()
    desk.started("early", job_count=9)
    report(desk, "early", 1, None)
    (event,) = [each for each in desk.entries[-1] if isinstance(each, JobsEnded)]
    fields = msgspec.to_builtins(replace(event, ends=[]))
    (logged,) = event.ends
    end = {name: getattr(logged.end, name) for name in JobEnd.__struct_fields__ if name != "start"}
    data = msgspec.msgpack.encode({**fields, "ends": [{"end": end, "node": logged.node, "retry": [0, 2]}]})

    (read_end,) = happenings_of(msgspec.msgpack.decode(data, type=JobsEnded))

    assert isinstance(read_end, JobEnded)
    assert (read_end.slot, read_end.runs_again, read_end.stage, read_end.share_before) == (JobSlot(0), True, None, None)


def test_an_end_in_the_log_takes_hardly_more_room_than_before_it_told_how_it_started() -> None:
    """One of a job that ended well, in a place that took slots, cores and memory."""
    share = (0.046875, 0.046875, 0, 0.046875, 0)
    end = JobEnd(oid("early"), 123, 1, AllocationId("19b0c5-2a4"), JobResult.COMPLETED, 0)
    timed = replace(end, started_at_ms=2**40, ended_at_ms=2**40 + 1, cpu_ms=15, max_rss_bytes=2**23)
    start = StartRecord(StartStage.REGULAR_MEDIUM_PRIORITY, share, share)
    former = {name: getattr(timed, name) for name in JobEnd.__struct_fields__ if name != "start"}
    before = {"end": former, "node": "alpha", "retry": None, "retry_at_ms": 0}

    now = LoggedEnd(replace(timed, start=start), NodeName("alpha"))

    assert len(msgspec.msgpack.encode(now)) <= len(msgspec.msgpack.encode(before)) + 5


@pytest.mark.parametrize(("bytes_of_page", "most_entries"), [(1, 5_000), (128 * 1024, 2)])
def test_pages_hold_together_what_one_page_would(
    bytes_of_page: int, most_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = told(read(a_desk()))
    monkeypatch.setattr(log_pages, "_HISTORY_PAGE_BYTES", bytes_of_page)
    monkeypatch.setattr(log_pages, "_MOST_ENTRIES_OF_HISTORY", most_entries)

    pages = read(a_desk())

    assert len(pages) > 2
    assert told(pages) == whole


def test_whoever_has_read_a_page_reads_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pages, "_MOST_ENTRIES_OF_HISTORY", 2)
    desk = a_desk()
    whole, pages = told(read(desk)), read(desk)
    ends = [page.read_to for page in pages if isinstance(page, OperationHistory)]

    assert len(ends) == len(pages) > 2
    for number, end in enumerate(ends, 1):
        later = read(desk, after=end)
        assert told(pages[:number]) + told(later) == whole
        assert [page.read_to for page in later if isinstance(page, OperationHistory)] == (ends[number:] or ends[-1:])


def test_an_operation_whose_first_entries_the_log_has_forgotten_says_so() -> None:
    desk = a_desk()
    first = desk.state.operations[oid("other")].first_sequence

    pages = [read(desk, "other", forget=forget)[0] for forget in (first - 1, first)]

    assert [page.begins_late for page in pages if isinstance(page, OperationHistory)] == [False, True]
    assert len(told(pages[1:])) == 3


def test_a_name_that_is_half_written_is_refused_with_what_begins_so() -> None:
    (answer,) = read(a_desk(), "ear")

    assert answer == NotFound("operation", oid("ear"), near=[oid("early")])
