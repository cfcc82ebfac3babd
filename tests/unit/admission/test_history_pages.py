"""The log as anybody may read it: all entries, page by page, without what is for owners alone."""

from __future__ import annotations

import msgspec
import pytest

from headrace.bus import Log
from headrace.wire import subjects
from headrace.wire.log import JobsEnded, OperationStarted
from headrace.wire.replay import LogPage, ReadEvents
from headrace_admission.log import history_pages
from headrace_admission.log.byte_budget import encode_event
from headrace_admission.log.history_pages import log_page
from headrace_admission.log.recorder import encode_batch
from tests.simulation.bus import connect_to
from tests.simulation.loop import VirtualLoop, run_virtually
from tests.simulation.server import SimulatedServer
from tests.unit.admission.desk import Desk, oid
from tests.unit.admission.test_history import a_desk


def pages_of(desk: Desk, *, forget: int = 0, since_ms: int = 0) -> list[LogPage]:
    """All pages of a log that has forgotten its first entries."""

    async def course(loop: VirtualLoop) -> list[LogPage]:
        async with connect_to(SimulatedServer(loop), "admission") as bus:
            log: Log = await bus.log(subjects.STREAM, subjects.LOG)
            for last, events in enumerate(desk.entries):
                entry = encode_batch(1, [encode_event(event) for event in events], "admission-1", last)
                await log.append(entry, expected_last=last, timeout_s=5.0)
            await log.forget(forget)
            request, pages = ReadEvents(since_ms=since_ms), []
            while True:
                page = await log_page(log, request)
                assert isinstance(page, LogPage)
                pages.append(page)
                if page.next is None:
                    return pages
                request = ReadEvents(page.next)

    return run_virtually(1, course)


def test_every_entry_is_told_once_and_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = a_desk()
    (whole,) = pages_of(desk)
    monkeypatch.setattr(history_pages, "_MOST_ENTRIES_OF_LOG", 3)
    parts = pages_of(desk)

    assert [entry.sequence for entry in whole.entries] == list(range(1, len(desk.entries) + 1))
    assert len(parts) == -(-len(desk.entries) // 3)
    assert [entry for page in parts for entry in page.entries] == whole.entries
    assert whole.oldest == 1


def test_a_log_that_has_forgotten_its_beginning_begins_with_what_it_has() -> None:
    (page,) = pages_of(a_desk(), forget=4)

    assert page.oldest == 5
    assert page.entries[0].sequence == 5


def test_commands_and_what_jobs_wrote_are_told_to_nobody() -> None:
    desk = Desk()
    desk.started("early", environment={"TOKEN": "secret"}, working_directory="/secret")
    (started,) = (event for event in desk.entries[-1] if isinstance(event, OperationStarted))
    with_command = msgspec.structs.replace(started.spec, argv=["train", "--key", "secret"])
    desk.entries.append([msgspec.structs.replace(started, spec=with_command)])
    ended = next(event for events in a_desk().entries for event in events if isinstance(event, JobsEnded))
    end = msgspec.structs.replace(ended.ends[0].end, operation=oid("early"), stderr_tail="secret", reason="secret")
    desk.entries.append([JobsEnded(oid("early"), [msgspec.structs.replace(ended.ends[0], end=end)], 1)])
    (page,) = pages_of(desk)
    told = [event for entry in page.entries for event in entry.events]

    assert "secret" not in repr(told)
    assert [type(event) for event in told][-2:] == [OperationStarted, JobsEnded]


def test_pages_since_a_time_begin_with_its_first_entry() -> None:
    desk = a_desk()
    (whole,) = pages_of(desk)
    times = [max((getattr(event, "at_ms", 0) for event in entry.events), default=0) for entry in whole.entries]
    assert len({*times}) > 3
    for since_ms in {*times, max(times) + 1}:
        (page,) = pages_of(desk, since_ms=since_ms)
        expected = [entry for entry, at_ms in zip(whole.entries, times, strict=True) if at_ms >= since_ms]
        assert [entry for entry in page.entries if entry in expected] == expected
        early = [entry for entry in page.entries if entry not in expected]
        assert all(not at_ms or at_ms < since_ms for at_ms in times[: whole.entries.index(page.entries[0])]), since_ms
        assert len(early) <= 2
