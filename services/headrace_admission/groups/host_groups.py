"""The groups that the host of admission knows for a person: its name service (NSS), which may ask a directory.

A lookup may take seconds, so it runs in a thread.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from headrace.errors import BadInput
from headrace.ids import GroupName, group_name, is_user_name
from headrace.runtime.clock import Clock
from headrace.wire.groups import MOST_GROUPS_OF_A_PERSON
from headrace_admission.groups.lookups import GroupLookups, Take

#: Seconds after which the result of a lookup does not count any more, even if the name service does not answer.
_LONGEST_S: Final = 60.0
#: Upper bound of the lookups that run at the same time. If the name service hangs, it blocks no more threads than this.
_AT_ONCE: Final = 4

Lookup = Callable[[str], tuple[GroupName, ...]]


def groups_on_host(user: str) -> tuple[GroupName, ...]:
    """Return the groups of an account of this host, the primary group first; none if the host does not know the account.

    Groups whose names are not legal in Headrace are left out. The call blocks until the name service answers.
    """
    if not is_user_name(user):
        # A name from a subject may have characters that `getpwnam` does not accept.
        return ()
    try:
        gid = pwd.getpwnam(user).pw_gid
    except KeyError:
        return ()
    found: dict[GroupName, None] = {}
    for each in dict.fromkeys((gid, *os.getgrouplist(user, gid))):
        try:
            found[group_name(grp.getgrgid(each).gr_name)] = None
        except (KeyError, BadInput):
            continue
    return tuple(found)[:MOST_GROUPS_OF_A_PERSON]


class HostGroups(GroupLookups):
    """Looks up the groups that this host knows for people."""

    def __init__(self, clock: Clock, tasks: anyio.abc.TaskGroup, take: Take, lookup: Lookup = groups_on_host) -> None:
        limiter = anyio.CapacityLimiter(_AT_ONCE)

        async def look_up(user: str) -> tuple[GroupName, ...]:
            return await anyio.to_thread.run_sync(lookup, user, abandon_on_cancel=True, limiter=limiter)

        super().__init__(clock, tasks, take, look_up, longest_s=_LONGEST_S, where="host")
