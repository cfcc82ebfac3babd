"""Fetches the files of operations from admission. Removes the files of an operation when admission says that it has ended."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import msgspec

from headrace.archive_members import UnusableArchive
from headrace.bus import Bus, BusError
from headrace.ids import NodeName, OperationId
from headrace.obs.logging import logger
from headrace.runtime.clock import Clock
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, encode
from headrace.wire.files import AskOver, FetchPiece, Over, Piece
from headrace.wire.refusals import Busy, NotFound, NotReady, Refusal, decode_answer
from headrace_agent.files.folders import OperationFolders
from headrace_agent.files.operation_files import FetchFiles, FilesFailure, FilesFault, files_failure, operation_of
from headrace_agent.host.account_mapping import AccountMapping

T = TypeVar("T", bound=msgspec.Struct)

_ANSWER_S: Final = 5.0
_PAUSE_S: Final = 0.5
#: Seconds to wait for one piece of the files. If it does not arrive in this time, the fetch fails and the allocation is returned.
_PATIENCE_S: Final = 60.0
_AT_ONCE: Final = 4
_FIRST_LOOK_S: Final = 1.0
_LONGEST_LOOK_S: Final = 30.0


class FilesFetcher:
    """Fetches the files of operations for one node."""

    def __init__(
        self, bus: Bus, clock: Clock, node: NodeName, folders: OperationFolders, accounts: AccountMapping
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._node = node
        self._folders = folders
        self._accounts = accounts
        self._turns = anyio.Semaphore(_AT_ONCE)

    async def fetch(self, order: FetchFiles) -> FilesFailure | None:
        """Fetch and unpack the files of an operation. Return None, or the reason if that fails."""
        async with self._turns:
            try:
                with self._folders.archive(order.folder) as path:
                    failure = await self._download(order, path)
                    if failure is not None:
                        return failure
                    account = self._accounts.account_of(order.user)
                    unpack = partial(self._folders.unpack, order.folder, path, account)
                    await anyio.to_thread.run_sync(unpack, abandon_on_cancel=True)
            except UnusableArchive as error:
                return files_failure(FilesFault.LOST, f"its files cannot be unpacked: {error}")
            except OSError as error:
                return files_failure(FilesFault.HOST, f"this host cannot store the files of an operation: {error}")
            except Exception as error:
                # An error here is a defect of the agent. Because it is caught, only jobs of this operation fail; otherwise the agent would
                # end.
                logger().error("files not fetched", operation=order.operation, exception=error)
                return files_failure(FilesFault.LOST, f"its files cannot be fetched: {type(error).__name__}: {error}")
        logger().info("files fetched", operation=order.operation, bytes=order.archive.size_bytes)
        return None

    async def remove_unused(
        self, unused: Callable[[], list[OperationId]], on_over: Callable[[list[OperationId]], None]
    ) -> None:
        """Ask admission at intervals, until cancelled, which of the operations with unused files have ended. Pass the ended ones to
        `on_over`.

        `unused` returns the operations that have files here but no allocation.

        The pause before the next question doubles as long as the list of these operations stays the same.
        """
        await self._try(self._folders.remove_left_over)
        pause_s, asked_before = _FIRST_LOOK_S, list[OperationId]()
        while True:
            await anyio.sleep(pause_s)
            asked = unused()
            pause_s = min(_LONGEST_LOOK_S, pause_s * 2) if asked == asked_before else _FIRST_LOOK_S
            asked_before = asked
            if asked:
                answer = await self._ask(subjects.ask_over(self._node), AskOver(asked), Over)
                if isinstance(answer, Over):
                    on_over(answer.operations)

    async def remove(self, folder: str) -> None:
        """Remove a folder with the files of an operation."""
        if await self._try(self._folders.remove, folder):
            logger().info("files removed", operation=operation_of(folder))

    async def _try(self, remove: Callable[..., None], *about: str) -> bool:
        """Call `remove` in a thread, for the folders `about`. Log an error, and return False if there was one.

        After an error the agent continues, and the next agent process tries again.
        """
        try:
            await anyio.to_thread.run_sync(remove, *about)
        except Exception as error:
            logger().error("files not removed", folders=about, exception=error)
            return False
        return True

    async def _download(self, order: FetchFiles, path: str) -> FilesFailure | None:
        archive, found = order.archive, hashlib.sha256()
        async with await anyio.open_file(path, "wb") as file:
            for number in range(archive.piece_count):
                piece = await self._piece(FetchPiece(order.operation, number, archive.sha256))
                if isinstance(piece, FilesFailure):
                    return piece
                found.update(piece)
                await file.write(piece)
            size = await file.tell()
        if size != archive.size_bytes or found.hexdigest() != archive.sha256:
            is_found = f"{size} bytes with the hash {found.hexdigest()[:12]}"
            sent = f"{archive.size_bytes} bytes with {archive.sha256[:12]}"
            return files_failure(FilesFault.LOST, f"its files are damaged: {is_found} arrived, but {sent} were sent")
        return None

    async def _piece(self, request: FetchPiece) -> bytes | FilesFailure:
        until_s = self._clock.steady_s() + _PATIENCE_S
        while True:
            answer = await self._ask(subjects.fetch_piece(self._node), request, Piece)
            if isinstance(answer, Piece):
                return answer.data
            words = answer if isinstance(answer, str) else answer.text()
            if isinstance(answer, NotFound):
                return files_failure(FilesFault.LOST, f"its files cannot be fetched: {words}")
            may_pass = isinstance(answer, str | Busy | NotReady)
            if not may_pass or self._clock.steady_s() > until_s:
                return files_failure(FilesFault.PASSING, f"its files cannot be fetched: {words}")
            await anyio.sleep(_PAUSE_S)

    async def _ask(self, subject: str, request: msgspec.Struct, kind: type[T]) -> T | Refusal | str:
        """Return admission's answer to a request, or a text that says why no readable answer arrived."""
        try:
            return decode_answer(await self._bus.request(subject, encode(request), timeout_s=_ANSWER_S), kind)
        except (BusError, BadMessage) as error:
            return str(error)
