"""Starts the runner's process and sees it end, through a pidfd. The process may outlive us."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

import anyio

from headrace.errors import HeadraceError
from headrace_agent.settings import AgentSettings

__all__ = ["IN_USE", "NotStarted", "RunnerProcess", "start_runner"]

#: Exit status of a runner that found another one in its state folder.
IN_USE = 3
_START_TIMEOUT_S = 20.0
#: The runner's own log is put aside when a runner is started and it has grown past this.
_LARGEST_LOG_BYTES = 16 * 1024 * 1024
#: What a runner gets of our environment: what Python needs to find it.
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TMPDIR")


class NotStarted(HeadraceError):
    """No runner could be started. `status` is the exit status of the one that was tried, None for one that may live."""

    def __init__(self, why: str, status: int | None) -> None:
        self.status = status
        super().__init__(why)


class RunnerProcess:
    """A child of ours."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._status: int | None = None

    def status(self) -> int | None:
        """Exit status, less than 0 for a signal, or None while it lives."""
        if self._status is None:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(code)
                os.close(self._pidfd)
        return self._status

    async def wait(self) -> int:
        """Waits for its end."""
        while (status := self.status()) is None:
            await anyio.wait_readable(self._pidfd)
        return status

    def terminate(self) -> None:
        """Tells it to end its jobs and itself."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def release(self) -> None:
        """It lives on without us."""
        if self._status is None:
            self._status = 0
            os.close(self._pidfd)


async def start_runner(settings: AgentSettings) -> RunnerProcess:
    """Starts a runner and waits until it listens. Raises `NotStarted`."""
    ready, theirs = os.pipe()
    try:
        try:
            process = RunnerProcess(_spawn(settings, theirs))
        except OSError as error:
            raise NotStarted(f"no runner can be started: {error.filename}: {error.strerror}", 1) from None
        finally:
            os.close(theirs)
        with anyio.move_on_after(_START_TIMEOUT_S):
            await anyio.wait_readable(ready)
            if os.read(ready, 64):
                return process
            status = await process.wait()
            why = f"no runner can be started in {settings.state()} (exit status {status}, see runner.log there)"
            if status == IN_USE:
                why = f"another runner uses {settings.state()} and does not listen"
            raise NotStarted(why, status)
        process.terminate()
        process.release()
        raise NotStarted(f"the runner was not ready within {_START_TIMEOUT_S:.0f} s", None)
    finally:
        os.close(ready)


def _spawn(settings: AgentSettings, ready_fd: int) -> int:
    """In a session of its own, with nothing of our environment but what Python needs."""
    os.set_inheritable(ready_fd, True)
    arguments = [sys.executable, "-m", "headrace_agent.runner", "--state", settings.state(), "--logs", settings.logs()]
    arguments += ["--isolation", settings.isolation, "--cgroup", settings.cgroup, "--ready-fd", str(ready_fd)]
    arguments += ["--log-cap-bytes", str(settings.log_cap_bytes)]
    arguments += ["--logs-total-bytes", str(settings.logs_total_bytes)]
    arguments += ["--log-level", "debug" if settings.log_level == "debug" else "info"]
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    log = _log_path(settings.state())
    actions: list[tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, writing, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, log, writing, 0o600),
    ]
    return os.posix_spawn(sys.executable, arguments, environment, file_actions=actions, setsid=True)


def _log_path(state: str) -> str:
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        path = f"{state}/runner.log"
        if os.path.exists(path) and os.path.getsize(path) > _LARGEST_LOG_BYTES:
            os.replace(path, f"{path}.1")
        with open(path, "ab"):
            return path
    except OSError:
        return os.devnull  # the runner's exit status will tell that something is wrong with the folder
