"""Starts that fail at the host's end, without a host that is really so poor."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace_agent.runner.files.kept_jobs import KeptJobs
from headrace_agent.runner.files.log_retention import Retention
from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.files.scratch import ScratchFolders
from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.linux_processes import LinuxProcesses
from headrace_agent.runner.host.starting import Spawn, Starter, Starting
from headrace_agent.runner.jobs.isolation import Isolation
from headrace_agent.runner.jobs.launch import Launched, Launcher, NotStarted
from headrace_agent.runner.protocol import Run
from headrace_agent.runner.settings import parse
from tests.unit.runner.builders import OPERATION, a_run
from tests.unit.runner.harness import readable


class PoorHost(LinuxProcesses):
    """Fails one kind of call with one error, and knows which processes it started."""

    def __init__(self, call: str, error: int) -> None:
        super().__init__()
        self._call = call
        self._error = error
        self.starter = PoorStarter(self)
        self.started: list[int] = []

    def fail(self, call: str) -> None:
        if call == self._call:
            raise OSError(self._error, os.strerror(self._error))

    def pipe(self) -> tuple[int, int]:
        self.fail("pipe")
        return super().pipe()

    def pidfd(self, pid: int) -> int:
        self.fail("pidfd")
        return super().pidfd(pid)


class PoorStarter(Starter):
    """The starts of a poor host."""

    def __init__(self, host: PoorHost) -> None:
        super().__init__(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        self._host = host

    def begin(self, order: Spawn) -> Starting:
        self._host.fail("begin")
        return super().begin(order)

    def result(self, starting: Starting) -> int:
        self._host.started.append(super().result(starting))
        return self._host.started[-1]


def a_launcher(
    folder: Path, processes: LinuxProcesses, files: LinuxFiles | None = None, retention: Retention | None = None
) -> Launcher:
    host = Host(files or LinuxFiles(), processes)
    settings = parse(["--state", str(folder)])
    for name in ("logs", "scratch"):
        (folder / name).mkdir()
    kept = KeptJobs(host.files, str(folder))
    kept.load()
    scratch = ScratchFolders(host.files, str(folder), Removal(host.files, f"{folder}/trash"))
    return Launcher(host, settings, kept, Isolation(""), scratch, retention or Retention(0), open_files=(1024, 1024))


def launch(launcher: Launcher, run: Run) -> Launched:
    """Starts a job and waits until its program runs."""
    begun = launcher.begin(run)
    assert readable(begun.starting.fd)
    return launcher.finish(begun)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ("begin", errno.EAGAIN, "the host cannot start another process"),
        ("begin", errno.ENOMEM, "the host cannot start another process"),
        ("pipe", errno.EMFILE, "no file descriptor is left"),
        ("pidfd", errno.EMFILE, "no file descriptor is left"),
    ],
)
def test_a_host_without_room_fails_the_job_and_leaves_nothing_behind(
    tmp_path: Path, call: str, error: int, words: str
) -> None:
    host = PoorHost(call, error)
    launcher = a_launcher(tmp_path, host)
    before = os.listdir("/proc/self/fd")

    with pytest.raises(NotStarted, match=words) as refusal:
        launch(launcher, a_run(0, "sleep", "1000"))

    assert refusal.value.exit_code is None
    # The file of the job is open until its end is written.
    assert len(os.listdir("/proc/self/fd")) == len(before) + 1
    assert list((tmp_path / "scratch").iterdir()) == []
    for pid in host.started:  # the table of starts kills and reaps it
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_the_folder_of_logs_is_made_for_the_first_job_of_an_operation_only(tmp_path: Path) -> None:
    made: list[str] = []

    class Files(LinuxFiles):
        def make_folder(self, path: str) -> None:
            made.append(path)
            super().make_folder(path)

    retention = Retention(0)
    launcher = a_launcher(tmp_path, LinuxProcesses(), Files(), retention)
    for index in (0, 1):
        launched = launch(launcher, a_run(index, "true"))
        retention.job_started(OPERATION, 0.0)
        os.waitpid(launched.pid, 0)
        for fd in (launched.pidfd, launched.stdout_fd, launched.stderr_fd):
            os.close(fd)
    retention.job_ended(OPERATION, 0.0)

    assert made.count(f"{tmp_path}/logs/{OPERATION}") == 1


class Disk(NamedTuple):
    """What the system says of a disk, as far as it counts."""

    f_bavail: int
    f_favail: int = 1_000
    f_frsize: int = 4_096
    f_blocks: int = 1_000_000
    f_files: int = 1_000


@pytest.mark.parametrize("disk", [Disk(f_bavail=255), Disk(f_bavail=1_000_000, f_favail=0)])
def test_where_output_would_find_no_room_no_job_starts_and_the_host_is_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk
) -> None:
    launcher = a_launcher(tmp_path, LinuxProcesses())
    monkeypatch.setattr(os, "statvfs", lambda path: disk)

    with pytest.raises(NotStarted, match=f"{tmp_path}/logs cannot be written: No space left on device") as refusal:
        launch(launcher, a_run(0, "true"))

    assert refusal.value.exit_code is None


@pytest.mark.parametrize("disk", [Disk(f_bavail=256), Disk(f_bavail=0, f_blocks=0), Disk(256, f_favail=0, f_files=0)])
def test_a_disk_that_has_room_or_does_not_tell_is_written_to(monkeypatch: pytest.MonkeyPatch, disk: Disk) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: disk)

    LinuxFiles().check_room("/", 2**20)
