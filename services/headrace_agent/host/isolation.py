"""The isolation of the agent from its jobs: whether they can reach its key, or the socket of its runner.

Whoever has the key can speak for the node, and whoever reaches the runner can start what they like as any account.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from headrace_agent.host.accounts import AGENT, Users

#: Rights of everybody but the owner.
_OF_OTHERS: Final = 0o077


class Isolation(NamedTuple):
    """The isolation of an agent from its jobs, and its reason in words."""

    is_full: bool
    detail: str

    @property
    def word(self) -> str:
        """The isolation in one word, as people read it of a node."""
        return "full" if self.is_full else "none"


def isolation_of(users: Users, secrets: Iterable[str], *, is_root: bool) -> Isolation:
    """The isolation of an agent with this setting `users`, from jobs that must not reach its `secrets`."""
    if not is_root:
        return Isolation(False, "jobs run as the agent's own account, so they can read its key")
    if users == AGENT:
        return Isolation(False, "jobs run as root, so they can read the agent's key")
    if not users:
        return Isolation(False, "the agent is root, and its setting `users` names no account for jobs")
    for secret in secrets:
        if not _is_closed(Path(secret)):
            return Isolation(False, f"accounts other than the agent's can reach {secret}")
    return Isolation(True, "jobs run as other accounts, which reach neither the agent's key nor its runner")


def _is_closed(path: Path) -> bool:
    """True if it, or a folder above, lets in nobody but us. What is not there yet is made so."""
    ways = [os.stat(each) for each in (path, *path.parents) if each.exists()]
    return not path.exists() or any(way.st_uid == os.geteuid() and not way.st_mode & _OF_OTHERS for way in ways)
