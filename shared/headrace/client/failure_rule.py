"""Rules for failed jobs of operations that people start: when a job is given up, and when the operation fails."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from headrace.errors import BadInput
from headrace.retry_rules import parse_failures, parse_memory_on_oom
from headrace.wire.operation_spec import LARGEST_JOB_COUNT, TRIES


class FailureWishes(TypedDict, total=False):
    """Options of a person for failed jobs; None and a missing key stand for the default."""

    tries: int | None
    keep_going: bool | None
    max_failed_job_count: int | None
    retry_on: str | None
    no_retry_on: str | None
    suspend_on_failure: bool
    memory_on_oom: str | None


def failure_rule(job_count: int, *, is_gang: bool, **wishes: Unpack[FailureWishes]) -> dict[str, Any]:
    """Return the fields of a spec for failed jobs.

    By default each job has `TRIES` tries, and an operation of several jobs goes on after a job was given up. With only
    `max_failed_job_count`, as in YTsaurus, a single job has no limit of its own. A gang cannot go on without one of its jobs. Raises
    `BadInput`.
    """
    rules = _retry_rules(wishes)
    tries, keep_going = wishes.get("tries"), wishes.get("keep_going")
    max_failed_job_count = wishes.get("max_failed_job_count")
    if tries is None and max_failed_job_count is not None:
        if keep_going:
            raise BadInput.because(
                "keep_going",
                "with only `max_failed_job_count` no job is given up. Set `tries` as well, or leave out `keep_going`",
            )
        return {"tries": 0, "keep_going": False, "max_failed_job_count": max_failed_job_count, **rules}
    if keep_going and is_gang:
        raise BadInput.because("keep_going", "a gang cannot run without one of its jobs. Leave out `keep_going`")
    return {
        "tries": TRIES if tries is None else tries,
        "keep_going": job_count > 1 and not is_gang if keep_going is None else keep_going,
        "max_failed_job_count": LARGEST_JOB_COUNT if max_failed_job_count is None else max_failed_job_count,
        **rules,
    }


def _retry_rules(wishes: FailureWishes) -> dict[str, Any]:
    retry_on, no_retry_on = wishes.get("retry_on"), wishes.get("no_retry_on")
    if retry_on is not None and no_retry_on is not None:
        raise BadInput.because("no_retry_on", "`retry_on` and `no_retry_on` cannot be combined. Leave out one of them")
    for place, text in (("retry_on", retry_on), ("no_retry_on", no_retry_on)):
        if text is not None:
            parse_failures(text, place=place)
    memory_on_oom = wishes.get("memory_on_oom")
    if memory_on_oom is not None:
        parse_memory_on_oom(memory_on_oom, place="memory_on_oom")
    return {
        "retry_on": retry_on or "",
        "no_retry_on": no_retry_on or "",
        "suspend_on_failure": wishes.get("suspend_on_failure", False),
        "memory_on_oom": memory_on_oom or "",
    }
