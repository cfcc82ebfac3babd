"""Checks the content of an archive before anything may be started with it.

A check reads the whole archive and takes up to some seconds of a core, so checks run in a thread, one after the other. The users take
turns: at most one archive of each user is queued, so a user waits for at most one check of each other user. `headrace.archive_names` says
which names and links in an archive are refused.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec

from headrace.archive_members import UnusableArchive, members
from headrace.bus import BusError
from headrace.obs.logging import logger
from headrace.wire.files import Archive
from headrace_admission.files.archive_book import ArchiveKey

#: Upper bound of the reasons that are kept, so that an unusable archive is refused without another check if its user sends it again.
_MOST_REASONS: Final = 1_000


class LostPiece(Exception):
    """A piece of an archive is not stored any more."""

    def __init__(self, piece: int) -> None:
        self.piece = piece
        super().__init__(f"piece {piece}")


class _Check(msgspec.Struct):
    key: ArchiveKey
    archive: Archive
    done: anyio.Event


class ArchiveChecks:
    """Queues and runs the checks of archives in one term of admission."""

    def __init__(
        self,
        piece: Callable[[ArchiveKey, int], Coroutine[Any, Any, bytes | None]],
        on_checked: Callable[[ArchiveKey, str], Awaitable[None]],
        on_lost: Callable[[ArchiveKey, int], None],
    ) -> None:
        """`piece` is a function that reads a piece, and returns None if the piece is lost.

        `on_checked` gets the reason why an archive is unusable, or an empty text if the archive is usable.
        """
        self._piece = piece
        self._on_checked = on_checked
        self._on_lost = on_lost
        #: Queued and running checks by user.
        self._waiting: dict[str, _Check] = {}
        self._wanted = anyio.Event()
        self._reasons: OrderedDict[ArchiveKey, str] = OrderedDict()

    def reason(self, key: ArchiveKey) -> str:
        """Return why an archive is unusable, if a check of this term found that; else an empty text."""
        return self._reasons.get(key, "")

    async def wait(self, key: ArchiveKey, archive: Archive, timeout_s: float) -> None:
        """Have an archive checked, and wait for the result for at most `timeout_s`.

        If another archive of the user is in the queue, the caller must ask again later.
        """
        check = self._waiting.get(key.user)
        if check is None:
            check = self._waiting[key.user] = _Check(key, archive, anyio.Event())
            self._wanted.set()
        with anyio.move_on_after(timeout_s):
            await check.done.wait()

    async def run(self) -> None:
        """Check archives until cancelled."""
        while True:
            if not self._waiting:
                self._wanted = anyio.Event()
                await self._wanted.wait()
            user, check = next(iter(self._waiting.items()))
            try:
                await self._check(check)
            finally:
                del self._waiting[user]
                check.done.set()

    async def _check(self, check: _Check) -> None:
        try:
            reason = await anyio.to_thread.run_sync(partial(self._reason, check), abandon_on_cancel=True)
        except LostPiece as lost:
            self._on_lost(check.key, lost.piece)
            return
        except BusError as error:
            logger().warning("archive not checked", user=check.key.user, archive=check.key.sha256, error=str(error))
            return
        if reason:
            logger().warning("unusable archive", user=check.key.user, archive=check.key.sha256, why=reason)
            self._reasons[check.key] = reason
            if len(self._reasons) > _MOST_REASONS:
                self._reasons.popitem(last=False)
        await self._on_checked(check.key, reason)

    def _reason(self, check: _Check) -> str:
        """Read an archive to its end, in a thread. Return why it is unusable, or an empty text."""
        pieces = _Pieces(check.archive, partial(self._piece, check.key))
        try:
            for member in members(pieces):
                for _ in member.content:
                    pass
        except UnusableArchive as error:
            return str(error)
        except (BusError, LostPiece):
            raise
        except Exception as error:
            # An unexpected error is a defect of admission. It is caught, so that archives of other users are still checked.
            logger().error("archive not checked", exception=error)
            return f"it cannot be read: {type(error).__name__}"
        while pieces.read(1):
            pass
        return "" if pieces.sha256() == check.archive.sha256 else f"its bytes have another hash: {pieces.sha256()}"


class _Pieces:
    """The bytes of an archive, read piece by piece from a thread."""

    def __init__(self, archive: Archive, piece: Callable[[int], Coroutine[Any, Any, bytes | None]]) -> None:
        self._archive = archive
        self._piece = piece
        self._next = 0
        self._hash = hashlib.sha256()

    def read(self, _size: int, /) -> bytes:
        """Return the next piece, or no bytes at the end. Always returns a whole piece, however much is asked for."""
        if self._next == self._archive.piece_count:
            return b""
        data = anyio.from_thread.run(self._piece, self._next)
        if data is None:
            raise LostPiece(self._next)
        self._next += 1
        self._hash.update(data)
        return data

    def sha256(self) -> str:
        return self._hash.hexdigest()
