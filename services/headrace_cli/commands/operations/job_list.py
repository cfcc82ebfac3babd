"""The jobs that `op get --jobs` lists, and what their ended attempts used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from headrace.client import Client, Refused, Unanswered
from headrace.errors import BadInput
from headrace.whole_numbers import at_least
from headrace.wire.happenings import JobEnded
from headrace.wire.heartbeat import JobResult, JobSlot
from headrace.wire.operations import LARGEST_JOB_COUNT, JobRow, OperationView
from headrace.wire.plain_values import plain

#: Upper bound of the ended attempts whose figures are read from the log. A hundred thousand attempts would take some hundred requests.
_MOST_ENDS: Final = 10_000
#: Largest number of jobs in the table without `--limit`. A terminal of a person has no use for more.
_MOST_ROWS: Final = 1_000
#: Fields of an attempt's end that the JSON of a job has besides the fields of `JobRow`.
_FIELDS_OF_END: Final = ("started_at_ms", "cpu_ms", "max_rss_bytes", "from_cgroup")


class JobWishes(NamedTuple):
    """The jobs that the options of `op get` name."""

    first: int
    limit: int
    results: tuple[JobResult, ...]
    #: True if the user named one job.
    is_one: bool = False

    @staticmethod
    def read(jobs: bool, *, failed: bool, job: int | None, limit: int | None, json: bool = False) -> JobWishes | None:
        """Return the jobs that the options name, or None without `--jobs`. Raises `BadInput` if the options cannot be combined.

        Without a limit, JSON has all jobs, and a table the first 1,000.
        """
        given = {"--failed": failed, "--job": job is not None, "--limit": limit is not None}
        without = [option for option, is_given in given.items() if is_given and not jobs]
        if without:
            raise BadInput.because("op get", f"{without[0]} needs --jobs, because it chooses among the listed jobs")
        if not jobs:
            return None
        unlimited = LARGEST_JOB_COUNT if json else _MOST_ROWS
        most = unlimited if limit is None else at_least("--limit", limit, 1)
        results = (JobResult.FAILED, JobResult.TIMED_OUT) if failed else ()
        if job is None:
            return JobWishes(0, most, results)
        if failed:
            raise BadInput.because("--job", "--job and --failed cannot be combined")
        return JobWishes(at_least("--job", job, 0), 1, results, is_one=True)


class ListedJobs(NamedTuple):
    """Jobs, and the ends of their newest ended attempts as far as the log has them."""

    rows: Sequence[JobRow]
    ends: dict[JobSlot, JobEnded]
    #: True if further jobs match.
    more: bool
    #: True if the ends were not read, because the jobs are too many.
    without_ends: bool = False

    def notes(self) -> Iterator[str]:
        """Yield what the list leaves out."""
        if self.more:
            yield f"only the first {len(self.rows)} are shown; --limit shows more"
        if self.without_ends:
            yield f"start, run time, CPU time and memory are shown for at most {_MOST_ENDS} jobs: use --limit, --failed or --job"

    def as_json(self) -> list[dict[str, object]]:
        """Return the jobs as JSON objects, each with start, end, CPU time and peak memory; null if not known."""
        return [{**_fields(row), **_fields_of_end(self.ends.get(row.slot))} for row in self.rows]


async def listed_jobs(client: Client, view: OperationView, wishes: JobWishes) -> ListedJobs:
    """Return the jobs that the user wishes to see. The ends are missing if the log cannot be read."""
    if wishes.first >= view.spec.job_count:
        raise BadInput("--job", wishes.first, f"an index from 0 to {view.spec.job_count - 1}")
    name = view.operation
    most = wishes.limit if wishes.is_one else wishes.limit + 1
    rows = [row async for row in client.jobs(name, first=wishes.first, limit=most, results=wishes.results)]
    more, rows = len(rows) > wishes.limit, rows[: wishes.limit]
    ends: dict[JobSlot, JobEnded] = {}
    ended = [row.slot for row in rows if row.result is not None]
    if len(ended) > _MOST_ENDS:
        return ListedJobs(rows, ends, more, without_ends=True)
    with suppress(Refused, Unanswered):
        ends = await client.happenings.ends(name, ended) if ended else {}
    return ListedJobs(rows, ends, more)


def _fields(row: JobRow) -> dict[str, object]:
    fields = plain(row)
    assert isinstance(fields, dict)
    return fields


def _fields_of_end(end: JobEnded | None) -> dict[str, object]:
    if end is None:
        return {**dict.fromkeys(_FIELDS_OF_END), "ended_at_ms": None}
    return {**{name: getattr(end, name) for name in _FIELDS_OF_END}, "ended_at_ms": end.at_ms}
