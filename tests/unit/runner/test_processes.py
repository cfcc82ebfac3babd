"""The table of processes, asked in an order that a loop only rarely sees."""

from __future__ import annotations

import select
import signal
from pathlib import Path

from headrace_agent.job_logs.reader import read_log
from headrace_agent.runner.files.kept_jobs import KeptJobs
from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.files.scratch import ScratchFolders
from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.host.port import Host
from headrace_agent.runner.host.processes import LinuxProcesses
from headrace_agent.runner.jobs.isolation import Isolation
from headrace_agent.runner.jobs.launch import Launcher
from headrace_agent.runner.jobs.processes import ProcessTable
from headrace_agent.runner.settings import parse
from tests.unit.runner.builders import a_job, a_run
from tests.unit.runner.harness import gone


def a_table(folder: Path) -> ProcessTable:
    host, poll = Host(LinuxFiles(), LinuxProcesses()), select.epoll()
    settings = parse(["--state", str(folder)])
    for name in ("logs", "scratch"):
        (folder / name).mkdir()
    kept = KeptJobs(host.files, str(folder))
    kept.load()
    isolation = Isolation("")
    scratch = ScratchFolders(host.files, str(folder), Removal(host.files, f"{folder}/trash"))
    launcher = Launcher(host, settings, kept, isolation, scratch, open_files=(1024, 1024))
    return ProcessTable(host, settings, poll, launcher, isolation, scratch)


def test_what_is_in_the_pipes_when_the_job_has_ended_is_kept(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    launched = table.launch(a_run(0, "sh", "-c", "head -c 60000 /dev/zero; echo oh >&2; exit 4"))
    assert launched.failure == ""
    assert gone(launched.pid)
    [pidfd] = table.ended_unseen([a_job()])
    table.on_main_ended(pidfd, LinuxProcesses().now())
    [(job, exit)] = table.look(LinuxProcesses().now())

    assert job == a_job()
    assert (exit.exit_code, exit.stderr_tail) == (4, "oh\n")
    assert read_log(str(tmp_path / "logs"), a_job(), "stdout").size == 60_000
    assert len(table) == 0


def test_a_job_whose_main_process_ended_takes_no_signal_any_more(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    assert gone(table.launch(a_run(0, "true")).pid)
    [pidfd] = table.ended_unseen([a_job()])
    table.on_main_ended(pidfd, LinuxProcesses().now())

    table.signal(a_job(), signal.SIGTERM)
    assert table.ended_unseen([a_job(), a_job(7)]) == []
    assert len(table.look(LinuxProcesses().now())) == 1
