"""Ends the processes that a killed runner left, and reports each of their jobs as lost.

A process belongs to a job of the killed runner if it carries the job's marker, or if it is in the session of the job's main
process, which is identified by its pid and its marker. A pid alone is never enough, because pids are reused. A process that was
still starting has no marker yet, but it has the command line of the runner that it was copied from.
"""

from __future__ import annotations

import signal

from headrace.ids import AllocationId
from headrace.runtime.engine import NS_PER_MS
from headrace.wire.heartbeat import JobEnd, JobResult
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.files.kept_jobs import Leftover
from headrace_agent.runner.host.interface import Host

_PASSES = 200
_PAUSE_MS = 10
#: Milliseconds after which no further pass begins. There could be further passes without end if other accounts of the host have very many
#: processes, some of which start or end during each pass.
_LONGEST_MS = 5_000


def end_leftovers(host: Host, leftovers: list[Leftover], boot: str) -> int:
    """Kill the processes of leftover jobs, and wait some seconds at most until none is left. Return the number of killed processes."""
    late_ns = host.processes.now().steady_ns + _LONGEST_MS * NS_PER_MS
    names = {job_name(leftover.record.job) for leftover in leftovers if leftover.record.boot == boot}
    sessions = {
        leftover.process.pid
        for leftover in leftovers
        if leftover.process is not None and leftover.record.boot == boot and _is_same(host, leftover)
    }
    killed: set[int] = set()
    unknown: set[int] = set()
    for _ in range(_PASSES if names else 0):
        before = unknown
        victims, unknown = _victims(host, names, sessions)
        # If the marker of a process cannot be read, the process may be just starting another program, and will show its marker soon. So
        # such a process causes another pass, but only once: a kernel thread, for example, never shows a marker.
        if not victims and unknown <= before:
            break
        for pid in victims:
            _kill(host, pid, names, sessions)
        killed.update(victims)
        if host.processes.now().steady_ns > late_ns:
            break
        host.processes.pause(_PAUSE_MS)
    return len(killed)


def lost(leftover: Leftover, boot: str, now_ms: int) -> JobEnd:
    """Return the record of the end of a lost job, whose end no runner saw."""
    record, process = leftover.record, leftover.process
    return JobEnd(
        operation=record.job.operation,
        index=record.job.index,
        attempt=record.job.attempt,
        allocation=AllocationId(record.allocation),
        result=JobResult.LOST,
        reason="the runner was killed" if record.boot == boot else "the host was restarted",
        started_at_ms=process.started_at_ms if process is not None else 0,
        ended_at_ms=now_ms,
        start=record.start,
    )


def _is_same(host: Host, leftover: Leftover) -> bool:
    process = leftover.process
    return process is not None and host.processes.marker(process.pid) == job_name(leftover.record.job)


def _victims(host: Host, names: set[str], sessions: set[int]) -> tuple[list[int], set[int]]:
    """Return the pids of the processes that belong to the jobs, and the pids of processes of which it is not known yet."""
    victims: list[int] = []
    unknown: set[int] = set()
    for pid in host.processes.pids():
        belongs = _belongs(host, pid, names, sessions)
        if belongs is None:
            unknown.add(pid)
        elif belongs:
            victims.append(pid)
    return victims, unknown


def _belongs(host: Host, pid: int, names: set[str], sessions: set[int]) -> bool | None:
    """Return True if the process belongs to the jobs. Return None if that is not known, because the process is just starting another
    program or is ending.
    """
    marker = host.processes.marker(pid)
    if marker in names or host.processes.is_copy(pid):
        return True
    if sessions and host.processes.session(pid) in sessions:
        return True
    return None if marker is None else False


def _kill(host: Host, pid: int, names: set[str], sessions: set[int]) -> None:
    try:
        pidfd = host.processes.pidfd(pid)
    except OSError:
        return
    try:
        # The process may have ended, and its pid may have been reused, before the pidfd was opened. So it is checked once more that the
        # process belongs to the jobs. A signal through the pidfd cannot reach any other process.
        if _belongs(host, pid, names, sessions):
            host.processes.signal_pidfd(pidfd, signal.SIGKILL)
    finally:
        host.files.close(pidfd)
