"""Looks up the accounts of the host that jobs run as."""

from __future__ import annotations

import os
import pwd
from typing import Final, NamedTuple

from headrace.errors import HeadraceError
from headrace_agent.runner.protocol import NO_ACCOUNT

#: The uid of `nobody`, to which the kernel and NFS map unknown accounts.
_OVERFLOW_UID: Final = 65_534


class NoAccount(HeadraceError):
    """Jobs cannot run as the account: the host has no account of that name, or the account belongs to the superuser or the system."""


class Account(NamedTuple):
    """An account of the host, with its ids, groups and home folder."""

    name: str
    uid: int
    gid: int
    groups: list[int]
    home: str

    def environment(self) -> dict[str, str]:
        """Return the environment variables that depend on the account."""
        return {"HOME": self.home, "LOGNAME": self.name, "USER": self.name}


def account_named(name: str, lowest_uid: int = 0) -> Account:
    """Return the account of that name. Raises `NoAccount`.

    With a `lowest_uid`, accounts with a smaller uid and the account `nobody` are refused.
    """
    if name == NO_ACCOUNT:
        raise NoAccount("the agent of this host is root, and its setting `users` names no account for this person")
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise NoAccount(f"this host has no account {name}") from None
    if found.pw_uid == 0:
        raise NoAccount(f'account {name} is the superuser\'s; jobs run as the superuser only with `users = "agent"`')
    if found.pw_uid < lowest_uid or (lowest_uid and found.pw_uid == _OVERFLOW_UID):
        raise NoAccount(
            f'account {name} (uid {found.pw_uid}) is a system account: with `users = "same"` jobs run only as accounts of people, '
            f"whose uid is {lowest_uid} or more (setting `lowest_uid` of the agent)"
        )
    groups = os.getgrouplist(name, found.pw_gid)
    return Account(name, found.pw_uid, found.pw_gid, groups, found.pw_dir)
