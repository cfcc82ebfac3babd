"""Starts as another account: whatever the account does to a process on its way to its program, the root runner goes on."""

from __future__ import annotations

import os
import pwd
import resource
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.heartbeat import JobResult
from headrace_agent.runner.host.accounts import account_named
from headrace_agent.runner.host.starting import CannotStart, Spawn, Starter
from headrace_agent.runner.protocol import Interrupt
from tests.security.test_runner_starts import LATE, Leased, is_of, leased
from tests.unit.runner.builders import a_job, a_run
from tests.unit.runner.harness import PATIENCE_S, ARunner, gone, runner

__all__ = ["leased", "runner"]

NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = {"account": NOBODY.pw_name, "working_directory": "/"}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that every account may enter, unlike those that pytest makes."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        yield Path(folder)


def on_its_way(runner: ARunner) -> int:
    """The process of the account that is a copy of the runner."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        for name in filter(str.isdigit, os.listdir("/proc")):
            if is_of(runner, name) and Path(f"/proc/{name}").stat().st_uid in (NOBODY.pw_uid, 0):
                status = Path(f"/proc/{name}/status").read_text()
                if f"\nUid:\t{NOBODY.pw_uid}\t" in status:
                    return int(name)
    raise AssertionError("no process is on its way")


def test_while_the_job_of_an_account_waits_for_its_program_others_start_and_end(
    runner: ARunner, leased: Leased
) -> None:
    agent = runner.start(*LATE)
    agent.say(a_run(0, str(leased.path), **AS_NOBODY))

    assert agent.sh(1, "exit 3", **AS_NOBODY).exit_code == 3
    end = agent.end_of(0)
    leased.give_back()
    assert (end.result, end.exit_code) == (JobResult.FAILED, 126)
    assert "did not begin to run within 0.5 s in /" in end.reason
    assert not leased.ran.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSTOP, signal.SIGHUP])
def test_a_signal_to_the_process_of_a_start_is_no_signal_to_the_runner(
    runner: ARunner, leased: Leased, number: signal.Signals
) -> None:
    """The process is a copy of the runner: it must not have the runner's own way to learn of signals."""
    agent = runner.start()
    agent.say(a_run(0, str(leased.path), **AS_NOBODY))
    pid = on_its_way(runner)
    os.kill(pid, number)
    agent.say(Interrupt(a_job(0), 0, "over"))
    agent.end_of(0)

    assert agent.sh(1, "exit 3").exit_code == 3
    assert gone(pid)
    assert not runner.events("signal")
    leased.give_back()


def test_the_process_of_a_start_has_nothing_of_the_runner_open(runner: ARunner, leased: Leased) -> None:
    agent = runner.start()
    agent.say(a_run(0, str(leased.path), **AS_NOBODY))
    pid = on_its_way(runner)
    while (found := sorted(map(int, os.listdir(f"/proc/{pid}/fd"))))[3:4] != found[3:]:
        pass

    names = {os.readlink(f"/proc/{pid}/fd/{number}").partition(":")[0] for number in found}
    leased.give_back()
    assert names <= {"/dev/null", "pipe"}
    assert agent.hello().running[0].run.job == a_job(0)


def test_a_folder_that_only_root_may_enter_is_refused_before_it_is_looked_at(runner: ARunner, tmp_path: Path) -> None:
    (tmp_path / "private" / "inside").mkdir(parents=True)
    (tmp_path / "private").chmod(0o700)
    agent = runner.start()

    for folder in ("private/inside", "private/missing"):
        path = str(tmp_path / folder)
        end = agent.sh(0 if folder.endswith("inside") else 1, "pwd", account="nobody", working_directory=path)
        assert end.reason == f"not started: the working directory {path}: Permission denied"


def test_the_process_joins_its_cgroup_before_its_program_runs(leased: Leased, tmp_path: Path) -> None:
    """A program that starts others in its first moments must not leave them outside."""
    procs = tmp_path / "cgroup.procs"
    procs.touch(0o600)
    null = os.open(os.devnull, os.O_RDWR)
    starter = Starter(null)
    order = Spawn([str(leased.path)], {}, "/", null, null, account_named("nobody"), cgroup_file=str(procs))
    starting = starter.begin(order)
    while not procs.read_text():
        assert not starter.is_over(starting, 1)
    ran_before = leased.ran.exists()
    starter.kill(starting, ())
    leased.give_back()

    assert (procs.read_text(), ran_before) == ("0", False)
    assert starter.is_over(starting, 20_000)
    assert os.waitpid(starter.result(starting), 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("missing", ["cgroup.procs", "limits"])
def test_a_process_that_cannot_be_limited_does_not_run_its_program(tmp_path: Path, missing: str) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    starter = Starter(null)
    limits = {resource.RLIMIT_NOFILE: (2**31, 2**31)} if missing == "limits" else {}
    cgroup = f"{tmp_path}/{missing}" if missing != "limits" else ""
    starting = starter.begin(Spawn(["/bin/true"], {}, "/", null, null, account_named("nobody"), limits, cgroup))

    assert starter.is_over(starting, 20_000)
    with pytest.raises(CannotStart) as refusal:
        starter.result(starting)
    os.waitpid(starting.pid, 0)
    assert refusal.value.part == "limits"
