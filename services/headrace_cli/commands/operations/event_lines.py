"""Events in words: one line each, the table of `op history`, and the proof of each preemption. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from typing import Final, assert_never

from rich.table import Table
from rich.text import Text

from headrace.client.preemptions import preemption_words
from headrace.durations import exact_duration, format_duration
from headrace.errors import in_one_line
from headrace.resources import RESOURCE_NAMES, percent
from headrace.wire.happenings import (
    AllocationPreempted,
    AllocationStarted,
    Happening,
    JobEnded,
    Missed,
    NodeSuspected,
    OperationChanged,
    OperationStep,
    SessionStep,
    StarvationChanged,
    time_of,
)
from headrace.wire.heartbeat import JobResult, JobSlot
from headrace.wire.log import SessionEnd, StateCause
from headrace.wire.snapshots import StarvationReason, StarvationStatus
from headrace.wire.start_stages import StartStage
from headrace_cli.commands.operations.tables import peak_words, result_words
from headrace_cli.show.tables import table
from headrace_cli.show.times import timestamp

_MISSED: Final = {
    "admission": "log entries",
    "allocator": "decisions of the allocator",
    "fair_share": "changes of shares",
}
_STARVES: Final = {
    StarvationStatus.NON_STARVING: "no longer starves",
    StarvationStatus.STARVING: "starves",
    StarvationStatus.AGGRESSIVELY_STARVING: "starves aggressively",
}
_SESSION_ENDS: Final = {
    SessionEnd.CLOSED: "",
    SessionEnd.JOB_ENDED: ", at the latest with the job",
    SessionEnd.UNKNOWN: ": when is unknown, since the agent or the node was lost",
}
_STARTS: Final = {
    StartStage.REGULAR_HIGH_PRIORITY: "regular stage, high priority",
    StartStage.REGULAR_MEDIUM_PRIORITY: "regular stage, medium priority",
    StartStage.PREEMPTIVE_NORMAL: "normal preemptive stage",
    StartStage.PREEMPTIVE_AGGRESSIVE: "aggressive preemptive stage",
    StartStage.YARN_PLAN: "plan of a YARN policy",
}


def history_table(happenings: Sequence[Happening], zone: tzinfo | None = None) -> Table:
    """Return a table with one row for each happening, with the job, its node, its run time and what it used there."""
    made = table("time", "job", "node", "ran", "used", "what", right=("ran", "used"))
    for each in happenings:
        job, node, ran, used = "", "", "", ""
        if isinstance(each, JobEnded):
            job, node = _job(each.slot), each.node
            ran = "" if each.ran_ms is None else format_duration(each.ran_ms)
            used = (
                "–" if each.cpu_ms is None else f"{format_duration(each.cpu_ms)} cpu, {peak_words(each.max_rss_bytes)}"
            )
        if isinstance(each, AllocationStarted):
            job, node = ", ".join(_job(slot) for slot in each.slots), each.node
        if isinstance(each, SessionStep):
            job, node = _job(each.slot), each.node
        what = Text("runs", style="cyan") if isinstance(each, AllocationStarted) else Text(_what(each))
        if isinstance(each, JobEnded | AllocationStarted):
            what = Text.assemble(what, f"; started by: {'; '.join(_how_it_started(each)) or '–'}")
        made.add_row(timestamp(time_of(each) / 1000, zone), job, node, ran, used, what)
    return made


def happening_words(happening: Happening, zone: tzinfo | None = None) -> str:
    """Return one line that says what happened, when, and to which operation or element, so that it needs no context."""
    at = timestamp(time_of(happening) / 1000, zone)
    match happening:
        case OperationStep() | OperationChanged() | SessionStep():
            return f"{at}  {happening.operation}  {_what(happening)}"
        case JobEnded() as end:
            after = "" if end.ran_ms is None else f", after {format_duration(end.ran_ms)}"
            return f"{at}  {end.operation}  job {_job(end.slot)} on {end.node}{after}: {_what(end)}"
        case AllocationStarted() | AllocationPreempted():
            return f"{at}  {happening.operation}  {_what(happening)}"
        case StarvationChanged():
            return f"{at}  {happening.kind.value} {happening.name}  {_what(happening)}"
        case NodeSuspected():
            return f"{at}  node {happening.node}  {_what(happening)}"
        case Missed():
            return f"{at}  {_what(happening)}"
        case _:
            assert_never(happening)


def _what(happening: Happening) -> str:
    """Return what happened, in one line. Reasons and folders in it are texts of users."""
    return in_one_line(_words(happening))


def _words(happening: Happening) -> str:
    match happening:
        case OperationStep():
            return _step(happening)
        case OperationChanged(suspended=None):
            limit_ms = happening.operation_time_limit_ms
            if limit_ms is None:
                return f"moved to pool {happening.pool}, weight {happening.weight:g}"
            return f"time limit of the operation: {exact_duration(limit_ms) if limit_ms else 'none'}, weight {happening.weight:g}"
        case OperationChanged():
            by = f" by {happening.reason}" if happening.reason else ""
            return f"suspended{by}" if happening.suspended else "resumed"
        case JobEnded():
            return _end(happening)
        case SessionStep():
            return _session(happening)
        case AllocationStarted():
            jobs = ", ".join(_job(slot) for slot in happening.slots)
            words = f"starts job{'s' if len(happening.slots) > 1 else ''} {jobs} on {happening.node}"
            return "; ".join([words, *_how_it_started(happening)])
        case AllocationPreempted():
            job = "an allocation" if happening.slot is None else f"job {_job(happening.slot)}"
            return f"{job} on {happening.node} {'would be ' if happening.record.observed else ''}{preemption_words(happening.record)}"
        case StarvationChanged():
            of = "its strong guarantee" if happening.reason is StarvationReason.MIN_SHARE else "its fair share"
            starves = happening.status is not StarvationStatus.NON_STARVING
            return _STARVES[happening.status] + (f", short of {of}" if starves else "")
        case NodeSuspected():
            return f"suspect: {happening.words}" if happening.is_suspect else "suspect no more"
        case Missed():
            what = _MISSED[happening.of]
            many = f"some {what}" if happening.count is None else f"{happening.count} {what}"
            return f"missed: {many} did not arrive; `headrace op history` shows what the log has"
        case _:
            assert_never(happening)


def _how_it_started(start: AllocationStarted | JobEnded) -> Iterator[str]:
    """Yield how a job was started: the stage and the number of allocations that were preempted for it, then its operation's shares.

    The shares are the usage before the start and the fair share, for the resource in which either of them is largest.
    """
    if start.stage is not None:
        many = start.places_taken
        yield _STARTS[start.stage] + (f", {many} allocation{'s' if many > 1 else ''} preempted for it" if many else "")
    if start.share_before is not None and start.fair_share is not None:
        owed = max(start.fair_share, start.share_before, key=max)
        at = owed.index(max(owed))
        before, fair = percent(start.share_before[at]), percent(start.fair_share[at])
        yield f"{RESOURCE_NAMES[at]} {before} of the cluster before, owed {fair}"


def _step(step: OperationStep) -> str:
    words = step.state.value
    if step.cause == "started":
        return f"started by {step.user} in pool {step.pool}: {words}" + (f", {step.reason}" if step.reason else "")
    if step.pool:
        words += f" at pool {step.pool}"
    # The cause `released` is left out: it only says that the last job has ended, and then an operation is always over.
    words += f" ({step.cause.replace('_', ' ')})" if step.cause != StateCause.RELEASED else ""
    return words + (f": {step.reason}" if step.reason else "")


def _end(end: JobEnded) -> str:
    how = f", signal {end.signal}" if end.signal is not None else ""
    how += f", exit code {end.exit_code}" if end.exit_code else ""
    # Events that are read from the log later have no reason.
    reason = end.reason or ("out of memory" if end.out_of_memory else "")
    said = f": {reason}" if reason and end.preemption is None else ""
    if end.preemption is not None and end.result is JobResult.ABORTED and end.ran_ms is None:
        said = ", before it began"
    again = "; it is retried" if end.runs_again else ""
    proof = f"; {preemption_words(end.preemption)}" if end.preemption is not None else ""
    return f"{result_words(end.result)}{how}{said}{again}{proof}"


def _session(step: SessionStep) -> str:
    """Return who has sessions with which job, or how the sessions ended."""
    where = f"{step.user} in job {_job(step.slot)} on {step.node}"
    if step.end is None:
        return f"session of {where} began"
    many = f"{step.sessions} sessions" if step.sessions is not None and step.sessions > 1 else "session"
    lasted = (
        "" if step.ended_at_ms is None else f" after {format_duration(max(0, step.ended_at_ms - step.began_at_ms))}"
    )
    return f"{many} of {where} ended{lasted}{_SESSION_ENDS[step.end]}"


def _job(slot: JobSlot) -> str:
    return f"{slot.index}" + (f".{slot.attempt}" if slot.attempt > 1 else "")
