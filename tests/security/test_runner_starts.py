"""A job whose program cannot be opened: its start waits inside the kernel, and nothing else on the host waits with it.

The owner of a file may hold a lease on it. Whoever opens the file then waits until the lease is given back, 45 s by default, and `exec`
opens it. A file system that does not answer holds up a start in the same way, for ever.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.heartbeat import JobResult
from headrace_agent.runner.host.linux_processes import LinuxProcesses
from headrace_agent.runner.protocol import EndAll, Interrupt, NodeLease
from tests.unit.runner.builders import a_job, a_run
from tests.unit.runner.harness import ARunner, runner

__all__ = ["runner"]

LATE = ("--start-timeout-ms", "500")


class Leased:
    """A program under a lease. It writes its pid into `ran` once it runs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "program"
        self.ran = folder / "ran"
        self.path.write_text(f"#!/bin/sh\necho $$ >> {self.ran}\nexec sleep 1000\n")
        self.path.chmod(0o755)
        self._fd = os.open(self.path, os.O_RDONLY)
        fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def give_back(self) -> None:
        os.close(self._fd)


@pytest.fixture
def leased(tmp_path: Path) -> Iterator[Leased]:
    """The kernel asks for the lease by SIGIO, which ends a process that does not expect it."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    it = Leased(tmp_path)
    yield it
    signal.signal(signal.SIGIO, before)


def test_while_one_job_waits_for_its_program_others_start_end_and_are_interrupted(
    runner: ARunner, leased: Leased
) -> None:
    agent = runner.start()
    agent.say(a_run(0, str(leased.path)))

    assert agent.sh(1, "exit 3").exit_code == 3
    agent.run(2, "sleep", "1000")
    agent.say(Interrupt(a_job(2), 1000, "preempted"))
    assert agent.end_of(2).result is JobResult.ABORTED
    assert [(kept.run.job, kept.started.pid) for kept in agent.hello().running] == [(a_job(0), 0)]
    assert not leased.ran.exists()
    leased.give_back()


def test_a_start_that_takes_too_long_fails_its_job_and_its_program_never_runs(runner: ARunner, leased: Leased) -> None:
    agent = runner.start(*LATE)
    agent.say(a_run(0, str(leased.path)))
    end = agent.end_of(0)
    leased.give_back()
    agent.say(EndAll(0, "the test is over"))

    assert (end.result, end.exit_code, end.not_started) == (JobResult.FAILED, 126, True)
    assert f"{leased.path} did not begin to run within 0.5 s in {runner.state}/scratch/1" in end.reason
    assert runner.wait() == 0
    assert not leased.ran.exists()


def test_a_job_that_is_interrupted_while_it_waits_for_its_program_is_killed_at_its_deadline(
    runner: ARunner, leased: Leased
) -> None:
    agent = runner.start()
    agent.say(a_run(0, str(leased.path)), Interrupt(a_job(0), 50, "preempted"))
    end = agent.end_of(0)
    leased.give_back()

    assert (end.result, end.reason) == (JobResult.ABORTED, "preempted")
    assert not leased.ran.exists()


def test_the_lease_of_the_node_is_enforced_for_jobs_that_wait_for_their_program(
    runner: ARunner, leased: Leased
) -> None:
    agent = runner.start(lease=None)
    agent.say(NodeLease(time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 500_000_000, timeout_ms=10))
    agent.say(a_run(0, str(leased.path)))
    agent.run(1, "sleep", "1000")

    assert {agent.end_of(index).reason.partition(":")[0] for index in (0, 1)} == {"the lease of the node ended"}
    leased.give_back()
    assert not leased.ran.exists()


def test_a_runner_that_ends_leaves_no_process_that_waits_for_its_program(runner: ARunner, leased: Leased) -> None:
    agent = runner.start()
    agent.say(a_run(0, str(leased.path)), EndAll(0, "enough"))

    assert agent.end_of(0).result is JobResult.ABORTED
    assert runner.wait() == 0
    leased.give_back()
    assert not leased.ran.exists()


def test_what_a_killed_runner_left_on_its_way_to_a_program_is_killed_by_the_next_runner(
    runner: ARunner, leased: Leased
) -> None:
    """It has no marker yet. If it lived on, it would run the job beside the attempt that follows."""
    agent = runner.start()
    agent.say(a_run(0, str(leased.path)))
    agent.sh(1, "true")
    runner.kill()
    [lost] = [end for end in runner.start().hello().ended if end.key == a_job(0)]
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != runner.pid and is_of(runner, pid)]
    leased.give_back()

    assert lost.result is JobResult.LOST
    assert left == []
    assert not leased.ran.exists()


def is_of(runner: ARunner, pid: str) -> bool:
    """True of a process that is, or was copied from, a runner of this state folder."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(runner.state) in words


def test_a_hundred_starts_that_wait_hold_up_nothing(runner: ARunner, leased: Leased) -> None:
    agent = runner.start(*LATE)
    agent.say(*(a_run(index, str(leased.path)) for index in range(100)))

    assert agent.sh(100, "exit 3").exit_code == 3
    assert {agent.end_of(index).result for index in range(100)} == {JobResult.FAILED}
    leased.give_back()
    assert not leased.ran.exists()


def test_a_process_that_is_not_ours_to_signal_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that becomes another user, as by `sudo`, cannot be signalled by a runner that is not root. That ended the runner."""

    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(os, "killpg", refuse)
    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    processes = LinuxProcesses()

    assert processes.signal(1, signal.SIGKILL)
    assert processes.signal_group(1, signal.SIGKILL)
    assert processes.signal_pidfd(1, signal.SIGKILL)
