"""Files that outlive the runner: one for each job, from before its process starts until its end is acknowledged.

A file holds records, each with length and checksum: the job, then its process, then its end. So at any time the file says
either that the job may be running, or how it ended. The file of an acknowledged job is marked as free and used for a later job.
Making and removing a file would cost far more than writing the records, and for each new file ext4 searches all files that were
removed in the last seconds.

Behind the newest record there may be records of an earlier job. Their checksums do not match, because each checksum depends on the checksum
of the file's first record. A torn record (the runner was killed during the write, or the disk was full) counts as not written. Nothing is
synced to the disk: what was written survives a kill of the runner. After a crash of the host the files are not needed to find processes,
because none is left.
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
#: Length and checksum of an empty record, at the beginning of a free file.
_FREE = bytes(_HEAD_BYTES)
_LARGEST_FILE_BYTES = 8 * 1024 * 1024
_MOST_FREE = 1_000


class JobRecord(msgspec.Struct, frozen=True, tag="job"):
    """A job that is about to be started."""

    job: JobKey
    allocation: str
    #: Identity of the boot in which the job was started. After another boot of the host, the job's process certainly does not exist.
    boot: str
    #: Record of the decision that started the allocation, which becomes part of the job's end if the job is lost; None in files of older
    #: versions.
    start: StartRecord | None = None


class ProcessRecord(msgspec.Struct, frozen=True, tag="process"):
    """The main process of a job."""

    pid: int
    started_at_ms: int


class EndRecord(msgspec.Struct, frozen=True, tag="end"):
    """The end of a job."""

    end: JobEnd


KeptRecord = JobRecord | ProcessRecord | EndRecord


class Leftover(msgspec.Struct, frozen=True):
    """A job that an earlier runner started or was about to start, and whose end that runner did not record."""

    record: JobRecord
    #: The main process. None: the process was not started, or the runner was killed before it recorded the process.
    process: ProcessRecord | None


class EarlierRunner(msgspec.Struct):
    """The ends and jobs that an earlier runner left."""

    ends: list[JobEnd] = []
    leftovers: list[Leftover] = []
    #: Original names of the files that could not be read; each of them was moved to `spoiled/`.
    spoiled: list[str] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KeptRecord)


class _File(msgspec.Struct):
    """The file of one job."""

    path: str
    #: Descriptor; -1: the file is closed. The file is open only until the job's end is recorded, since each open file makes the start of
    #: every process more expensive.
    fd: int = -1
    #: Offset of the next record.
    size_bytes: int = 0
    #: Checksum of the first record, on which the checksums of the later records depend. 0 for a file that an older version wrote: there,
    #: each checksum stands alone.
    first: int = 0


def has_jobs(files: LinuxFiles, state: str) -> bool:
    """True if a runner of this state folder may have left jobs or ends that this runner has not handled yet. Raises OSError."""
    folder = f"{state}/jobs"
    return any(_read(files, f"{folder}/{entry.name}", _HEAD_BYTES) != _FREE for entry in files.entries(folder))


class KeptJobs:
    """The folder `jobs` in the state folder. Files that cannot be read are moved to the folder `spoiled` beside it."""

    def __init__(self, files: LinuxFiles, state: str) -> None:
        self._files = files
        self._folder = f"{state}/jobs"
        self._spoiled = f"{state}/spoiled"
        #: Number of the newest file, which is its name.
        self._serial = 0
        self._of_job: dict[JobKey, _File] = {}
        #: Free files, which belong to no job and are used for later jobs.
        self._free: list[_File] = []
        #: Ends that could not be written, oldest first.
        self._unwritten: dict[JobKey, JobEnd] = {}
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Return how many ends are held in memory only, and why; empty if every end was written."""
        count = len(self._unwritten)
        return f"{count} ends of jobs are held in memory only: {self._trouble}" if count else ""

    @property
    def unwritten(self) -> int:
        return len(self._unwritten)

    def load(self) -> EarlierRunner:
        """Read what an earlier runner left. Files that cannot be read are moved to `spoiled`.

        Raises OSError only if the folder cannot be used.
        """
        self._files.make_folder(self._folder)
        # The folder does not exist until the first unreadable file is moved into it.
        with contextlib.suppress(OSError):
            self._serial = _newest(self._files, self._spoiled)
        self._serial = max(self._serial, _newest(self._files, self._folder))
        kept = EarlierRunner()
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
        """Record a job before its start.

        Raises OSError: the job must not be started then, because a later runner could not find it.
        """
        file = self._file_of(record.job)
        try:
            self._write(file, record)
        except OSError:
            self.forget(record.job)
            raise

    def write_process(self, job: JobKey, record: ProcessRecord) -> None:
        """Record the process of a job after its start.

        Raises OSError. Without this record the process can still be found by its marker.
        """
        self._write(self._file_of(job), record)

    def write_end(self, end: JobEnd) -> bool:
        """Record an end in the job's file. Return False if that failed and the end is held in memory for `retry`."""
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
        """Try again to write the ends that are held in memory, the oldest first, until one of them cannot be written."""
        for end in list(self._unwritten.values()):
            if not self.write_end(end):
                return

    def forget(self, job: JobKey) -> None:
        """Release the job's file, if there is one: mark it as free, or remove it."""
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
        """Remove the free files, so that only the files of jobs remain."""
        for file in self._free:
            self._remove(file.path)

    def _file_of(self, job: JobKey) -> _File:
        file = self._of_job.get(job)
        if file is None:
            if not self._free:
                self._serial += 1
            file = self._of_job[job] = self._free.pop() if self._free else _File(f"{self._folder}/{self._serial}")
        return file

    def _write(self, file: _File, record: KeptRecord, *, is_last: bool = False) -> None:
        """Append a record to a file, and close the file after the last record.

        Raises OSError with the path in it; then the record counts as not written.
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
        """Close the file. Raises OSError with the path in it: a network disk may report only now that it is full."""
        fd, file.fd = file.fd, -1
        try:
            if fd >= 0:
                self._files.close(fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, file.path) from None

    def _remove(self, path: str) -> None:
        # If the file of an end stays, the end is reported again after a restart. That is harmless, because an end counts only once.
        with contextlib.suppress(OSError):
            self._files.unlink(path)

    def _move_aside(self, path: str, name: str) -> None:
        try:
            self._files.make_folder(self._spoiled)
            self._files.rename(path, f"{self._spoiled}/{name}")
        except OSError:
            self._remove(path)


def _read(files: LinuxFiles, path: str, most_bytes: int) -> bytes:
    """Return the beginning of a file; empty if it cannot be read."""
    try:
        return files.read_file(path, most_bytes)
    except OSError:
        return b""


def _newest(files: LinuxFiles, folder: str) -> int:
    return max((int(entry.name) for entry in files.entries(folder) if entry.name.isdecimal()), default=0)


def _records_in(path: str, data: bytes) -> tuple[list[KeptRecord], _File]:
    """Return the complete records of one job, and the file to which the next record is appended."""
    file = _File(path)
    records: list[KeptRecord] = []
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
    """True if the file's checksums depend on the checksum of its first record.

    The name of such a file is a number. Files of older versions are named after their job, and each of their checksums stands alone.
    """
    return path.rpartition("/")[2].isdecimal()


def _head(payload: bytes, checksum: int) -> bytes:
    return len(payload).to_bytes(4, "big") + checksum.to_bytes(4, "big")
