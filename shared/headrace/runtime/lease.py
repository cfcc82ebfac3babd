"""The lease of a role, which decides by compare-and-set on one key which of several processes leads the role.

The holder of the lease renews it by writing the key again and again. Another process takes the lease when the revision of the key
has not changed for the length of a lease. That process measures this time by its own clock, so no two clocks are ever compared. A
lease alone does not keep a process from writing: a holder that was frozen may write after another process has taken the lease.
Such writes and messages are refused because they carry an old term.

A restarted process that finds its own name in the key takes the lease at once, because a process is started again only when its
former run has ended. If a standby runs, the restarted process instead releases the lease of its former run, so that the standby
takes the lease: the standby already has the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from headrace.bus import BusError, DamagedValue, Entry, KeyValue, WrongRevision
from headrace.common_wakeups import until_beat
from headrace.obs.logging import logger
from headrace.wire.codec import UNREADABLE
from headrace.wire.version import Counter, Term

#: Number of renewals by the holder within one lease. A candidate checks the lease twice as often.
_RENEWALS: Final = 3


class LeaseRecord(msgspec.Struct, frozen=True):
    """The value of a lease's key."""

    #: Name of the process that holds the lease, the same after every restart.
    instance: str
    #: Identifies this run of the process; new after every restart.
    life: str
    renewals: Counter = 0
    #: True if the holder released the lease.
    is_released: bool = False
    #: Newest term that the holder or a former holder has taken. It is kept here in case the bucket of terms is lost.
    term: Term = 0
    #: Sequence number of the last log entry that the holder acknowledged before this renewal; 0 if it writes no log.
    acknowledged: Counter = 0


class Candidate:
    """Decides, each time when a process reads a lease, whether the process may take it. Pure: reads no clock and no bucket."""

    def __init__(self, instance: str, lease_s: float) -> None:
        self._instance = instance
        self._lease_s = lease_s
        self._revision = -1
        self._since_s = 0.0

    def may_take(self, revision: int, record: LeaseRecord | None, now_s: float) -> bool:
        """Return True if the lease is free. `revision` and `record` are what its key has now.

        The lease is free if no process holds it, if a former run of this process holds it, or if its holder has not renewed it
        for the length of a lease.
        """
        if record is None or record.is_released or record.instance == self._instance:
            return True
        if revision != self._revision:
            self._revision, self._since_s = revision, now_s
        return now_s - self._since_s >= self._lease_s


class Lease:
    """The lease of one role, as one process acquires, renews and releases it."""

    def __init__(
        self, bucket: KeyValue, role: str, instance: str, life: str, lease_s: float, *, has_standby: bool = False
    ) -> None:
        self._bucket = bucket
        self._has_standby = has_standby
        self._role = role
        self._record = LeaseRecord(instance, life)
        self._lease_s = lease_s
        self._revision = 0
        self._acknowledged: Callable[[], int] | None = None
        #: Time of this process's clock, in seconds, until which no other process can have taken the lease.
        self.sure_until_s = 0.0

    @property
    def is_held(self) -> bool:
        """True if this process has taken the lease."""
        return self._revision > 0

    async def acquire(self) -> None:
        """Wait until the lease is free, without a limit of time, and take it. Raises `DamagedValue`."""
        candidate = Candidate(self._record.instance, self._lease_s)
        told = ""
        while True:
            try:
                entry = await self._bucket.get(self._role)
                record = _record_of(entry)
                if record is not None and record.life != told and record.instance != self._record.instance:
                    told = record.life
                    logger().info("standing by", role=self._role, leader=record.instance)
                revision = entry.revision if entry else 0
                if self._has_standby and record is not None and record.instance == self._record.instance:
                    await self._give_up_former(record, revision)
                    continue
                if candidate.may_take(revision, record, anyio.current_time()):
                    if record is not None:
                        self._record = msgspec.structs.replace(
                            self._record, term=record.term, acknowledged=record.acknowledged
                        )
                    await self._write(revision)
                    logger().info("lease taken", role=self._role, revision=self._revision)
                    return
            except WrongRevision:
                continue
            except DamagedValue:
                raise
            except BusError as error:
                # While the bucket was not available, the holder could not renew the lease either. So this process begins to wait
                # for the length of a lease anew.
                candidate = Candidate(self._record.instance, self._lease_s)
                logger().info("lease not read", role=self._role, error=str(error))
            await anyio.sleep(self._lease_s / _RENEWALS / 2)

    def note_term(self, term: Term) -> None:
        """Include this term in each renewal from now on."""
        self._record = msgspec.structs.replace(self._record, term=term)

    @property
    def acknowledged(self) -> int:
        """Sequence number of the last log entry that any holder of the lease is known to have acknowledged."""
        return self._record.acknowledged

    def tell_acknowledged(self, sequence: Callable[[], int]) -> None:
        """From now on include the number of the last acknowledged log entry in each renewal. `sequence` returns this number."""
        self._acknowledged = sequence

    async def keep(
        self, on_lost: Callable[[str], None], on_regained: Callable[[], None], reconnects: Callable[[], int]
    ) -> None:
        """Renew the lease until cancelled or lost. A lost lease is reported to `on_lost`, with a text that names the new holder.

        `on_regained` is called after a renewal was refused, unless another process holds the lease: another process may have led
        for a time. `reconnects` returns how often the connection was made again. After a reconnect the bucket is read before the
        next renewal. The server may have lost the bucket's newest writes and given their revisions to writes of another process,
        so a known revision proves nothing.
        """
        read_after = reconnects()
        while True:
            await until_beat(self._lease_s / _RENEWALS)
            connection = reconnects()
            try:
                if connection == read_after:
                    await self._write(self._revision)
                elif not await self._renew_as_read(on_lost):
                    return
                read_after = connection
            except WrongRevision:
                if not await self._is_still_ours(on_lost):
                    return
                on_regained()
            except BusError as error:
                # It is not known whether this renewal was written. The next renewal shows it: if it was, the next renewal is
                # refused and the lease is read.
                logger().info("lease not renewed", role=self._role, error=str(error))

    async def release(self) -> None:
        """Release the lease, so that another process need not wait until it runs out. Raises no `BusError`: then the lease just
        runs out.
        """
        self._record = msgspec.structs.replace(self._record, is_released=True)
        try:
            await self._write(self._revision)
        except BusError as error:
            logger().info("lease not released", role=self._role, error=str(error))

    async def _give_up_former(self, record: LeaseRecord, revision: int) -> None:
        """Release the lease that the former run of this process still holds, and give the standby time to take the lease."""
        released = msgspec.structs.replace(record, is_released=True)
        await self._bucket.update(self._role, msgspec.json.encode(released), revision)
        self._has_standby = False
        await anyio.sleep(self._lease_s / 2)

    async def _write(self, revision: int) -> None:
        """Renew or take the lease: write this process's record, provided that the key is still at `revision`."""
        began_s = anyio.current_time()
        acknowledged = self.acknowledged if self._acknowledged is None else self._acknowledged()
        record = msgspec.structs.replace(self._record, renewals=self._record.renewals + 1, acknowledged=acknowledged)
        self._revision = await self._bucket.update(self._role, msgspec.json.encode(record), revision)
        self._record, self.sure_until_s = record, began_s + self._lease_s

    async def _is_still_ours(self, on_lost: Callable[[str], None]) -> bool:
        """Check who holds the lease after a renewal was refused. This process may still hold it: an earlier renewal may
        have been written although its answer was lost.
        """
        try:
            return await self._renew_as_read(on_lost)
        except WrongRevision:
            return True
        except BusError as error:
            logger().info("lease not read", role=self._role, error=str(error))
            return True

    async def _renew_as_read(self, on_lost: Callable[[str], None]) -> bool:
        """Read the lease and renew it. Return False, after a call of `on_lost`, if another process holds it."""
        entry = await self._bucket.get(self._role)
        record = _record_of(entry)
        if entry is not None and record is not None and record.life != self._record.life:
            on_lost(f"{record.instance} holds the lease of {self._role}")
            return False
        await self._write(entry.revision if entry else 0)
        return True


def term_of_lease(entry: Entry | None) -> Term:
    """Return the term in a lease's record, or 0 if there is no record."""
    record = _record_of(entry)
    return 0 if record is None else record.term


def _record_of(entry: Entry | None) -> LeaseRecord | None:
    """Decode the record of a key. Return None if the key is missing or holds something else; then any process may take the lease."""
    if entry is None:
        return None
    try:
        return msgspec.json.decode(entry.value, type=LeaseRecord)
    except UNREADABLE:
        logger().error("lease cannot be read", key=entry.key)
        return None
