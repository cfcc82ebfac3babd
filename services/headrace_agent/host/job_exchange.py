"""The exchange folder, through which jobs and the agent of their host pass small files to each other.

* A job writes its progress into `<job>.progress`. The file of a job with an account lies in the job's own folder `<job>`; the
  files of other jobs lie in the exchange folder itself.
* The runner writes the time of the kill into `<job>.deadline` in the exchange folder when it interrupts the job.

Neither file exists before it is written. At intervals the agent reads the progress files in the folder, and removes entries that belong to
no job. Jobs are not trusted: the agent reads a file only if it is a regular file of the job's own account, and reads only its first bytes.
The agent opens no path that leads through a job's folder, because the job could replace parts of such a path by links.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from headrace.wire.heartbeat import JobKey
from headrace_agent.host.environment import PROGRESS
from headrace_agent.runner.files.exchange_folders import open_exchange
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.host.accounts import NoAccount, account_named
from headrace_agent.runner.host.files import LinuxFiles

_MOST_FILES: Final = 10_000
_MOST_BYTES: Final = 64
_ALL: Final = 1000
#: Trash folder in the exchange folder; no job has such a name.
_TRASH: Final = ".trash"


class JobExchange:
    """The exchange folder, which the agent reads at intervals. All methods raise OSError if the folder cannot be used."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        os.close(open_exchange(folder))
        self._removal = Removal(LinuxFiles(), f"{folder}/{_TRASH}")
        #: Entries that belonged to no job at the last look. They are removed only if the next look finds them again: an entry may belong to
        #: a queued job which the runner has started, but which the agent does not know to be running yet.
        self._of_none: set[str] = set()

    def names(self) -> list[str]:
        """Return the names of the entries that exist. Raises OSError."""
        with os.scandir(self._folder) as entries:
            return [entry.name for entry in islice(entries, _MOST_FILES) if entry.name != _TRASH]

    def read_progress(self, names: list[str], jobs: Mapping[JobKey, str]) -> dict[JobKey, int]:
        """Return the progress of jobs in thousandths, as found in the entries `names`.

        Entries that belong to no job are removed at the second call that finds them. `jobs` maps all running jobs to their
        accounts. The caller must first list the names, and then look up the running jobs. Raises OSError.
        """
        by_name = {job_name(job): job for job in jobs}
        found: dict[JobKey, int] = {}
        of_none: set[str] = set()
        exchange = open_exchange(self._folder)
        try:
            for name in names:
                job = by_name.get(name) or by_name.get(name.removesuffix(".new").rpartition(".")[0])
                if job is None:
                    of_none.add(name)
                elif name == job_name(job) or name.endswith(f".{PROGRESS}"):
                    progress = _progress_of(job, jobs[job], exchange, in_folder=name == job_name(job))
                    if progress is not None:
                        found[job] = progress
            for name in of_none & self._of_none:
                self._remove(name, exchange)
        finally:
            os.close(exchange)
        self._of_none = of_none
        while self._removal.busy:
            self._removal.step()
        return found

    def _remove(self, name: str, exchange: int) -> None:
        try:
            os.unlink(name, dir_fd=exchange)
        except IsADirectoryError:
            # The folder cannot be removed if, for example, a file system is mounted on it. The next look at the exchange folder tries
            # again.
            with suppress(OSError):
                self._removal.remove(f"{self._folder}/{name}")
        except OSError:
            # The file is gone already. If it is not, the next look at the exchange folder tries again.
            pass


def _progress_of(job: JobKey, account: str, exchange: int, *, in_folder: bool) -> int | None:
    folder = -1
    try:
        owner = account_named(account).uid if account else os.getuid()
        if in_folder:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            folder = os.open(job_name(job), flags, dir_fd=exchange)
        return _progress_in(f"{job_name(job)}.{PROGRESS}", folder if in_folder else exchange, owner)
    except (OSError, NoAccount):
        return None
    finally:
        if folder >= 0:
            os.close(folder)


def _progress_in(name: str, folder: int, owner: int) -> int | None:
    """Return the progress in a file of the account `owner`, or None.

    The call does not block, even if a job put a pipe or a device there or holds a file lease. Raises OSError.
    """
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            return None
        return parse_progress(os.read(fd, _MOST_BYTES))
    finally:
        os.close(fd)


def parse_progress(data: bytes) -> int | None:
    """Parse `0.25` or `30/400` as thousandths. Return None for anything else."""
    done, slash, total = data.partition(b"/")
    try:
        part = float(done) / float(total) if slash else float(done)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return round(min(1.0, max(0.0, part)) * _ALL) if math.isfinite(part) else None
