"""Files that outlive the runner: one per job, from before its process starts until its end is acknowledged.

A file holds records, each with length and checksum: the job, then its process, then its end. They are appended, and one that is torn
(the runner was killed within the write, the disk was full) counts as not written. So at any moment the file says «perhaps running» or
«ended so». An append costs a third of a file renamed over another, which ext4 moreover flushes at once. Only where an append failed
is the whole file replaced. Nothing is synced: a killed runner loses nothing that was written, and after a crash of the host no
process is left that a file could speak of.
"""

from __future__ import annotations

import contextlib
import os
import zlib

import msgspec

from headrace.wire.heartbeat import JobEnd, JobKey
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.host.files import LinuxFiles, write_file

_HEAD_BYTES = 8
_LARGEST_FILE_BYTES = 8 * 1024 * 1024
_NEW = ".new"


class JobRecord(msgspec.Struct, frozen=True, tag="job"):
    """A job that is about to be started."""

    job: JobKey
    allocation: str
    #: Identity of the boot: a process of another one is gone for certain.
    boot: str


class ProcessRecord(msgspec.Struct, frozen=True, tag="process"):
    """The main process of a job."""

    pid: int
    started_at_ms: int


class EndRecord(msgspec.Struct, frozen=True, tag="end"):
    """The end of a job."""

    end: JobEnd


Record = JobRecord | ProcessRecord | EndRecord


class Leftover(msgspec.Struct, frozen=True):
    """A job that a former runner started and did not see the end of."""

    record: JobRecord
    #: None: it was not started yet, or the runner was killed in between.
    process: ProcessRecord | None


class Kept(msgspec.Struct):
    """The ends and jobs that a former runner left."""

    ends: list[JobEnd] = []
    leftovers: list[Leftover] = []
    #: Names of files that could not be read, as they were; each is in `spoiled/` now.
    spoiled: list[str] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


class KeptJobs:
    """The folder `jobs` in the state folder, with `spoiled` beside it."""

    def __init__(self, files: LinuxFiles, state: str) -> None:
        self._files = files
        self._jobs = f"{state}/jobs"
        self._spoiled = f"{state}/spoiled"
        #: Ends whose file could not be written, oldest first.
        self._unwritten: dict[JobKey, JobEnd] = {}
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Says how many ends are held in memory only, and why. Empty if none is."""
        count = len(self._unwritten)
        return f"{count} ends of jobs are held in memory only: {self._trouble}" if count else ""

    @property
    def unwritten(self) -> int:
        return len(self._unwritten)

    def load(self) -> Kept:
        """Reads what a former runner left. Files that cannot be read are moved aside.

        Raises OSError only for the folder.
        """
        self._files.make_folder(self._jobs)
        kept = Kept()
        for entry in self._files.entries(self._jobs):
            path = f"{self._jobs}/{entry.name}"
            if entry.name.endswith(_NEW):  # an end that was being written; the file it was to replace is there
                self._files.unlink(path)
                continue
            records = self._read(path)
            match records:
                case [*_, EndRecord(end)] if job_name(end.key) == entry.name:
                    kept.ends.append(end)
                case [JobRecord() as record] if job_name(record.job) == entry.name:
                    kept.leftovers.append(Leftover(record, None))
                case [JobRecord() as record, ProcessRecord() as process] if job_name(record.job) == entry.name:
                    kept.leftovers.append(Leftover(record, process))
                case _:
                    self._move_aside(path, entry.name)
                    kept.spoiled.append(entry.name)
        kept.ends.sort(key=lambda end: (end.ended_at_ms, end.key))
        kept.leftovers.sort(key=lambda leftover: leftover.record.job)
        return kept

    def write_job(self, record: JobRecord) -> None:
        """Adds a job before its start. Raises OSError: then it must not be started, since nobody could find it again."""
        path = self._path(record.job)
        try:
            write_file(self._files, path, _pack(record))
        except OSError:
            self._remove(path)
            raise

    def write_process(self, job: JobKey, record: ProcessRecord) -> None:
        """Adds the process, after the start.

        Raises OSError. Without the record the process can still be found by its marker.
        """
        write_file(self._files, self._path(job), _pack(record), os.O_WRONLY | os.O_APPEND)

    def write_end(self, end: JobEnd) -> bool:
        """Adds an end to the job's file. Returns False if it could not be written and is held in memory for `retry`."""
        path = self._path(end.key)
        record = _pack(EndRecord(end))
        try:
            if end.key in self._unwritten:
                write_file(self._files, path + _NEW, record)
                self._files.rename(path + _NEW, path)
            else:
                write_file(self._files, path, record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            self._remove(path + _NEW)
            self._unwritten[end.key] = end
            self._trouble = f"{error.filename}: {error.strerror}"
            return False
        self._unwritten.pop(end.key, None)
        return True

    def retry(self) -> None:
        """Tries the oldest unwritten end again, and the others if that worked."""
        for end in list(self._unwritten.values()):
            if not self.write_end(end):
                return

    def forget(self, job: JobKey) -> None:
        """The job's file goes, if there is one."""
        self._unwritten.pop(job, None)
        self._remove(self._path(job))

    def _path(self, job: JobKey) -> str:
        return f"{self._jobs}/{job_name(job)}"

    def _remove(self, path: str) -> None:
        # One that cannot be removed is reported again after a restart: harmless, since an end may be told twice.
        with contextlib.suppress(OSError):
            self._files.unlink(path)

    def _read(self, path: str) -> list[Record]:
        try:
            return _unpack(self._files.read_file(path, _LARGEST_FILE_BYTES))
        except (OSError, msgspec.DecodeError, ValueError):
            return []

    def _move_aside(self, path: str, name: str) -> None:
        try:
            self._files.make_folder(self._spoiled)
            self._files.rename(path, f"{self._spoiled}/{name}")
        except OSError:
            self._remove(path)


def _pack(record: Record) -> bytes:
    payload = _encoder.encode(record)
    return len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big") + payload


def _unpack(data: bytes) -> list[Record]:
    """All whole records. A torn one after a whole one is as if it had not been begun. Raises ValueError or DecodeError."""
    records: list[Record] = []
    while data:
        size = int.from_bytes(data[:4], "big")
        payload = data[_HEAD_BYTES : _HEAD_BYTES + size]
        if len(data) < _HEAD_BYTES or len(payload) < size:
            break
        if zlib.crc32(payload) != int.from_bytes(data[4:_HEAD_BYTES], "big"):
            raise ValueError("checksum")
        records.append(_decoder.decode(payload))
        data = data[_HEAD_BYTES + size :]
    return records
