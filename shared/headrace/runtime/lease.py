"""The lease of a role: which of several processes leads it, decided by compare-and-set on one key.

The holder renews the key. Another process takes it when the same revision has stood for a whole lease on its own clock, so no two
clocks are ever compared. A lease alone keeps nobody from writing: what a frozen holder does when it wakes is refused by its term.
A new life of the same instance takes the key at once, since whoever starts an instance again knows that the former life is over. Where
another process stands by, which is warm, it gives the former life's lease back for that one first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from headrace.beats import until_beat
from headrace.bus import BusError, DamagedValue, Entry, KeyValue, WrongRevision
from headrace.obs.logging import logger
from headrace.wire.version import Counter, Term

#: A holder renews so often within a lease, and a candidate looks twice as often.
_RENEWALS: Final = 3


class LeaseRecord(msgspec.Struct, frozen=True):
    """The value of the key."""

    #: Name of the process that holds it, the same in every life of it.
    instance: str
    #: This life of it.
    life: str
    renewals: Counter = 0
    #: True if the holder gave it back.
    is_released: bool = False
    #: The term of the role, its holder's or a former one's: known here too if the bucket of terms is lost.
    term: Term = 0
    #: Sequence of the last entry of the log that the holder acknowledged before this renewal; 0 if it writes no log.
    acknowledged: Counter = 0


class Candidate:
    """Decides from each look at a lease whether it may be taken. Pure."""

    def __init__(self, instance: str, lease_s: float) -> None:
        self._instance = instance
        self._lease_s = lease_s
        self._revision = -1
        self._since_s = 0.0

    def may_take(self, revision: int, record: LeaseRecord | None, now_s: float) -> bool:
        """True if the lease of this revision is free. It is if nobody has it, if we do, or if it was not renewed for a whole lease."""
        if record is None or record.is_released or record.instance == self._instance:
            return True
        if revision != self._revision:
            self._revision, self._since_s = revision, now_s
        return now_s - self._since_s >= self._lease_s


class Lease:
    """One process's hold on the lease of one role."""

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
        #: Until then nobody else can have taken it, by this process's own clock.
        self.sure_until_s = 0.0

    @property
    def is_held(self) -> bool:
        """True if the lease was taken."""
        return self._revision > 0

    async def acquire(self) -> None:
        """Waits until the lease is free and takes it, however long that takes. Raises `DamagedValue`."""
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
                # Its holder could not renew it either: a whole lease counts from when the bucket is there again.
                candidate = Candidate(self._record.instance, self._lease_s)
                logger().info("lease not read", role=self._role, error=str(error))
            await anyio.sleep(self._lease_s / _RENEWALS / 2)

    def note_term(self, term: Term) -> None:
        """Has the term written with each renewal from now on."""
        self._record = msgspec.structs.replace(self._record, term=term)

    @property
    def acknowledged(self) -> int:
        """The last entry of the log that a holder of the lease is known to have acknowledged."""
        return self._record.acknowledged

    def tell_acknowledged(self, sequence: Callable[[], int]) -> None:
        """Has the last acknowledged entry of the log written with each renewal from now on."""
        self._acknowledged = sequence

    async def keep(
        self, on_lost: Callable[[str], None], on_regained: Callable[[], None], reconnects: Callable[[], int]
    ) -> None:
        """Renews the lease until cancelled or lost. `on_lost` hears who has it then.

        `on_regained` is called where the bucket had lost our record: somebody may have led meanwhile. After each of the
        `reconnects` the bucket is read: one that lost its newest writes gives their revisions again, perhaps to another process.
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
                # Whether it was renewed is unknown; the next renewal or the next reader tells.
                logger().info("lease not renewed", role=self._role, error=str(error))

    async def release(self) -> None:
        """Gives the lease back, so that another process need not wait for its end. Raises nothing: it is a courtesy."""
        self._record = msgspec.structs.replace(self._record, is_released=True)
        try:
            await self._write(self._revision)
        except BusError as error:
            logger().info("lease not released", role=self._role, error=str(error))

    async def _give_up_former(self, record: LeaseRecord, revision: int) -> None:
        """Gives the lease of our former life back, and leaves who stands by the time to take it."""
        released = msgspec.structs.replace(record, is_released=True)
        await self._bucket.update(self._role, msgspec.json.encode(released), revision)
        self._has_standby = False
        await anyio.sleep(self._lease_s / 2)

    async def _write(self, revision: int) -> None:
        """Renews the lease, or takes it: the key as it was at `revision` becomes our record."""
        began_s = anyio.current_time()
        acknowledged = self.acknowledged if self._acknowledged is None else self._acknowledged()
        record = msgspec.structs.replace(self._record, renewals=self._record.renewals + 1, acknowledged=acknowledged)
        self._revision = await self._bucket.update(self._role, msgspec.json.encode(record), revision)
        self._record, self.sure_until_s = record, began_s + self._lease_s

    async def _is_still_ours(self, on_lost: Callable[[str], None]) -> bool:
        """Looks who holds the lease after a renewal was refused: a former one of ours may have been written unnoticed."""
        try:
            return await self._renew_as_read(on_lost)
        except WrongRevision:
            return True
        except BusError as error:
            logger().info("lease not read", role=self._role, error=str(error))
            return True

    async def _renew_as_read(self, on_lost: Callable[[str], None]) -> bool:
        """Reads the lease and renews it. False if another process has it, of which `on_lost` hears."""
        entry = await self._bucket.get(self._role)
        record = _record_of(entry)
        if entry is not None and record is not None and record.life != self._record.life:
            on_lost(f"{record.instance} holds the lease of {self._role}")
            return False
        await self._write(entry.revision if entry else 0)
        return True


def term_of_lease(entry: Entry | None) -> Term:
    """The term that a lease's record tells of, 0 for none."""
    record = _record_of(entry)
    return 0 if record is None else record.term


def _record_of(entry: Entry | None) -> LeaseRecord | None:
    """The record of a key. None for a key that is missing or holds something else, which then anybody may take."""
    if entry is None:
        return None
    try:
        return msgspec.json.decode(entry.value, type=LeaseRecord)
    except msgspec.DecodeError:
        logger().error("lease cannot be read", key=entry.key)
        return None
