"""The record of which operations' files are on this node, are being fetched, or could not be fetched.

Pure. The files of an operation are fetched once, however many jobs of it start, and stay until the operation has ended. A failed fetch is
tried again when the next allocation of the operation arrives. Each start of an operation has a folder of its own (`folder_of_start`): an
operation never gets the files of an earlier operation with the same id, which the account of another person may have changed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec

from headrace.ids import OperationId, operation_id
from headrace.wire.files import MOST_OPERATIONS_ASKED, Archive
from headrace.wire.heartbeat import JobSpec, short_text
from headrace_agent.runner.files.start_folder import folder_of_start


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
    #: Name of the folder for the files.
    folder: str


class RemoveFiles(msgspec.Struct, frozen=True):
    """Remove the folder with the files of an operation."""

    folder: str


def operation_of(folder: str) -> OperationId:
    """Return the operation whose files are in the folder with this name. Raises `BadInput` if it is no such folder."""
    return operation_id(folder.partition(".")[0])


class OperationFiles:
    """The state of the operations' files on one node. `found` are the folders with files that an earlier agent process left here."""

    def __init__(self, folder: str, found: Iterable[str] = ()) -> None:
        self._folder = folder
        #: Names of the folders whose files are here, and of the folders whose files are being fetched.
        self._here = set(found)
        self._coming: set[str] = set()
        self._failures: dict[str, FilesFailure] = {}

    def folder_of(self, spec: JobSpec) -> str:
        """Return the folder with the files of an operation; empty if the operation has no files."""
        return f"{self._folder}/{_name(spec)}" if spec.files is not None else ""

    def want(self, spec: JobSpec | None) -> list[FetchFiles]:
        """Record that an allocation of an operation arrived. Return the order to fetch its files; empty if no fetch is needed."""
        if spec is None or spec.files is None or _name(spec) in self._here | self._coming:
            return []
        self._failures.pop(_name(spec), None)
        self._coming.add(_name(spec))
        return [FetchFiles(spec.operation, spec.files, spec.user, _name(spec))]

    def is_coming(self, spec: JobSpec | None) -> bool:
        """True if the files of the operation are being fetched, so that its jobs must wait."""
        return spec is not None and _name(spec) in self._coming

    def failure_of(self, spec: JobSpec) -> FilesFailure | None:
        """Return the reason why jobs of the operation cannot start, or None."""
        return self._failures.get(_name(spec))

    def fetched(self, folder: str, failure: FilesFailure | None) -> None:
        """Record that a fetch of files ended. `failure` is None if the files are here now."""
        self._coming.discard(folder)
        if failure is None:
            self._here.add(folder)
        else:
            self._failures[folder] = failure

    def unused(self, held: Mapping[OperationId, JobSpec]) -> list[OperationId]:
        """Return the operations whose files are here, without those in `held`, which have allocations here; at most as many as one
        question may name.
        """
        return sorted({operation_of(each) for each in self._here} - set(held))[:MOST_OPERATIONS_ASKED]

    def over(self, operations: Iterable[OperationId], held: Mapping[OperationId, JobSpec]) -> list[RemoveFiles]:
        """Record that operations have ended. Return orders to remove their files, except those of operations with allocations (`held`)."""
        ended = set(operations) - set(held)
        gone = sorted(each for each in self._here if operation_of(each) in ended)
        self._here.difference_update(gone)
        return [RemoveFiles(each) for each in gone]

    def drop_failures(self, held: Mapping[OperationId, JobSpec]) -> None:
        """Drop the failures of operations that have no allocation here."""
        names = {_name(spec) for spec in held.values()}
        for folder in [folder for folder in self._failures if folder not in names]:
            del self._failures[folder]


def _name(spec: JobSpec) -> str:
    return folder_of_start(spec.operation, spec.started_at_ms)
