"""A role, such as `allocator.default`, and the one process that leads it.

A process stands by until the lease of the role is free, takes it and then its term, serves, and gives the lease back. Everything
that it writes or says carries the term, so that nobody takes it for one of its predecessors or successors. Whoever notices that
another process leads, however deep in a handler or a task, deposes this one: `Deposition` carries that to where the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import anyio

from headrace.bus import Bus, BusError
from headrace.errors import HeadraceError
from headrace.ids import TreeName
from headrace.obs.logging import logger
from headrace.runtime.lease import Lease
from headrace.runtime.terms import TermBook, take_term, taken_term, term_of_peers
from headrace.wire import subjects
from headrace.wire.version import Term

#: A process that does not renew its lease for so long loses it.
LEASE_S: Final = 3.0


#: Who told of a higher term when nobody did, and the lease alone gives reason to look.
_NOBODY: Final = "whoever held the lease meanwhile"
#: So long nobody looks again whose lease cannot be renewed.
_SURE_S: Final = LEASE_S / 4
#: A bucket that takes longer to answer whoever waits for it has no leader.
_BUCKET_S: Final = 0.5
#: It is looked so often whether the connection is back.
_CONNECTED_S: Final = 0.02


class Deposed(HeadraceError):
    """Another process serves with a higher term. This one must not go on."""


class Deposition:
    """Ends the process when anybody in it notices that another one leads."""

    def __init__(self) -> None:
        self._noticed = anyio.Event()
        #: Of the end of the process, empty while nothing was noticed.
        self.reason = ""

    def depose(self, reason: str) -> None:
        """Ends the process within a moment. Only the first reason counts."""
        if not self._noticed.is_set():
            self.reason = reason
            self._noticed.set()

    async def watch(self) -> None:
        """Waits for a deposition. Raises `Deposed` then, in the task group of the whole process."""
        await self._noticed.wait()
        raise Deposed(self.reason)


class Role:
    """The lead of one role in one life of a process."""

    def __init__(self, name: str, term: Term, deposition: Deposition, lease: Lease | None = None) -> None:
        self.name = name
        self.term = term
        self.since_s = anyio.current_time()
        self._deposition = deposition
        self._lease = lease
        self._sure_until_s = 0.0
        # Asked for the loop itself, as anyio asks each time, Python asks the kernel who we are.
        self._now_s = asyncio.get_running_loop().time
        self._told: tuple[Term, str] | None = None
        self._doubt = anyio.Event()
        self._looked_up = anyio.Event()

    @property
    def acknowledged(self) -> int:
        """The last entry of the log that a leader of this role is known to have acknowledged, 0 for none."""
        return 0 if self._lease is None else self._lease.acknowledged

    def tell_acknowledged(self, sequence: Callable[[], int]) -> None:
        """Has the last acknowledged entry of the log kept in the lease, for a start after the log lost entries."""
        if self._lease is not None:
            self._lease.tell_acknowledged(sequence)

    async def until_sure(self) -> None:
        """Returns once it is sure that no other process leads. Does not return in a process that was succeeded.

        It is looked up where a higher term was told of, and where the lease is over: after a freeze, or an outage of the bucket.
        """
        if self._lease is not None:
            now_s = self._now_s()
            if now_s >= self._lease.sure_until_s and now_s >= self._sure_until_s:
                self.doubt()
        if self._told is not None:
            await self._looked_up.wait()

    def on_term(self, term: Term, told_by: str) -> None:
        """Takes note of a term of this role. A higher one than ours is looked up before it is believed."""
        if term > self.term and (self._told is None or term > self._told[0]):
            self._told = (term, told_by)
            self._doubt.set()

    def doubt(self) -> None:
        """Has it looked up whether anybody took a higher term."""
        self.on_term(self.term + 1, _NOBODY)

    def step_down(self, reason: str) -> None:
        """Ends the process. Another one leads, or none should."""
        self._deposition.depose(reason)

    async def look_up(self, bus: Bus) -> None:
        """Looks up the terms that were told, until cancelled: one forged message deposes nobody."""
        while True:
            await self._doubt.wait()
            self._doubt = anyio.Event()
            assert self._told is not None
            term, told_by = self._told
            try:
                taken = await (self._taken(bus) if told_by == _NOBODY else taken_term(bus, self.name, at_least=term))
            except BusError as error:
                logger().info("terms cannot be read", role=self.name, error=str(error))
                await anyio.sleep(LEASE_S / 4)
                self._doubt.set()
                continue
            if taken > self.term:
                self.step_down(f"{told_by} knows term {taken} of {self.name}, ours is {self.term}")
                return
            if told_by != _NOBODY:
                logger().error("term refused", role=self.name, term=term, told_by=told_by, taken=taken)
            if self._told == (term, told_by):
                self._told = None
            # Else a higher one was told of meanwhile, and is looked up next. A liar could do that without end: who waits goes on.
            self._sure_until_s = anyio.current_time() + _SURE_S
            looked_up, self._looked_up = self._looked_up, anyio.Event()
            looked_up.set()

    async def _taken(self, bus: Bus) -> Term:
        """The highest term that was taken. While the bucket cannot be read nobody takes one: then it is the peers' highest."""
        with anyio.move_on_after(_BUCKET_S), contextlib.suppress(BusError):
            return await taken_term(bus, self.name, at_least=self.term + 1)
        while not bus.connected:  # noqa: ASYNC110 - a user's request may come by another connection that is back sooner
            await anyio.sleep(_CONNECTED_S)
        told = await term_of_peers(bus, self.name, known=self.term)
        if told < self.term:
            # This process is a peer as well. Where its own answer did not come back, nor would that of whoever leads.
            raise BusError(f"nobody answers who leads {self.name}")
        return told


async def _cancel_when(stopping: anyio.Event, scope: anyio.CancelScope) -> None:
    await stopping.wait()
    scope.cancel()


def role_of(service: str, tree: TreeName | None = None) -> str:
    """The name of a service's role: one for each tree, or one for all where no tree is named."""
    return service if tree is None else f"{service}.{tree}"


async def lead(
    bus: Bus,
    terms: TermBook,
    deposition: Deposition,
    name: str,
    serve: Callable[[Role], Awaitable[None]],
    *,
    instance: str,
    stopping: anyio.Event,
    recorded: Callable[[], Awaitable[Term]] | None = None,
    follow: Callable[[], Coroutine[Any, Any, None]] | None = None,
    lease_s: float = LEASE_S,
    has_standby: bool = False,
) -> None:
    """Stands by until the role is free, takes its term, and serves. Gives the lease back when `serve` returned and all is answered.

    `instance` is the process's name in all its lives. `recorded` tells the highest term in what the service has written,
    for a bucket of terms that was lost. Where it `has_standby`, that one leads after a crash. `follow` runs while another process
    leads, and is over before the term is taken. Whoever stands by returns without serving when `stopping` is set. The term is
    taken before the first subscription of `serve`, so nothing that it answers carries an older one. Raises `BusError` if the
    bucket of terms is out of reach.
    """
    bucket = await bus.key_value(subjects.LEASES_BUCKET)
    lease = Lease(bucket, name, instance, secrets.token_hex(8), lease_s, has_standby=has_standby)
    async with anyio.create_task_group() as standing_by:
        standing_by.start_soon(_cancel_when, stopping, standing_by.cancel_scope)
        if follow is not None:
            standing_by.start_soon(follow)
        await lease.acquire()
        standing_by.cancel_scope.cancel()
    if not lease.is_held:
        return
    async with anyio.create_task_group() as tasks:
        role = Role(name, 0, deposition, lease)
        tasks.start_soon(lease.keep, deposition.depose, role.doubt, lambda: bus.statistics()["reconnects"])
        term = role.term = await take_term(bus, name, recorded=await recorded() if recorded is not None else 0)
        terms.see(name, term)
        lease.note_term(term)
        tasks.start_soon(role.look_up, bus)
        await serve(role)
        # Whoever leads next must be the only one that answers.
        await bus.stop_serving()
        tasks.cancel_scope.cancel()
    await lease.release()
