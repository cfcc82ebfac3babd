"""Find the processes of a state folder by their marks. Each process carries its mark itself, so no list of pids can become stale.

`up` puts `HEADRACE_UP=<state folder>` into the environment of everything it starts. Runners and jobs lack this variable, because an agent
starts its runner with another environment. A runner is recognized by the folder in its command line, and a job by `HEADRACE_RUNNER=<that
folder>` in its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from headrace.files.proc import LARGEST_COMMAND_LINE_BYTES, read_proc

UP_MARK = "HEADRACE_UP"
RUNNER_MARK = "HEADRACE_RUNNER"
#: Seconds that a leftover process gets to end before it is killed.
_GRACE_S = 3.0
_POLL_S = 0.05
#: How often a process in the middle of `execve` is read again, and the seconds between two readings.
_READINGS = 10
_READING_S = 0.002


class Found(NamedTuple):
    """A process that belongs to a state folder."""

    pid: int
    #: Role of the process: `job`, `runner`, `agent`, `nats-server`, or the name of a service.
    role: str


def find(state: Path) -> list[Found]:
    """Return all processes that belong to this state folder, except the caller. Processes of other users are not found, because they cannot
    be inspected.
    """
    return [Found(process.pid, role) for process, role in _ours(state)]


def kill(state: Path, roles: frozenset[str] | None = None, number: int = signal.SIGKILL) -> None:
    """Send a signal to all processes of the state folder, or only to processes with one of the `roles`. If a process ended meanwhile and
    another process got its pid, that other process gets no signal.
    """
    for process, role in _ours(state):
        if roles is None or role in roles:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)


def _ours(state: Path) -> list[tuple[psutil.Process, str]]:
    everybody = [process for process in psutil.process_iter() if process.pid != os.getpid()]
    return [(process, role) for process in everybody if (role := _role(process, str(state)))]


def end_leftovers(state: Path, *, leave_jobs: bool, agents_time_s: float) -> list[Found]:
    """End the processes that a killed `up` left: first agents, which interrupt their jobs, then services. Then kill every process that is
    left.

    Blocks until this is done. Returns the processes that were found before any was ended. With `leave_jobs`, runners and jobs are not
    ended.
    """
    spared = {"runner", "job"} if leave_jobs else set()
    everything = [process for process in find(state) if process.role not in spared]
    agent_signal = signal.SIGUSR2 if leave_jobs else signal.SIGTERM
    if any(process.role == "agent" for process in everything):
        kill(state, frozenset({"agent"}), agent_signal)
        _wait_gone(state, {"agent"}, agents_time_s)
    services = frozenset(process.role for process in everything) - {"agent", "runner", "job"}
    if services:
        kill(state, services, signal.SIGTERM)
        _wait_gone(state, set(services), _GRACE_S)
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline:
        left = frozenset(process.role for process in find(state)) - spared
        if not left:
            break
        kill(state, left)
        time.sleep(_POLL_S)
    return everything


def _wait_gone(state: Path, roles: set[str], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and any(process.role in roles for process in find(state)):
        time.sleep(_POLL_S)


def _role(process: psutil.Process, state: str) -> str:
    """Return the role of a process. Empty if it does not belong to the state folder, has ended, or cannot be inspected."""
    try:
        words, variables = _words_and_variables(process.pid)
    except OSError:
        return ""
    arguments = os.fsdecode(words).removesuffix("\0").split("\0") if words else []
    environment = {name: value for name, _, value in (each.partition("=") for each in variables)}
    if RUNNER_MARK in environment:
        return "job" if _is_agents(environment[RUNNER_MARK], state) else ""
    if _is_runner(arguments, state):
        return "runner"
    return _role_of(arguments) if environment.get(UP_MARK) == state else ""


def _words_and_variables(pid: int) -> tuple[bytes, list[str]]:
    """Return command line and environment of a process. Raises OSError if it has ended or cannot be inspected."""
    for _ in range(_READINGS):
        words = read_proc(f"/proc/{pid}/cmdline", LARGEST_COMMAND_LINE_BYTES)
        variables = read_proc(f"/proc/{pid}/environ")
        # In the middle of `execve` the kernel shows neither command line nor environment, but a program. A process that has ended and a
        # kernel thread have no program.
        if (words and variables) or not os.path.exists(f"/proc/{pid}/exe"):
            break
        time.sleep(_READING_S)
    return words, os.fsdecode(variables).split("\0")


def _is_runner(arguments: list[str], state: str) -> bool:
    """True for `python -m headrace_agent.runner --state <folder of an agent in the state folder> …`."""
    if arguments[1:3] != ["-m", "headrace_agent.runner"] or "--state" not in arguments[:-1]:
        return False
    return _is_agents(arguments[arguments.index("--state") + 1], state)


def _is_agents(folder: str, state: str) -> bool:
    return os.path.realpath(folder).startswith(f"{os.path.realpath(state)}/agents/")


def _role_of(arguments: list[str]) -> str:
    if arguments and os.path.basename(arguments[0]) == "nats-server":
        return "nats-server"
    if arguments[1:2] == ["-m"] and "".join(arguments[2:3]).startswith("headrace_"):
        return arguments[2].removeprefix("headrace_")
    return "other" if arguments else ""
