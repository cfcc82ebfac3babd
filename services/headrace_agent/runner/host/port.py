"""The one port to the host: every file, process and clock that the runner touches is touched through a `Host`.

A test may put a subclass in the place of either part and fail any single call.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace_agent.runner.host.files import LinuxFiles
from headrace_agent.runner.host.processes import LinuxProcesses


class Host(NamedTuple):
    """The host as the runner sees it."""

    files: LinuxFiles
    processes: LinuxProcesses
