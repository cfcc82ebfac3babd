"""The isolation of the agent from its jobs: whether jobs can reach the agent's key, or the socket of the agent's runner.

A process with the key can act as the node. A process that reaches the runner can start any program as any account.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from headrace_agent.host.account_mapping import AGENT, UsersSetting

#: Permission bits of all accounts but the owner of a file.
_OF_OTHERS: Final = 0o077


class IsolationFromJobs(NamedTuple):
    """The isolation of an agent from its jobs, and the reason."""

    is_full: bool
    detail: str

    @property
    def word(self) -> str:
        """Return the isolation as lists of nodes show it: `full` or `none`."""
        return "full" if self.is_full else "none"


def isolation_of(users: UsersSetting, secrets: Iterable[str], *, is_root: bool) -> IsolationFromJobs:
    """Return how far an agent is isolated from its jobs. `users` is the agent's setting of that name.

    `secrets` are the paths that the jobs must not reach.
    """
    if not is_root:
        return IsolationFromJobs(False, "jobs run as the agent's own account, so they can read its key")
    if users == AGENT:
        return IsolationFromJobs(False, "jobs run as root, so they can read the agent's key")
    if not users:
        return IsolationFromJobs(False, "the agent is root, and its setting `users` names no account for jobs")
    for secret in secrets:
        if not _is_closed(Path(secret)):
            return IsolationFromJobs(False, f"accounts other than the agent's can reach {secret}")
    return IsolationFromJobs(True, "jobs run as other accounts, which reach neither the agent's key nor its runner")


def _is_closed(path: Path) -> bool:
    """True if the path or a folder above it is closed to all accounts but this process's own. A missing path counts as closed."""
    ways = [os.stat(each) for each in (path, *path.parents) if each.exists()]
    return not path.exists() or any(way.st_uid == os.geteuid() and not way.st_mode & _OF_OTHERS for way in ways)
