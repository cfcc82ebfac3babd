"""The record of which operations' files are on this node, are being fetched, or could not be fetched.

Pure. The files of an operation are fetched once, however many jobs of it start, and stay until the operation has ended. A failed fetch is
tried again when the next allocation of the operation arrives.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

import msgspec

from headrace.ids import OperationId
from headrace.wire.files import MOST_OPERATIONS_ASKED, Archive
from headrace.wire.heartbeat import JobSpec, short_text


class FilesFault(enum.StrEnum):
    """The kinds of failures to fetch files. The kind decides what happens to the jobs."""

    #: Admission has lost the files, or they are damaged: the jobs fail.
    LOST = "lost"
    #: Host fault: this host cannot keep the files. The jobs do not count as failed, and no job starts here for a while.
    HOST = "host"
    #: Admission does not send the files at present: the allocation is returned.
    PASSING = "passing"


class FilesFailure(msgspec.Struct, frozen=True):
    """The reason why the files of an operation could not be fetched."""

    fault: FilesFault
    #: Reason, short enough for a message.
    why: str


def files_failure(fault: FilesFault, why: str) -> FilesFailure:
    """Return a failure with the text `why`, shortened if it is long: it may contain names in an archive, answers or system errors of
    any length.
    """
    return FilesFailure(fault, short_text(why))


class FetchFiles(msgspec.Struct, frozen=True):
    """Fetch the files of an operation, for jobs of `user`, then call `on_files`."""

    operation: OperationId
    archive: Archive
    user: str


class RemoveFiles(msgspec.Struct, frozen=True):
    """Remove the files of an operation."""

    operation: OperationId


class OperationFiles:
    """The state of the operations' files on one node. `found` are the operations whose files an earlier agent process left here."""

    def __init__(self, folder: str, found: Iterable[OperationId] = ()) -> None:
        self._folder = folder
        self._here = set(found)
        self._coming: set[OperationId] = set()
        self._failures: dict[OperationId, FilesFailure] = {}

    def folder_of(self, spec: JobSpec) -> str:
        """Return the folder with the files of an operation; empty if the operation has no files."""
        return f"{self._folder}/{spec.operation}" if spec.files is not None else ""

    def want(self, spec: JobSpec | None) -> list[FetchFiles]:
        """Record that an allocation of an operation arrived. Return the order to fetch its files; empty if no fetch is needed."""
        if spec is None or spec.files is None or spec.operation in self._here | self._coming:
            return []
        self._failures.pop(spec.operation, None)
        self._coming.add(spec.operation)
        return [FetchFiles(spec.operation, spec.files, spec.user)]

    def is_coming(self, operation: OperationId) -> bool:
        """True if the files of the operation are being fetched, so that its jobs must wait."""
        return operation in self._coming

    def failure_of(self, operation: OperationId) -> FilesFailure | None:
        """Return the reason why jobs of the operation cannot start, or None."""
        return self._failures.get(operation)

    def fetched(self, operation: OperationId, failure: FilesFailure | None) -> None:
        """Record that the fetch of an operation's files ended. `failure` is None if the files are here now."""
        self._coming.discard(operation)
        if failure is None:
            self._here.add(operation)
        else:
            self._failures[operation] = failure

    def unused(self, held: Collection[OperationId]) -> list[OperationId]:
        """Return the operations whose files are here, without those in `held`, which have allocations here; at most as many as one
        question may name.
        """
        return sorted(self._here - set(held))[:MOST_OPERATIONS_ASKED]

    def over(self, operations: Iterable[OperationId], held: Collection[OperationId]) -> list[RemoveFiles]:
        """Record that operations have ended. Return orders to remove their files, except those of operations with allocations (`held`)."""
        gone = [each for each in operations if each in self._here and each not in held]
        self._here.difference_update(gone)
        return [RemoveFiles(each) for each in gone]

    def drop_failures(self, held: Collection[OperationId]) -> None:
        """Drop the failures of operations that have no allocation here."""
        for operation in [each for each in self._failures if each not in held]:
            del self._failures[operation]
