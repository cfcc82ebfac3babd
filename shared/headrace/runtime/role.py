"""A role, such as `allocator.default`, and the one process that leads it.

A process stands by until the lease of the role is free. It takes the lease and then its term, serves, and releases the
lease at the end. Everything that it writes or publishes carries the term, so that its messages cannot be confused with
those of earlier or later leaders. Any handler or task that notices that another process leads deposes this process:
`Deposition` passes the reason on to the task group of the process, which then ends.
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
from headrace.runtime.concurrent_calls import cancel_when
from headrace.runtime.lease import Lease
from headrace.runtime.terms import TermBook, take_term, taken_term, term_of_peers
from headrace.wire import subjects
from headrace.wire.version import Term

#: Seconds after which a process that does not renew its lease loses it.
LEASE_S: Final = 3.0


#: Stands in texts for the process that named a higher term if no message did so: the terms are looked up because the lease has expired.
_NOBODY: Final = "another holder of the lease"
#: Seconds for which this process stays sure that it leads, after a lookup of the terms, while it cannot renew the lease.
_SURE_S: Final = LEASE_S / 4
#: Seconds to wait for the bucket of terms. If the bucket has not answered then, the peers are asked instead.
_BUCKET_S: Final = 0.5
#: Seconds between two checks whether a lost connection is made again.
_CONNECTED_S: Final = 0.02


class Deposed(HeadraceError):
    """Another process serves with a higher term. This process must stop."""


class Deposition:
    """Ends this process when any part of the process notices that another process leads."""

    def __init__(self) -> None:
        self._noticed = anyio.Event()
        #: Reason for the end of the process; empty while the process is not deposed.
        self.reason = ""

    def depose(self, reason: str) -> None:
        """End the process within a moment. Only the first reason counts."""
        if not self._noticed.is_set():
            self.reason = reason
            self._noticed.set()

    async def watch(self) -> None:
        """Wait until this process is deposed, then raise `Deposed`. Run this in the task group of the whole process, so that the
        error ends the process.
        """
        await self._noticed.wait()
        raise Deposed(self.reason)


class Role:
    """A role that this process leads, from the time when it takes the role until the process ends."""

    def __init__(self, name: str, term: Term, deposition: Deposition, lease: Lease | None = None) -> None:
        self.name = name
        self.term = term
        self.since_s = anyio.current_time()
        self._deposition = deposition
        self._lease = lease
        self._sure_until_s = 0.0
        # Keep the method of the loop's clock. `anyio.current_time` would look up the running loop in each call, and for
        # that Python asks the kernel for the process id.
        self._now_s = asyncio.get_running_loop().time
        self._told: tuple[Term, str] | None = None
        self._doubt = anyio.Event()
        self._looked_up = anyio.Event()

    @property
    def acknowledged(self) -> int:
        """Sequence number of the last log entry that any leader of this role is known to have acknowledged, or 0."""
        return 0 if self._lease is None else self._lease.acknowledged

    def tell_acknowledged(self, sequence: Callable[[], int]) -> None:
        """From now on keep the number of the last acknowledged log entry in the lease, so that the next leader notices if the log
        has lost entries.
        """
        if self._lease is not None:
            self._lease.tell_acknowledged(sequence)

    async def until_sure(self) -> None:
        """Return once it is certain that no other process leads. If another process has taken over, this call never returns, and
        this process is ended.

        Terms are looked up if a message named a higher term, or if the lease has run out because this process was
        frozen or the bucket was not available.
        """
        if self._lease is not None:
            now_s = self._now_s()
            if now_s >= self._lease.sure_until_s and now_s >= self._sure_until_s:
                self.doubt()
        if self._told is not None:
            await self._looked_up.wait()

    def on_term(self, term: Term, told_by: str) -> None:
        """Take note of a term of this role. A term higher than this process's own is looked up before it is believed."""
        if term > self.term and (self._told is None or term > self._told[0]):
            self._told = (term, told_by)
            self._doubt.set()

    def doubt(self) -> None:
        """Look up whether another process took a higher term."""
        self.on_term(self.term + 1, _NOBODY)

    def step_down(self, reason: str) -> None:
        """End the process, because another process leads, or because no process should lead now."""
        self._deposition.depose(reason)

    async def look_up(self, bus: Bus) -> None:
        """Look up each reported higher term, until cancelled. Without the lookup a single forged message could depose this process."""
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
                self.step_down(f"{told_by} knows term {taken} of {self.name}, and this process has term {self.term}")
                return
            if told_by != _NOBODY:
                logger().error("term refused", role=self.name, term=term, told_by=told_by, taken=taken)
            if self._told == (term, told_by):
                self._told = None
            # A higher term that was reported during this lookup is looked up next, and later calls of `until_sure` wait for that
            # next lookup. The calls that already wait return now: otherwise a forger that keeps reporting terms could block them
            # for ever.
            self._sure_until_s = anyio.current_time() + _SURE_S
            looked_up, self._looked_up = self._looked_up, anyio.Event()
            looked_up.set()

    async def _taken(self, bus: Bus) -> Term:
        """Return the highest term that was taken. If the bucket cannot be read, ask the peers. Their terms suffice, because no
        process can take a new term without the bucket.
        """
        with anyio.move_on_after(_BUCKET_S), contextlib.suppress(BusError):
            return await taken_term(bus, self.name, at_least=self.term + 1)
        while not bus.connected:  # noqa: ASYNC110 - a user's request may come by another connection that is back sooner
            await anyio.sleep(_CONNECTED_S)
        told = await term_of_peers(bus, self.name, known=self.term)
        if told < self.term:
            # This process is a peer, too, so at least its own answer is expected. If not even this answer arrived, the answer of
            # another leader would not have arrived either.
            raise BusError(f"no process said which process leads {self.name}")
        return told


def role_of(service: str, tree: TreeName | None = None) -> str:
    """Return the name of a service's role: one role for each tree, or one for all trees if `tree` is None."""
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
    """Stand by until the role is free, take its term, and serve. When `serve` has returned and all requests are
    answered, release the lease.

    `instance` is the process's name, the same after every restart. `recorded` returns the highest term in the data that the
    service has written, in case the bucket of terms was lost. With `has_standby` the lease of a crashed process goes to the
    standby, and not to the restarted process. `follow` runs while another process leads, and ends before the term is taken. If
    `stopping` is set while this process stands by, return without calling `serve`. The term is taken before `serve` subscribes to
    anything, so no answer carries an older term. Raises `BusError` if the bucket of terms is out of reach.
    """
    bucket = await bus.key_value(subjects.LEASES_BUCKET)
    lease = Lease(bucket, name, instance, secrets.token_hex(8), lease_s, has_standby=has_standby)
    async with anyio.create_task_group() as standing_by:
        standing_by.start_soon(cancel_when, stopping, standing_by.cancel_scope)
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
        # Send all answers before the lease is released, so that the next leader is then the only process that answers.
        await bus.stop_serving()
        tasks.cancel_scope.cancel()
    await lease.release()
