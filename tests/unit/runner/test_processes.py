"""The table of processes, asked in an order that a loop only rarely sees."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from headrace.runtime.engine import Moment
from headrace_agent.job_logs.reader import read_log
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.files.kept_jobs import JobRecord, KeptJobs, Leftover
from headrace_agent.runner.files.log_retention import Retention
from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.files.scratch import ScratchFolders
from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.linux_processes import LinuxProcesses, Reaped
from headrace_agent.runner.host.poll import Poll
from headrace_agent.runner.jobs.isolation import Isolation, JobUsage
from headrace_agent.runner.jobs.launch import Launched, Launcher, NotStarted
from headrace_agent.runner.jobs.leftovers import end_leftovers
from headrace_agent.runner.jobs.process_table import ProcessTable
from headrace_agent.runner.protocol import Run
from headrace_agent.runner.settings import parse
from tests.unit.runner.builders import a_job, a_run
from tests.unit.runner.harness import PATIENCE_S, gone


class Measuring(Isolation):
    """Knows the peak memory of all processes of a job, or, like an older kernel, only their CPU time."""

    def __init__(self, peak_bytes: int) -> None:
        super().__init__("")
        self.peak_bytes = peak_bytes

    def usage(self, run: Run) -> JobUsage:
        return JobUsage(cpu_ms=3_600_000, max_rss_bytes=self.peak_bytes)


def a_table(folder: Path, processes: LinuxProcesses | None = None, isolation: Isolation | None = None) -> ProcessTable:
    host, poll = Host(LinuxFiles(), processes or LinuxProcesses()), Poll()
    settings = parse(["--state", str(folder)])
    for name in ("logs", "scratch"):
        (folder / name).mkdir()
    kept = KeptJobs(host.files, str(folder))
    kept.load()
    isolation = isolation or Isolation("")
    scratch = ScratchFolders(host.files, str(folder), Removal(host.files, f"{folder}/trash"))
    retention = Retention(settings.logs_total_bytes)
    launcher = Launcher(host, settings, kept, isolation, scratch, retention, open_files=(1024, 1024))
    return ProcessTable(host, settings, poll, launcher, isolation, scratch, retention)


def launch(table: ProcessTable, run: Run) -> int:
    """Starts a job, waits until its program runs, and returns its pid."""
    launched: Launched | NotStarted | None = table.begin(run)
    while launched is None:
        fd, _ = next(table._poll.events(PATIENCE_S))
        if table.owns_start(fd) and (found := table.on_start(fd)) is not None:
            launched = found[1]
    assert isinstance(launched, Launched), launched
    assert launched.failure == ""
    return launched.pid


def test_what_is_in_the_pipes_when_the_job_has_ended_is_kept(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    assert gone(launch(table, a_run(0, "sh", "-c", "head -c 60000 /dev/zero; echo oh >&2; exit 4")))
    [pidfd] = table.ended_unseen([a_job()])
    table.on_main_ended(pidfd, LinuxProcesses().now())
    [(job, exit)] = table.collect_ended(LinuxProcesses().now())

    assert job == a_job()
    assert (exit.exit_code, exit.stderr_tail) == (4, "oh\n")
    assert read_log(str(tmp_path / "logs"), a_job(), "stdout").size == 60_000
    assert len(table) == 0


@pytest.mark.parametrize("peak_bytes", [4_096, 0])
def test_the_peak_memory_of_all_processes_counts_if_it_is_known(tmp_path: Path, peak_bytes: int) -> None:
    table = a_table(tmp_path, isolation=Measuring(peak_bytes))
    assert gone(launch(table, a_run(0, "true")))
    [pidfd] = table.ended_unseen([a_job()])
    table.on_main_ended(pidfd, LinuxProcesses().now())
    [(_, exit)] = table.collect_ended(LinuxProcesses().now())

    assert (exit.cpu_ms, exit.from_cgroup) == (3_600_000, peak_bytes > 0)
    assert exit.max_rss_bytes == peak_bytes or exit.max_rss_bytes > 2**20 > peak_bytes == 0


def test_a_job_whose_main_process_ended_takes_no_signal_any_more(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    assert gone(launch(table, a_run(0, "true")))
    [pidfd] = table.ended_unseen([a_job()])
    table.on_main_ended(pidfd, LinuxProcesses().now())

    table.signal(a_job(), signal.SIGTERM)
    assert table.ended_unseen([a_job(), a_job(7)]) == []
    assert len(table.collect_ended(LinuxProcesses().now())) == 1


class WithOrphan(LinuxProcesses):
    """One process more, that a job left to us and that becomes another program at the first look."""

    def __init__(self) -> None:
        super().__init__()
        self.markers: list[str | None] = [None, job_name(a_job())]
        self.killed: list[int] = []
        self.orphan = 2**22 + 1

    def children(self) -> list[int]:
        return [self.orphan]

    def reap(self, pid: int) -> Reaped | None:
        return None if pid == self.orphan else super().reap(pid)

    def session(self, pid: int) -> int | None:
        return self.orphan if pid == self.orphan else super().session(pid)

    def marker(self, pid: int) -> str | None:
        return self.markers.pop(0) if self.markers else job_name(a_job())

    def signal(self, pid: int, number: int) -> bool:
        self.killed.append(pid)
        return True


def test_a_job_is_not_over_while_a_process_becomes_a_program_of_which_nobody_knows_yet_whose_it_is(
    tmp_path: Path,
) -> None:
    processes = WithOrphan()
    table = a_table(tmp_path, processes)
    launch(table, a_run(1, "sleep", "1000"))
    assert gone(launch(table, a_run(0, "true")))
    [pidfd] = table.ended_unseen([a_job()])
    now = LinuxProcesses().now()
    table.on_main_ended(pidfd, now)

    first, killed_first = table.collect_ended(now), [*processes.killed]
    second = table.collect_ended(Moment(now.steady_ns + 10**8, now.wall_ms))
    table.signal(a_job(1), signal.SIGKILL)

    assert (first, killed_first) == ([], [])
    assert (second, processes.killed) == ([], [processes.orphan])


def test_the_number_of_a_process_group_that_has_ended_gets_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = WithOrphan()
    table = a_table(tmp_path, processes)
    pid = launch(table, a_run(0, "true"))
    assert gone(pid)
    [pidfd] = table.ended_unseen([a_job()])
    now = LinuxProcesses().now()
    table.on_main_ended(pidfd, now)
    table.collect_ended(now)

    signalled: list[int] = []
    monkeypatch.setattr(processes, "signal_group", lambda pgid, _: signalled.append(pgid))
    assert table.collect_ended(Moment(now.steady_ns + 10**8, now.wall_ms)) == []
    assert signalled == []


def test_a_process_that_becomes_one_program_after_another_is_never_taken_for_one_without_a_marker() -> None:
    processes = LinuxProcesses()
    again = 'exec sh -c "$0" "$0"'
    pid = os.posix_spawnp("sh", ["sh", "-c", again, again], {"HEADRACE_JOB": "op.0.1", "PATH": os.environ["PATH"]})
    try:
        found = {processes.marker(pid) for _ in range(20_000)}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    assert "op.0.1" in found
    assert found <= {"op.0.1", None}


def test_a_process_that_ends_is_never_taken_for_one_without_a_marker() -> None:
    """It has no memory any more, and its children are not the runner's yet: the end of its job was reported while they lived."""
    processes = LinuxProcesses()
    found: set[str | None] = set()
    for _ in range(200):
        pid = os.posix_spawnp("true", ["true"], {"HEADRACE_JOB": "op.0.1", "PATH": os.environ["PATH"]})
        while not processes.exited(pid):
            found.add(processes.marker(pid))
        os.waitpid(pid, 0)

    assert found <= {"op.0.1", None}


class WithLeftover(WithOrphan):
    """The orphan is what a killed runner left; it is gone once it was killed."""

    def pids(self) -> list[int]:
        return [] if self.killed else [self.orphan]

    def pidfd(self, pid: int) -> int:
        return os.dup(0)

    def signal_pidfd(self, pidfd: int, number: int) -> bool:
        return self.signal(self.orphan, number)

    def session(self, pid: int) -> int | None:
        return None


def test_what_a_killed_runner_left_is_killed_though_it_starts_another_program_when_it_is_looked_for() -> None:
    processes = WithLeftover()
    leftover = Leftover(JobRecord(a_job(), "alloc-1", "this boot"), None)

    assert end_leftovers(Host(LinuxFiles(), processes), [leftover], "this boot") == 1
    assert processes.killed == [processes.orphan]


def test_a_program_without_variables_has_no_marker() -> None:
    processes = LinuxProcesses()
    pid = os.posix_spawnp("sleep", ["sleep", "1000"], {})
    try:
        while (marker := processes.marker(pid)) is None:
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    assert marker == ""
