"""For the agent: starts the runner of a state folder unless one is there, and hands out a connection to it."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence

from headrace.errors import HeadraceError
from headrace_agent.runner.frames import connect

__all__ = ["RunnerNotStarted", "reach"]

_READY_MS = 10_000


class RunnerNotStarted(HeadraceError):
    """The runner could not be started."""


def reach(state: str, options: Sequence[str] = (), log_fd: int | None = None) -> socket.socket:
    """A blocking connection to the runner of `state`, which is started if none answers; waits until it is ready, 10 s at most.

    `options` are further words of its command line; its log goes to `log_fd`, by default to our stderr. Blocks: call it in a thread.
    Raises `RunnerNotStarted` with what the runner said.
    """
    try:
        return connect(state)
    except OSError:
        pass
    said = _start(state, options, log_fd)
    try:
        return connect(state)
    except OSError as error:
        raise RunnerNotStarted(f"the runner of {state} cannot be reached: {said or error}") from None


def _start(state: str, options: Sequence[str], log_fd: int | None) -> str:
    """Returns when the runner is ready, has ended or has had its time; in words what went wrong, if that is known."""
    ready, ready_end = os.pipe2(os.O_CLOEXEC)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace_agent.runner", "--state", state, "--ready-fd", str(ready_end), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log_fd,
            pass_fds=[ready_end],
            start_new_session=True,
        )
    except OSError as error:
        os.close(ready)
        raise RunnerNotStarted(str(error)) from None
    finally:
        os.close(ready_end)
    try:
        poll = select.poll()
        poll.register(ready, select.POLLIN)
        if not poll.poll(_READY_MS):
            return f"it was not ready after {_READY_MS / 1000:g} s"
        if os.read(ready, 16):
            return ""
        return f"it ended with status {process.wait()}; its log says why"
    finally:
        os.close(ready)
