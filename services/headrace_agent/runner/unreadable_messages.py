"""Messages between an agent and its runner that the receiver cannot read, or the sender cannot write.

If such a message closed the connection, it would be sent again on the next connection, and all jobs would wait for ever because of one
message. So only the run that the message is about ends, with the reason, and the connection stays open. The cause of such a message is a
difference between the versions of agent and runner, or a defect of one of them.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headrace.ids import AllocationId, OperationId
from headrace.wire.heartbeat import JobEnd, JobKey, JobResult, short_text
from headrace_agent.runner.frames import pack
from headrace_agent.runner.protocol import (
    LARGEST_REQUEST_BYTES,
    Ended,
    FullReport,
    Interrupt,
    KeptJob,
    Run,
    RunAhead,
    Started,
    ToAgent,
    ToRunner,
)

T = TypeVar("T")


class _AboutRun(msgspec.Struct):
    """The parts of a `Run` that say which run it is. All other fields are skipped, so they may be unreadable."""

    job: JobKey
    allocation: str


class _RunOrder(_AboutRun, tag="run"):
    pass


class _RunAheadOrder(msgspec.Struct, tag="run_ahead"):
    run: _AboutRun


class _InterruptOrder(msgspec.Struct, tag="interrupt"):
    job: JobKey


class _AboutEnd(msgspec.Struct):
    operation: str
    index: int
    attempt: int
    allocation: str


class _EndedReport(msgspec.Struct, tag="ended"):
    end: _AboutEnd


class _AboutKept(msgspec.Struct):
    run: _AboutRun


class _PictureReport(msgspec.Struct, tag="picture"):
    running: list[msgspec.Raw]
    ended: list[msgspec.Raw]
    pid: int
    isolation: str = ""
    runs_ahead: bool = False


_orders = msgspec.msgpack.Decoder(_RunOrder | _RunAheadOrder | _InterruptOrder)
_reports = msgspec.msgpack.Decoder(_EndedReport | _PictureReport)
_kept = msgspec.msgpack.Decoder(KeptJob)
_about_kept = msgspec.msgpack.Decoder(_AboutKept)
_ends = msgspec.msgpack.Decoder(JobEnd)
_about_ends = msgspec.msgpack.Decoder(_AboutEnd)


def order_frame(message: ToRunner) -> bytes | None:
    """Return the frame of an order, or None if the order cannot be written.

    If a `Run` or `RunAhead` cannot be written, the frame holds an order that makes its job fail instead.
    """
    try:
        frame = pack(message)
    except (ValueError, OverflowError) as error:
        why = f"its order cannot be written: {error}"
    else:
        if len(frame) <= LARGEST_REQUEST_BYTES:
            return frame
        why = f"its order has {len(frame)} bytes, and a runner reads at most {LARGEST_REQUEST_BYTES}"
    match message:
        case Run():
            return pack(_failing_run(_AboutRun(message.job, message.allocation), why))
        case RunAhead(run):
            return pack(RunAhead(_failing_run(_AboutRun(run.job, run.allocation), why)))
        case _:
            return None


def order_instead_of(frame: bytes, why: str) -> ToRunner | None:
    """Return an order that ends the run which an unreadable order is about. Return None if the unreadable order does not show a run."""
    reason = f"the runner cannot read its order: {why}"
    match _decoded(_orders, frame):
        case _RunOrder() as run:
            return _failing_run(run, reason)
        case _RunAheadOrder(run):
            return RunAhead(_failing_run(run, reason))
        case _InterruptOrder(job):
            return Interrupt(job, 0, short_text(reason))
        case _:
            return None


def report_instead_of(frame: bytes, why: str) -> ToAgent | None:
    """Return a readable report in place of an unreadable one, or None if that is impossible.

    Each unreadable end in the report counts as a failure of its job.
    """
    match _decoded(_reports, frame):
        case _EndedReport(end):
            return Ended(_failed(end, why))
        case _PictureReport() as picture:
            running = [kept for raw in picture.running if (kept := _kept_in(raw, why)) is not None]
            ended = [one for raw in picture.ended if (one := _end_in(raw, why)) is not None]
            return FullReport(running, ended, picture.isolation, why, picture.pid, why, picture.runs_ahead)
        case _:
            return None


def _kept_in(raw: msgspec.Raw, why: str) -> KeptJob | None:
    """Return an entry for a running job of the report, or None if not even the name of the job can be read.

    If the rest of the entry cannot be read, the job still continues: its name is enough to interrupt it and to report its end.
    """
    kept = _decoded(_kept, raw)
    if kept is not None:
        return kept
    about = _decoded(_about_kept, raw)
    return None if about is None else KeptJob(_failing_run(about.run, why), Started(about.run.job, 0, 0, 0))


def _end_in(raw: msgspec.Raw, why: str) -> JobEnd | None:
    whole = _decoded(_ends, raw)
    if whole is not None:
        return whole
    about = _decoded(_about_ends, raw)
    return None if about is None else _failed(about, why)


def _failing_run(about: _AboutRun, why: str) -> Run:
    """Return an order that makes the job fail with the reason `why`."""
    return Run(about.job, about.allocation, [], {}, "", 0, 0, not_started_for=short_text(why))


def _failed(end: _AboutEnd, why: str) -> JobEnd:
    return JobEnd(
        operation=OperationId(end.operation),
        index=end.index,
        attempt=end.attempt,
        allocation=AllocationId(end.allocation),
        result=JobResult.FAILED,
        reason=short_text(f"the agent cannot read how it ended: {why}"),
    )


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes | msgspec.Raw) -> T | None:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        return None
