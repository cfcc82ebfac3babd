"""The interface to the host: the runner uses files, processes, terminals and clocks only through a `Host`.

A test may replace each part by an object of a subclass, and so make any single call fail.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.host.linux_processes import LinuxProcesses
from headrace_agent.runner.host.terminals import LinuxTerminals


class Host(NamedTuple):
    """All parts of the host that the runner uses."""

    files: LinuxFiles
    processes: LinuxProcesses
    terminals: LinuxTerminals = LinuxTerminals()
