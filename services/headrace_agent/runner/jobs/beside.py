"""Commands that sessions run beside jobs. Such a command is killed when its job ends, but the job goes on when the command ends."""

from __future__ import annotations

import signal

from headrace.wire.heartbeat import JobKey
from headrace_agent.runner.host.interface import Host
from headrace_agent.runner.host.starting import Starting
from headrace_agent.runner.jobs.starts import Starts


class CommandsBesideJobs:
    """The processes of the commands of all sessions. `Sessions` adds and removes them."""

    def __init__(self, host: Host, starts: Starts) -> None:
        self._host = host
        self._starts = starts
        #: The job of each command that runs its program, by the pid of the command.
        self.running: dict[int, JobKey] = {}
        #: The job of each command that does not run its program yet.
        self.starting: dict[Starting, JobKey] = {}

    def end_with(self, job: JobKey, known: set[int]) -> bool:
        """Kill the commands beside a job that has ended. Return True if there are any. `known` holds the pids of the jobs' main
        processes.
        """
        running = [pid for pid, owner in self.running.items() if owner == job]
        starting = [each for each, owner in self.starting.items() if owner == job]
        for pid in running:
            self._host.processes.signal_group(pid, signal.SIGKILL)
        for each in starting:
            self._host.processes.starter.kill(each, known | self.running.keys())
        return bool(running or starting)

    def bury(self, starting: Starting) -> None:
        """Forget a command whose program could not run. If the command has a process nevertheless, kill and reap it."""
        del self.starting[starting]
        self._starts.end_process(starting.pid)
