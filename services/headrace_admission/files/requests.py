"""The requests about files: from users who send them, and from nodes that fetch them.

Pieces are stored in a bucket and never pass through the log. An archive that is to be removed is first dropped from the book, so that
no operation starts with it while its data is being removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import anyio
import msgspec

from headrace.bus import BusError, MissingStore
from headrace.obs.logging import logger
from headrace.runtime.endpoints import Caller, CallerKind
from headrace.runtime.engine import Figure
from headrace.runtime.fenced_writes import KeyFenced
from headrace.runtime.role import Role
from headrace.runtime.service import Runtime
from headrace.wire import subjects
from headrace.wire.files import Archive, AskOver, FetchPiece, Over, Piece, Upload, Uploaded
from headrace.wire.operations import StartOperation
from headrace.wire.refusals import BadRequest, NotFound, NotReady, Refusal, WrongState
from headrace_admission.files.archive_book import ArchiveBook, ArchiveKey, Use
from headrace_admission.files.archive_checks import ArchiveChecks
from headrace_admission.files.archive_pieces import KeptArchives
from headrace_admission.settings import AdmissionSettings
from headrace_admission.state.operation_states import is_final
from headrace_admission.state.state import State

_SWEEP_S: Final = 5.0
#: Upper bound of the uploads and fetches of pieces that are handled at the same time. The bound leaves time to handle starts and ends
#: of jobs in between.
_AT_ONCE: Final = 8
#: Seconds that an upload waits for the check of its archive; most checks are done by then.
_CHECK_S: Final = 0.2


class FileRequests:
    """Handlers of the requests about files, for one term of admission."""

    _kept: KeptArchives

    def __init__(self, runtime: Runtime[AdmissionSettings], role: Role, state: Callable[[], State]) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._role = role
        self._state = state
        self._book = ArchiveBook(
            settings.most_archive_bytes, settings.most_archive_bytes_of_a_user, settings.unused_archive_ms
        )
        #: Held while the book is changed and the bucket is written accordingly, so that both change in the same order.
        self._writing = anyio.Lock()
        self._checks = ArchiveChecks(self._piece, self._on_checked, self._book.note_lost)

    async def open(self) -> None:
        """Open the buckets for this term. Archives that an earlier process left incomplete are removed later. Raises `BusError`."""
        bus = self._runtime.bus
        archives, pieces = await bus.key_value(subjects.ARCHIVES_BUCKET), await bus.key_value(subjects.PIECES_BUCKET)
        self._kept = KeptArchives(archives, pieces, self._role.term)
        self._book.restore(await self._kept.claim())

    async def serve(self) -> None:
        """Serve the requests, and remove archives that no operation needs. Raises `BusError`."""
        endpoints = self._runtime.endpoints
        upload = subjects.user("*", "op.upload")
        await endpoints.serve(upload, Upload, CallerKind.USER, self._on_upload, concurrency=_AT_ONCE)
        fetch = subjects.fetch_piece("*")
        await endpoints.serve(fetch, FetchPiece, CallerKind.NODE, self._on_fetch, concurrency=_AT_ONCE)
        await endpoints.serve(subjects.ask_over("*"), AskOver, CallerKind.NODE, self._on_ask_over)
        self._runtime.tasks.start_soon(self._sweep)
        self._runtime.tasks.start_soon(self._checks.run)

    def figures(self) -> list[Figure]:
        """Return the metrics of the archives."""
        return self._book.figures()

    def check(self) -> list[str]:
        """Return a description of each broken invariant of the archives."""
        return self._book.check()

    def refusal_of(self, request: StartOperation, user: str) -> Refusal | None:
        """Return the refusal of a start whose files are not stored, or None. A start with a known id is not refused."""
        archive = request.spec.files
        if archive is None or request.operation in self._state().operations:
            return None
        if self._book.is_there(ArchiveKey(user, archive.sha256), archive):
            return None
        return BadRequest(
            "spec.files",
            archive.sha256,
            "the hash of an archive that was uploaded before the start. `headrace run --upload` uploads files",
        )

    def refusal_of_sending(self, archive: Archive | None, user: str) -> Refusal | None:
        """Return the refusal of files that a user wants to send, or None if the files fit the quotas."""
        return None if archive is None else self._book.refusal(ArchiveKey(user, archive.sha256), Upload(archive))

    async def _on_upload(self, request: Upload, caller: Caller) -> msgspec.Struct:
        key = ArchiveKey(caller.name, request.archive.sha256)
        try:
            async with self._writing:
                refusal = self._refusal_of_upload(key, request)
                if refusal is not None:
                    return refusal
                # An archive that an older version stored has a key prefix that is also a prefix of the new keys of the same archive.
                # It is removed before any new key exists, because its removal would remove the new keys too.
                await self._kept.remove_left()
                new = self._book.want(key, request.archive, self._runtime.clock.now())
                if new is not None:
                    await self._kept.keep_record(key, new)
                if request.data and request.piece in self._book.missing(key):
                    await self._kept.keep_piece(key, request.piece, request.data)
                    self._book.note_piece(key, request.piece)
        except BusError as error:
            self._end_if_fenced(error)
            # It is not known whether the piece was written, so the client must send it again.
            self._book.note_lost(key, request.piece)
            return NotReady(f"files cannot be stored: {error}")
        return await self._answer_to_upload(key, request)

    async def _answer_to_upload(self, key: ArchiveKey, request: Upload) -> msgspec.Struct:
        """Return the missing pieces. If none is missing, the archive is checked first."""
        missing = self._book.missing(key)
        if missing or self._book.is_there(key, request.archive):
            return Uploaded(missing)
        await self._checks.wait(key, request.archive, _CHECK_S)
        refusal = self._refusal_of_upload(key, request)
        if refusal is not None:
            return refusal
        if self._book.is_there(key, request.archive):
            return Uploaded([])
        # Clients send the request again by themselves. Until then, this handler can serve other clients.
        return NotReady("the uploaded archive is being checked")

    def _refusal_of_upload(self, key: ArchiveKey, request: Upload) -> Refusal | None:
        reason = self._checks.reason(key)
        if reason:
            return WrongState("the upload", key.sha256[:12], f"unusable: {reason}", "an archive that nodes can unpack")
        return self._book.refusal(key, request)

    async def _on_checked(self, key: ArchiveKey, reason: str) -> None:
        """Handle the result of a check: keep the archive for starts, or remove it."""
        try:
            async with self._writing:
                if reason:
                    self._book.drop(key)
                    self._kept.leave(key)
                elif (record := self._book.note_checked(key)) is not None:
                    await self._kept.keep_record(key, record)
                    logger().info("archive stored", user=key.user, archive=key.sha256, bytes=record.archive.size_bytes)
        except BusError as error:
            self._end_if_fenced(error)
            self._book.note_lost(key, 0)
            logger().warning("archive not stored", user=key.user, archive=key.sha256, error=str(error))

    async def _on_fetch(self, request: FetchPiece, _caller: Caller) -> msgspec.Struct:
        operation = self._state().operations.get(request.operation)
        if operation is None or operation.spec.files is None:
            return NotFound("operation with files", request.operation)
        if not request.sha256:
            # An agent of an older version asks again for a minute after this refusal, and then leaves the job to other nodes. After any
            # other refusal it would return the job at once, and get it again at once.
            return NotReady("the agent of this node is too old to fetch files; upgrade the agent")
        if request.sha256 != operation.spec.files.sha256:
            # This check keeps other nodes from fetching the files: a node learns the hash only from an order to start a job of the
            # operation.
            expected = f"the hash in an order to run a job of {request.operation}"
            return BadRequest("sha256", request.sha256[:12], expected)
        if is_final(operation.state):
            return WrongState("operation", operation.id, operation.state.value, "an operation that has not ended")
        key = ArchiveKey(operation.user, operation.spec.files.sha256)
        try:
            entry = await self._piece(key, request.piece)
        except BusError as error:
            return NotReady(f"files cannot be read: {error}")
        if entry is None:
            self._book.note_lost(key, request.piece)
            count = operation.spec.files.piece_count
            return NotFound("undamaged piece of its files in the store", f"{request.piece + 1} of {count}")
        return Piece(entry)

    async def _piece(self, key: ArchiveKey, piece: int) -> bytes | None:
        """Return the bytes of a piece, or None if the piece is lost or damaged, or the bucket is lost. Raises `BusError`."""
        try:
            return await self._kept.piece(key, piece)
        except BusError:
            try:
                await self._runtime.bus.key_value(subjects.PIECES_BUCKET)
            except MissingStore:
                return None
            raise

    async def _on_ask_over(self, request: AskOver, _caller: Caller) -> Over:
        operations = self._state().operations
        live = {each for each in request.operations if each in operations and not is_final(operations[each].state)}
        return Over([each for each in request.operations if each not in live])

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(_SWEEP_S)
            try:
                async with self._writing:
                    uses = _uses(self._state()) if len(self._book) else ()
                    for key in self._book.take_due(uses, self._runtime.clock.now()):
                        self._kept.leave(key)
                    await self._kept.remove_left()
            except BusError as error:
                self._end_if_fenced(error)
                logger().warning("archives not removed", error=str(error))

    def _end_if_fenced(self, error: BusError) -> None:
        if isinstance(error, KeyFenced):
            self._role.step_down(str(error))


def _uses(state: State) -> Iterator[Use]:
    for each in state.operations.values():
        if each.spec.files is not None:
            key = ArchiveKey(each.user, each.spec.files.sha256)
            yield Use(key, each.started_at_ms, is_final(each.state))
