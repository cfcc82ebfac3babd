"""The folder in which jobs and the agent of their host leave word for each other.

A job writes into `<job>.progress` how far it is: a job of an account in its own folder `<job>`, other jobs in the exchange folder itself.
The runner writes into `<job>.deadline` in the exchange folder when the job is killed, once its place is taken back. Neither is there before
it is written. The agent looks at the folder every now and then: it reads what jobs wrote, and removes what belongs to no job. Jobs are not
trusted: a file is read only if it is one, of the job's own account, and only its first bytes. No path leads through a job's folder.
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
from headrace_agent.runner.files.exchange import open_exchange
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.files.removal import Removal
from headrace_agent.runner.host.accounts import NoAccount, account_named
from headrace_agent.runner.host.files import LinuxFiles

_MOST_FILES: Final = 10_000
_MOST_BYTES: Final = 64
_ALL: Final = 1000
#: In the exchange folder; no job has such a name.
_TRASH: Final = ".trash"


class JobExchange:
    """The exchange folder, looked at again and again. Raises OSError where it cannot be used."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        os.close(open_exchange(folder))
        self._removal = Removal(LinuxFiles(), f"{folder}/{_TRASH}")
        #: Entries that belonged to no job at the look before. The agent may be slow to hear of a job that the runner went on with.
        self._of_none: set[str] = set()

    def names(self) -> list[str]:
        """The entries that are there. Raises OSError."""
        with os.scandir(self._folder) as entries:
            return [entry.name for entry in islice(entries, _MOST_FILES) if entry.name != _TRASH]

    def look(self, names: list[str], jobs: Mapping[JobKey, str]) -> dict[JobKey, int]:
        """The progress of jobs in thousandths, as far as these entries tell any.

        Entries that belong to no job are removed at the second look that finds them. `jobs` are all that run, with their accounts,
        looked up after the names. Raises OSError.
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
            with suppress(OSError):  # a file system may be mounted there; the next look tries again
                self._removal.take(f"{self._folder}/{name}")
        except OSError:
            pass  # The file is gone already, or the next look tries again.


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
    """Raises OSError. A pipe, a lease or a device keeps nobody waiting."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            return None
        return parse_progress(os.read(fd, _MOST_BYTES))
    finally:
        os.close(fd)


def parse_progress(data: bytes) -> int | None:
    """Reads `0.25` or `30/400` as thousandths. None for anything else."""
    done, slash, total = data.partition(b"/")
    try:
        part = float(done) / float(total) if slash else float(done)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return round(min(1.0, max(0.0, part)) * _ALL) if math.isfinite(part) else None
