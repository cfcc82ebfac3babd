"""Messages that one side cannot read or write end the run that they are about."""

from __future__ import annotations

import msgspec
import pytest

from headrace.ids import AllocationId
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace_agent.runner.frames import pack, unpack
from headrace_agent.runner.protocol import (
    LARGEST_REQUEST_BYTES,
    Acknowledge,
    Ended,
    FullReport,
    Hello,
    Interrupt,
    KeptJob,
    NodeLease,
    Run,
    RunAhead,
    Started,
    ToRunner,
)
from headrace_agent.runner.unreadable_messages import order_frame, order_instead_of, report_instead_of
from tests.unit.runner.builders import OPERATION, a_job, a_run

DECODER = msgspec.msgpack.Decoder(ToRunner)


def read(frame: bytes | None) -> ToRunner:
    assert frame is not None
    message: ToRunner = unpack(frame[4:], DECODER)
    return message


@pytest.mark.parametrize("argument", ["x" * LARGEST_REQUEST_BYTES, "\ud800"], ids=["too large", "no UTF-8"])
def test_an_order_that_cannot_be_written_fails_its_job(argument: str) -> None:
    run = a_run(0, "true", argument)

    for order in (run, RunAhead(run)):
        told = read(order_frame(order))
        assert type(told) is type(order)
        failing = told.run if isinstance(told, RunAhead) else told
        assert isinstance(failing, Run)
        assert (failing.job, failing.allocation) == (run.job, run.allocation)
        assert failing.not_started_for.startswith("its order ")
    assert order_frame(Hello(argument)) is None
    assert read(order_frame(a_run(0, "true"))) == a_run(0, "true")


@pytest.mark.parametrize(
    "order", [a_run(0, cpu=-1), RunAhead(a_run(0, not_started_for="x" * 5_000)), Interrupt(a_job(), -1, "over")]
)
def test_an_order_that_cannot_be_read_ends_its_job(order: msgspec.Struct) -> None:
    instead = order_instead_of(pack(order)[4:], "y" * 5_000)

    assert type(instead) is type(order)
    assert read(pack(instead)) == instead, "it can be read"
    assert b"the runner cannot read its order: yyy" in pack(instead)


@pytest.mark.parametrize("frame", [b"", b"\xc1", pack(NodeLease(-1))[4:], pack(Acknowledge([]))[4:], b"\x80"])
def test_nothing_stands_in_for_what_is_about_no_run(frame: bytes) -> None:
    assert order_instead_of(frame, "why") is None
    assert report_instead_of(frame, "why") is None


def an_end(index: int, **changes: object) -> JobEnd:
    end = JobEnd(OPERATION, index, 1, AllocationId("alloc-1"), JobResult.COMPLETED)
    return msgspec.structs.replace(end, **changes)


def test_an_end_that_cannot_be_read_counts_as_a_failure() -> None:
    report = report_instead_of(pack(Ended(an_end(3, reason="x" * 5_000)))[4:], "too long")

    assert isinstance(report, Ended)
    assert (report.end.key, report.end.allocation) == (a_job(3), "alloc-1")
    assert (report.end.result, report.end.reason) == (
        JobResult.FAILED,
        "the agent cannot read how it ended: too long",
    )


def test_of_a_picture_all_that_can_be_read_is_kept() -> None:
    well = KeptJob(a_run(0), Started(a_job(0), 10, 1, 1))
    ill = KeptJob(a_run(1, cpu=-1), Started(a_job(1), 11, 1, 1))
    picture = FullReport([well, ill], [an_end(2), an_end(3, reason="x" * 5_000)], "none", "", 7, runs_ahead=True)

    report = report_instead_of(pack(picture)[4:], "why")

    assert isinstance(report, FullReport)
    assert report.running[0] == well
    assert [kept.run.job for kept in report.running] == [a_job(0), a_job(1)]
    assert report.ended[0] == an_end(2)
    assert [(end.key, end.result) for end in report.ended[1:]] == [(a_job(3), JobResult.FAILED)]
    assert (report.pid, report.runs_ahead, report.isolation) == (7, True, "none")
