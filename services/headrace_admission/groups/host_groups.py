"""The groups that the host of admission knows for a person: its name service (NSS), which may ask a directory.

A lookup may take seconds, so it runs in a thread, and its result counts for a bounded time.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from headrace.errors import BadInput
from headrace.ids import GroupName, group_name, is_user_name
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.wire.groups import MOST_GROUPS_OF_A_PERSON

#: Seconds from the beginning of a lookup during which its result is used without another lookup.
_FRESH_S: Final = 0.9
#: Seconds that a request waits for a lookup. After that the result of the last lookup counts.
_WAIT_S: Final = 1.0
#: Seconds after which the result of a lookup does not count any more, even if no newer lookup has succeeded.
_LONGEST_S: Final = 60.0
#: Upper bound of the lookups that run at the same time. If the name service hangs, it blocks no more threads than this.
_AT_ONCE: Final = 4
#: Upper bound of the people whose groups are kept.
_MOST_PEOPLE: Final = 4_096

Lookup = Callable[[str], tuple[GroupName, ...]]
#: Function that takes a person and the groups of the person; None: the groups are not known any more.
Take = Callable[[str, tuple[GroupName, ...] | None], None]


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


class _Running(msgspec.Struct):
    began_s: float
    done: anyio.Event


class _Known(msgspec.Struct):
    #: Steady time at which the last lookup that succeeded began.
    looked_at_s: float
    running: _Running | None = None


class HostGroups:
    """Looks up the groups of people before their requests are decided, and hands the groups to `take`."""

    def __init__(self, clock: Clock, tasks: anyio.abc.TaskGroup, take: Take, lookup: Lookup = groups_on_host) -> None:
        self._clock = clock
        self._tasks = tasks
        self._take = take
        self._lookup = lookup
        self._known: dict[str, _Known] = {}
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def know(self, user: str) -> None:
        """Wait until the groups of the person are at most a second old, but no longer than a second after the lookup began.

        All requests of a person share one lookup. If the name service hangs, requests that come more than a second after the beginning of
        the lookup do not wait.
        """
        now_s = self._clock.steady_s()
        known = self._known.get(user) or self._remember(user, now_s)
        if now_s - known.looked_at_s < _FRESH_S:
            return
        if known.running is None:
            known.running = _Running(now_s, anyio.Event())
            self._tasks.start_soon(self._look_up, user, known, known.running)
        with anyio.move_on_after(known.running.began_s + _WAIT_S - now_s):
            await known.running.done.wait()
        if self._clock.steady_s() - known.looked_at_s > _LONGEST_S:
            self._take(user, None)

    def _remember(self, user: str, now_s: float) -> _Known:
        while len(self._known) >= _MOST_PEOPLE:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._take(oldest, None)
        return self._known.setdefault(user, _Known(now_s - _LONGEST_S))

    async def _look_up(self, user: str, known: _Known, running: _Running) -> None:
        try:
            groups = await anyio.to_thread.run_sync(self._lookup, user, abandon_on_cancel=True, limiter=self._limiter)
        except OSError as error:
            logger().warning("groups of the host not read", user=user, error=str(error))
        else:
            if self._known.get(user) is known:
                known.looked_at_s = running.began_s
                self._take(user, groups)
        finally:
            known.running = None
            running.done.set()
