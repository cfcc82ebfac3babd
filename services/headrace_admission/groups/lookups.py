"""Lookups of the groups of people before their requests are decided. The result of a lookup counts for a bounded time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.abc
import msgspec

from headrace.errors import HeadraceError
from headrace.ids import GroupName
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock

#: Seconds from the beginning of a lookup during which its result is used without another lookup.
_FRESH_S: Final = 0.9
#: Seconds that a request waits for a lookup. After that the result of the last lookup counts.
_WAIT_S: Final = 1.0
#: Most people whose groups are kept.
_MOST_PEOPLE: Final = 4_096

#: Returns the groups of a person, or raises OSError or `HeadraceError`.
Lookup = Callable[[str], Awaitable[tuple[GroupName, ...]]]
#: Takes a person and the groups of the person; None: nothing is known any more.
Take = Callable[[str, tuple[GroupName, ...] | None], None]


class _Running(msgspec.Struct):
    began_s: float
    done: anyio.Event


class _Known(msgspec.Struct):
    #: Steady time at which the last lookup that succeeded began.
    looked_at_s: float
    running: _Running | None = None


class GroupLookups:
    """Looks up the groups of people before their requests are decided, and hands the groups to `take`."""

    def __init__(
        self, clock: Clock, tasks: anyio.abc.TaskGroup, take: Take, lookup: Lookup, *, longest_s: float, where: str
    ) -> None:
        """`longest_s` is the number of seconds after which a result does not count any more, although later lookups failed.

        `where` says in log lines where the groups are looked up.
        """
        self._clock = clock
        self._tasks = tasks
        self._take = take
        self._lookup = lookup
        self._longest_s = longest_s
        self._where = where
        self._known: dict[str, _Known] = {}

    async def know(self, user: str) -> None:
        """Wait until the groups of the person are at most a second old, but no longer than a second after the lookup began.

        All requests of a person share one lookup. If it hangs, requests that come more than a second after its beginning do not wait.
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
        if self._clock.steady_s() - known.looked_at_s > self._longest_s:
            self._take(user, None)

    def _remember(self, user: str, now_s: float) -> _Known:
        while len(self._known) >= _MOST_PEOPLE:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._take(oldest, None)
        return self._known.setdefault(user, _Known(now_s - self._longest_s))

    async def _look_up(self, user: str, known: _Known, running: _Running) -> None:
        try:
            groups = await self._lookup(user)
        except (OSError, HeadraceError) as error:
            logger().warning("groups of a person not read", source=self._where, user=user, error=str(error))
        else:
            if self._known.get(user) is known:
                known.looked_at_s = running.began_s
                self._take(user, groups)
        finally:
            known.running = None
            running.done.set()
