"""The folder in which jobs and the agent of their host leave word for each other.

A job writes into `<job>.progress` how far it is. The runner writes into `<job>.deadline` when the job is killed, once its place is taken
back. Neither is there before it is written. The agent looks at the folder every now and then: it reads what jobs wrote, and removes
what belongs to no job. Jobs are not trusted: a file is read only if it is one, of the job's own account, and only its first bytes.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from headrace.wire.heartbeat import JobKey
from headrace_agent.host.environment import PROGRESS
from headrace_agent.runner.files.job_log import job_name
from headrace_agent.runner.host.accounts import NoAccount, account_named

_MOST_FILES: Final = 10_000
_MOST_BYTES: Final = 64
_ALL: Final = 1000


def make_exchange(folder: str, *, for_accounts: bool) -> None:
    """Makes the folder. With accounts each job may write there, and nobody may list it. Raises OSError."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o1733 if for_accounts else 0o700)


def names_in(folder: str) -> list[str]:
    """The files that are there. Raises OSError."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, _MOST_FILES)]


def look(folder: str, names: Iterable[str], jobs: Mapping[JobKey, str]) -> dict[JobKey, int]:
    """The progress of jobs in thousandths, as far as these files tell any. Removes those of other jobs.

    `jobs` are all that run, with their accounts, looked up after the names.
    """
    by_name = {job_name(job): job for job in jobs}
    found: dict[JobKey, int] = {}
    for name in names:
        owner, _, kind = name.removesuffix(".new").rpartition(".")
        job = by_name.get(owner)
        if job is None:
            with suppress(OSError):
                os.unlink(f"{folder}/{name}")
        elif kind == PROGRESS and name.endswith(kind):
            progress = _progress_in(f"{folder}/{name}", jobs[job])
            if progress is not None:
                found[job] = progress
    return found


def _progress_in(path: str, account: str) -> int | None:
    try:
        owner = account_named(account).uid if account else os.getuid()
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, NoAccount):
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            return None
        return parse_progress(os.read(fd, _MOST_BYTES))
    except OSError:
        return None
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
