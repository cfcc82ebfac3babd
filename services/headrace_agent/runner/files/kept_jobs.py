"""Files that outlive the runner: one per job, from before its process starts until its end is acknowledged.

A file holds records, each with length and checksum: the job, then its process, then its end. So at any moment it says «perhaps
running» or «ended so». A file whose job is acknowledged is marked as free and goes to a later job: to make a file and to remove it
costs far more than the records, and ext4 looks through all that it removed in the last seconds for each new one.

What an earlier job left behind the newest record is told apart by the checksums: each depends on that of the file's first record. A
record that is torn (the runner was killed within the write, the disk was full) counts as not written. Nothing is synced: a killed
runner loses nothing that was written, and after a crash of the host no process is left that a file could speak of.
"""

from __future__ import annotations

import contextlib
import os
import zlib

import msgspec

from headrace.wire.heartbeat import JobEnd, JobKey
from headrace.wire.start_stages import StartRecord
from headrace_agent.runner.host.files import LinuxFiles

_HEAD_BYTES = 8
#: Length and checksum of nothing, at the beginning of a file that no job has.
_FREE = bytes(_HEAD_BYTES)
_LARGEST_FILE_BYTES = 8 * 1024 * 1024
_MOST_FREE = 1_000


class JobRecord(msgspec.Struct, frozen=True, tag="job"):
    """A job that is about to be started."""

    job: JobKey
    allocation: str
    #: Identity of the boot: a process of another one is gone for certain.
    boot: str
    #: How its allocation got its place, for an end that nobody sees; null in files of former versions.
    start: StartRecord | None = None


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


class _File(msgspec.Struct):
    """The file of one job."""

    path: str
    #: It is open from the record of the job to that of its end: every process that is started costs more with each open file.
    fd: int = -1
    #: Where the next record goes.
    size_bytes: int = 0
    #: The checksum of its first record, on which those of the others depend. In a file of an older version none does.
    first: int = 0


def has_jobs(files: LinuxFiles, state: str) -> bool:
    """True if a runner of this state folder may have left jobs or ends of which nothing is known. Raises OSError."""
    folder = f"{state}/jobs"
    return any(_read(files, f"{folder}/{entry.name}", _HEAD_BYTES) != _FREE for entry in files.entries(folder))


class KeptJobs:
    """The folder `jobs` in the state folder, with `spoiled` beside it."""

    def __init__(self, files: LinuxFiles, state: str) -> None:
        self._files = files
        self._folder = f"{state}/jobs"
        self._spoiled = f"{state}/spoiled"
        #: The newest file's name.
        self._serial = 0
        self._of_job: dict[JobKey, _File] = {}
        #: Files that no job has.
        self._free: list[_File] = []
        #: Ends that could not be written, oldest first.
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
        self._files.make_folder(self._folder)
        with contextlib.suppress(OSError):  # there is none as long as nothing was spoiled
            self._serial = _newest(self._files, self._spoiled)
        self._serial = max(self._serial, _newest(self._files, self._folder))
        kept = Kept()
        for entry in self._files.entries(self._folder):
            path = f"{self._folder}/{entry.name}"
            data = _read(self._files, path, _LARGEST_FILE_BYTES)
            if data[:_HEAD_BYTES] == _FREE:
                self._remove(path)
                continue
            records, file = _records_in(path, data)
            match records:
                case [EndRecord(end)] | [JobRecord(), EndRecord(end)] | [JobRecord(), ProcessRecord(), EndRecord(end)]:
                    kept.ends.append(end)
                    self._of_job[end.key] = file
                case [JobRecord() as record]:
                    kept.leftovers.append(Leftover(record, None))
                    self._of_job[record.job] = file
                case [JobRecord() as record, ProcessRecord() as process]:
                    kept.leftovers.append(Leftover(record, process))
                    self._of_job[record.job] = file
                case _:
                    self._move_aside(path, entry.name)
                    kept.spoiled.append(entry.name)
        kept.ends.sort(key=lambda end: (end.ended_at_ms, end.key))
        kept.leftovers.sort(key=lambda leftover: leftover.record.job)
        return kept

    def write_job(self, record: JobRecord) -> None:
        """Adds a job before its start. Raises OSError: then it must not be started, since nobody could find it again."""
        file = self._file_of(record.job)
        try:
            self._write(file, record)
        except OSError:
            self.forget(record.job)
            raise

    def write_process(self, job: JobKey, record: ProcessRecord) -> None:
        """Adds the process, after the start.

        Raises OSError. Without the record the process can still be found by its marker.
        """
        self._write(self._file_of(job), record)

    def write_end(self, end: JobEnd) -> bool:
        """Adds an end to the job's file. Returns False if it could not be written and is held in memory for `retry`."""
        file = self._file_of(end.key)
        try:
            self._write(file, EndRecord(end), is_last=True)
        except OSError as error:
            self._unwritten[end.key] = end
            self._trouble = f"{error.filename}: {error.strerror}"
            with contextlib.suppress(OSError):
                self._close(file)
            return False
        self._unwritten.pop(end.key, None)
        return True

    def retry(self) -> None:
        """Tries the oldest unwritten end again, and the others if that worked."""
        for end in list(self._unwritten.values()):
            if not self.write_end(end):
                return

    def forget(self, job: JobKey) -> None:
        """The job's file is free, if there is one."""
        self._unwritten.pop(job, None)
        file = self._of_job.pop(job, None)
        if file is None:
            return
        try:
            if len(self._free) < _MOST_FREE and _is_chained(file.path):
                file.size_bytes = file.first = 0
                self._write_at(file, _FREE, 0)
                self._close(file)
                self._free.append(file)
            else:
                self._close(file)
                self._files.unlink(file.path)
        except OSError:
            self._remove(file.path)
            with contextlib.suppress(OSError):
                self._close(file)

    def close(self) -> None:
        """Leaves only the files of jobs behind."""
        for file in self._free:
            self._remove(file.path)

    def _file_of(self, job: JobKey) -> _File:
        file = self._of_job.get(job)
        if file is None:
            if not self._free:
                self._serial += 1
            file = self._of_job[job] = self._free.pop() if self._free else _File(f"{self._folder}/{self._serial}")
        return file

    def _write(self, file: _File, record: Record, *, is_last: bool = False) -> None:
        """Adds a record behind those that the file has, and closes it behind the last.

        Raises OSError with the path in it: then it is as if nothing was written.
        """
        payload = _encoder.encode(record)
        checksum = zlib.crc32(payload, file.first)
        self._write_at(file, _head(payload, checksum) + payload, file.size_bytes)
        if is_last:
            self._close(file)
        if not file.size_bytes:
            file.first = checksum
        file.size_bytes += _HEAD_BYTES + len(payload)

    def _write_at(self, file: _File, data: bytes, place: int) -> None:
        try:
            if file.fd < 0:
                file.fd = self._files.open(file.path, os.O_WRONLY | os.O_CREAT)
            rest = memoryview(data)
            while rest:
                written = self._files.write_at(file.fd, rest, place)
                place, rest = place + written, rest[written:]
        except OSError as error:
            raise OSError(error.errno, error.strerror, file.path) from None

    def _close(self, file: _File) -> None:
        """Raises OSError with the path in it: a disk across the network may say only now that it has no room."""
        fd, file.fd = file.fd, -1
        try:
            if fd >= 0:
                self._files.close(fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, file.path) from None

    def _remove(self, path: str) -> None:
        # One that cannot be removed is reported again after a restart: harmless, since an end may be told twice.
        with contextlib.suppress(OSError):
            self._files.unlink(path)

    def _move_aside(self, path: str, name: str) -> None:
        try:
            self._files.make_folder(self._spoiled)
            self._files.rename(path, f"{self._spoiled}/{name}")
        except OSError:
            self._remove(path)


def _read(files: LinuxFiles, path: str, most_bytes: int) -> bytes:
    """The beginning of a file, empty where it cannot be read."""
    try:
        return files.read_file(path, most_bytes)
    except OSError:
        return b""


def _newest(files: LinuxFiles, folder: str) -> int:
    return max((int(entry.name) for entry in files.entries(folder) if entry.name.isdecimal()), default=0)


def _records_in(path: str, data: bytes) -> tuple[list[Record], _File]:
    """The whole records of one job, and the file that the next is added to."""
    file = _File(path)
    records: list[Record] = []
    is_chained = _is_chained(path)
    while True:
        begin = file.size_bytes + _HEAD_BYTES
        head = data[file.size_bytes : begin]
        payload = data[begin : begin + int.from_bytes(head[:4], "big")]
        checksum = zlib.crc32(payload, file.first)
        if head != _head(payload, checksum):
            return records, file
        try:
            records.append(_decoder.decode(payload))
        except (msgspec.DecodeError, ValueError):
            return records, file
        if is_chained and not file.size_bytes:
            file.first = checksum
        file.size_bytes = begin + len(payload)


def _is_chained(path: str) -> bool:
    """True if its checksums depend on the first. Older versions named a file by its job."""
    return path.rpartition("/")[2].isdecimal()


def _head(payload: bytes, checksum: int) -> bytes:
    return len(payload).to_bytes(4, "big") + checksum.to_bytes(4, "big")
