"""Operations whose files are on this node, are on their way, or cannot come.

Pure. The files of an operation are fetched once, however many jobs of it start, and stay until the operation is over.
A fetch that failed is tried anew with the next allocation.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

import msgspec

from headrace.ids import OperationId
from headrace.wire.files import MOST_OPERATIONS_ASKED, Archive
from headrace.wire.heartbeat import JobSpec, short_text


class FilesFault(enum.StrEnum):
    """Kinds of reasons for which files do not come."""

    #: They are lost or damaged: the job fails.
    LOST = "lost"
    #: This host cannot keep them: its job counts against nobody, and nothing starts here for a while.
    HOST = "host"
    #: Nobody answers for the moment: the allocation is given back.
    PASSING = "passing"


class FilesFailure(msgspec.Struct, frozen=True):
    """The reason for which the files of an operation did not come."""

    fault: FilesFault
    #: Fit for a message.
    why: str


def files_failure(fault: FilesFault, why: str) -> FilesFailure:
    """Make a failure of words that may be as long as they like: names in an archive, answers of admission, errors of the system."""
    return FilesFailure(fault, short_text(why))


class FetchFiles(msgspec.Struct, frozen=True):
    """Fetch the files of an operation, for jobs of that user, then say `on_files`."""

    operation: OperationId
    archive: Archive
    user: str


class RemoveFiles(msgspec.Struct, frozen=True):
    """Remove the files of an operation."""

    operation: OperationId


class OperationFiles:
    """The files of operations on one node. Those in `found` were here before."""

    def __init__(self, folder: str, found: Iterable[OperationId] = ()) -> None:
        self._folder = folder
        self._here = set(found)
        self._coming: set[OperationId] = set()
        self._failures: dict[OperationId, FilesFailure] = {}

    def folder_of(self, spec: JobSpec) -> str:
        """The folder with the files of an operation, empty for one that has none."""
        return f"{self._folder}/{spec.operation}" if spec.files is not None else ""

    def want(self, spec: JobSpec | None) -> list[FetchFiles]:
        """An allocation of the operation came."""
        if spec is None or spec.files is None or spec.operation in self._here | self._coming:
            return []
        self._failures.pop(spec.operation, None)
        self._coming.add(spec.operation)
        return [FetchFiles(spec.operation, spec.files, spec.user)]

    def is_coming(self, operation: OperationId) -> bool:
        """True if jobs of the operation wait for its files."""
        return operation in self._coming

    def failure_of(self, operation: OperationId) -> FilesFailure | None:
        """The reason for which jobs of the operation cannot start."""
        return self._failures.get(operation)

    def fetched(self, operation: OperationId, failure: FilesFailure | None) -> None:
        """Notes the end of a fetch."""
        self._coming.discard(operation)
        if failure is None:
            self._here.add(operation)
        else:
            self._failures[operation] = failure

    def unused(self, held: Collection[OperationId]) -> list[OperationId]:
        """Operations to ask about: their files are here, and no allocation."""
        return sorted(self._here - set(held))[:MOST_OPERATIONS_ASKED]

    def over(self, operations: Iterable[OperationId], held: Collection[OperationId]) -> list[RemoveFiles]:
        """Notes that operations are over. Where nothing of one is held its files go."""
        gone = [each for each in operations if each in self._here and each not in held]
        self._here.difference_update(gone)
        return [RemoveFiles(each) for each in gone]

    def drop_failures(self, held: Collection[OperationId]) -> None:
        """Forgets failures of operations that have no allocation here."""
        for operation in [each for each in self._failures if each not in held]:
            del self._failures[operation]
