"""Starts the runner's process, which may outlive the agent."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import BinaryIO

import anyio

from headrace.child_process import wait_for_end
from headrace.errors import HeadraceError
from headrace_agent.host.own_folder import take_own_folder
from headrace_agent.settings import AgentSettings

#: Exit status of a runner that found another runner in its state folder.
IN_USE = 3
_START_TIMEOUT_S = 20.0
#: Size of the runner's own log above which the log is moved aside when a runner is started.
_LARGEST_LOG_BYTES = 16 * 1024 * 1024
#: Variables of the agent's environment that a runner gets. Python needs them to find the modules of the runner.
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TMPDIR")


class NoRunner(HeadraceError):
    """There is no runner to connect to. `status` is the exit status of the runner that was started; None: no runner was started, or the
    runner may still be alive.
    """

    def __init__(self, why: str, status: int | None) -> None:
        self.status = status
        super().__init__(why)


async def start_runner(settings: AgentSettings) -> subprocess.Popen[bytes]:
    """Start a runner and wait until it listens. Raises `NoRunner`."""
    ready, theirs = os.pipe()
    try:
        try:
            process = _spawn(settings, theirs)
        except OSError as error:
            raise NoRunner(f"no runner can be started: {error.filename}: {error.strerror}", 1) from None
        finally:
            os.close(theirs)
        with anyio.move_on_after(_START_TIMEOUT_S):
            await anyio.wait_readable(ready)
            if os.read(ready, 64):
                return process
            status = await wait_for_end(process)
            why = f"no runner can be started in {settings.state()} (exit status {status}, see runner.log there)"
            if status == IN_USE:
                why = f"another runner uses {settings.state()}, but does not listen"
            raise NoRunner(why, status)
        process.terminate()
        let_go(process)
        raise NoRunner(f"the runner was not ready within {_START_TIMEOUT_S:.0f} s", None)
    finally:
        os.close(ready)


def let_go(process: subprocess.Popen[bytes]) -> None:
    """Stop tracking the runner's process, which continues to run without the agent."""
    process.returncode = process.poll() or 0


def runner_command(settings: AgentSettings) -> list[str]:
    """Return the command line of a runner for an agent with these settings."""
    command = [sys.executable, "-m", "headrace_agent.runner", "--state", settings.state(), "--logs", settings.logs()]
    command += ["--isolation", settings.isolation, "--cgroup", settings.cgroup]
    command += ["--job-pids", str(settings.job_pids)]
    command += ["--session-grace-ms", str(settings.session_grace_ms)]
    command += ["--log-cap-bytes", str(settings.log_cap_bytes)]
    command += ["--logs-total-bytes", str(settings.logs_total_bytes)]
    return [*command, "--log-level", "debug" if settings.log_level == "debug" else "info"]


def _spawn(settings: AgentSettings, ready_fd: int) -> subprocess.Popen[bytes]:
    """Start the runner in a session of its own, with only the variables of the agent's environment that Python needs."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    with _open_log(settings.state()) as log:
        return subprocess.Popen(
            [*runner_command(settings), "--ready-fd", str(ready_fd)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[ready_fd],
            start_new_session=True,
        )


def _open_log(state: str) -> BinaryIO:
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        take_own_folder(state, 0o700)
        path = f"{state}/runner.log"
        if os.path.exists(path) and os.path.getsize(path) > _LARGEST_LOG_BYTES:
            os.replace(path, f"{path}.1")
        return open(path, "ab", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600))
    except OSError:
        # No error is raised here: the runner will find the same fault of the folder, and its exit status will show it.
        return open(os.devnull, "ab")
