"""`squeue` and `sacct`: the jobs that operations of `sbatch` stand for."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from headrace.client import Client, Refused
from headrace.client.asking import at_once
from headrace.errors import BadInput
from headrace.runtime.clock import SystemClock
from headrace.wire.operations import FINAL_STATES, OperationView
from headrace.wire.refusals import NotFound
from headrace_cli.show.times import parse_timestamp_ms
from headrace_cli.slurm.command_line import Given
from headrace_cli.slurm.fields import BRIEF_SACCT, LONG_SACCT, LONG_SQUEUE, USUAL_SACCT, USUAL_SQUEUE, pool_of
from headrace_cli.slurm.jobs import LIVE, SHORT_STATES, Facts, Job, JobState, jobs_of
from headrace_cli.slurm.numbers import JobName, number_of, operation_of, parse_jobs
from headrace_cli.slurm.pools_file import choose
from headrace_cli.slurm.printing import parse_letters, parse_names, parse_sacct, rows, sacct_rows, squeue_letters
from headrace_cli.slurm.submit import pools_file, say

#: Operations that a list looks at, the newest first.
_MOST_OPERATIONS: Final = 1_000
#: Operations whose jobs are requested at the same time.
_AT_ONCE: Final = 50
_DAY_MS: Final = 86_400_000


async def squeue(client: Client, given: Given) -> int:
    """Print pending and running jobs, or those with the states that were asked for. Return the exit status."""
    now_ms = SystemClock().wall_ms()
    if text := given.one("Format"):
        parts = parse_names(text, now_ms, "--Format")
    else:
        text = (
            given.one("format")
            or os.environ.get("SQUEUE_FORMAT")
            or (LONG_SQUEUE if given.has("long") else USUAL_SQUEUE)
        )
        parts = parse_letters(text, squeue_letters(now_ms), "--format")
    names = parse_jobs(given.values.get("jobs", []), "--jobs")
    states = parse_states(given.listed("states"), "--states") or LIVE
    found = await named_jobs(
        client, names, live=states <= LIVE, each_task=given.has("array"), detail=not states <= LIVE
    )
    if names and not found.jobs and found.missing:
        say("slurm_load_jobs", "error: Invalid job id specified")
        return 1
    jobs = [job for job in found.jobs if job.state in states and wanted(given, client.user)(job)]
    for line in rows(parts, jobs, header=not given.has("noheader")):
        print(line)
    return 0


async def sacct(client: Client, given: Given) -> int:
    """Print jobs of the past and the present. Return the exit status."""
    now_ms = SystemClock().wall_ms()
    usual = BRIEF_SACCT if given.has("brief") else LONG_SACCT if given.has("long") else USUAL_SACCT
    columns = parse_sacct(given.one("format") or os.environ.get("SACCT_FORMAT") or usual)
    if given.words:
        raise BadInput("sacct", given.words[0], "options only; jobs are named by --jobs")
    names = parse_jobs(given.values.get("jobs", []), "--jobs")
    states = parse_states(given.listed("state"), "--state")
    steps = not given.has("allocations")
    detail = steps or any(each.column.needs_ends for each in columns)
    found = await named_jobs(client, names, detail=detail)
    since_ms, until_ms = _period(given, now_ms, named=bool(names))
    mine = given if given.has("user") or given.has("allusers") or names else given.over(Given({"user": [client.user]}))
    jobs = [
        job
        for job in found.jobs
        if (not states or job.state in states)
        and wanted(mine, client.user)(job)
        and job.view.started_at_ms <= until_ms
        and (job.state in LIVE or job.ended_ms >= since_ms)
    ]
    delimiter = (given.one("delimiter") or "|") if given.has("parsable") or given.has("parsable2") else ""
    for line in sacct_rows(
        columns,
        jobs,
        now_ms,
        header=not given.has("noheader"),
        delimiter=delimiter,
        ends_with_delimiter=given.has("parsable") and not given.has("parsable2"),
        steps=steps,
    ):
        print(line)
    return 0


def _period(given: Given, now_ms: int, *, named: bool) -> tuple[int, int]:
    """Return the Unix times in milliseconds from which and until which jobs are shown. Raises `BadInput`."""
    since, until = given.one("starttime"), given.one("endtime")
    usual_ms = 0 if named else now_ms - now_ms % _DAY_MS
    return (
        usual_ms if since is None else parse_moment_ms(since, "--starttime", now_ms),
        now_ms + 1000 if until is None else parse_moment_ms(until, "--endtime", now_ms) + 1000,
    )


def parse_moment_ms(text: str, place: str, now_ms: int) -> int:
    """Read `now`, `now-2days`, `today`, `2026-11-20` or `2026-11-20T18:00`. Raises `BadInput`."""
    word = text.strip().lower()
    if word.startswith("now-"):
        figure = word[4:].rstrip("abcdefghijklmnopqrstuvwxyz")
        units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
        unit = word[4 + len(figure) :][:1] or "s"
        if figure.isdecimal() and unit in units:
            return now_ms - int(timedelta(**{units[unit]: int(figure)}).total_seconds() * 1000)
        raise BadInput(place, text, "a time such as now-2days")
    if word in ("today", "midnight"):
        return parse_timestamp_ms("0:00", place=place, now_ms=now_ms)
    return parse_timestamp_ms(text.strip().upper().replace("NOW", "now"), place=place, now_ms=now_ms)


class Found:
    """Jobs that were asked for."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        #: Jobs that there are not.
        self.missing: list[JobName] = []


async def named_jobs(
    client: Client,
    names: Sequence[JobName] = (),
    *,
    live: bool = False,
    detail: bool = False,
    each_task: bool = False,
) -> Found:
    """Return the named jobs, or all jobs if none is named; with `live` only of operations that are not over.

    `detail` asks for the start, the end and the usage of each run too. Raises `Unanswered`.
    """
    found, now_ms = Found(), SystemClock().wall_ms()
    views = await _views(client, names, found) if names else await client.list(live=live, limit=_MOST_OPERATIONS)
    numbers = {view.operation: number_of(view.operation) or 0 for view in views}
    views = sorted((view for view in views if numbers[view.operation]), key=lambda view: numbers[view.operation])
    split = each_task or any(name.indexes is not None for name in names)
    for first in range(0, len(views), _AT_ONCE):
        page = views[first : first + _AT_ONCE]
        facts = await at_once(lambda nth: _facts(client, views[nth], detail=detail), range(first, first + len(page)))
        for nth, view in enumerate(page, first):
            found.jobs += jobs_of(view, facts[nth], now_ms, each_task=split)
    if names:
        found.jobs = [job for job in found.jobs if any(name.has(job.number, job.task) for name in names)]
    return found


async def _views(client: Client, names: Iterable[JobName], found: Found) -> list[OperationView]:
    views = {}
    for name in names:
        if name.number in views:
            continue
        try:
            views[name.number] = await client.get(operation_of(name.number))
        except Refused as refused:
            if not isinstance(refused.refusal, NotFound):
                raise
            found.missing.append(name)
    return list(views.values())


async def _facts(client: Client, view: OperationView, *, detail: bool) -> Facts:
    operation, is_over = client.operation(view.operation), view.state in FINAL_STATES
    jobs = await operation.jobs() if view.spec.indexes or detail else []
    places = None
    if not is_over and not view.awaits:
        try:
            places = await operation.places()
        except Refused as refused:
            # The allocator does not know an operation that has just started or ended.
            if not isinstance(refused.refusal, NotFound):
                raise
    ended = [row.slot for row in jobs if row.result is not None]
    ends = await client.happenings.ends(view.operation, ended) if detail and ended else {}
    return Facts(jobs, places.running if places is not None else (), ends)


def parse_states(texts: Iterable[str], place: str) -> frozenset[JobState]:
    """Read names of states, short or long, or `all`. Raises `BadInput`."""
    by_name = {str(state): state for state in JobState} | {short: state for state, short in SHORT_STATES.items()}
    others = {"S": None, "SUSPENDED": None, "CG": None, "COMPLETING": None, "CF": None, "CONFIGURING": None}
    found = set[JobState]()
    for text in texts:
        word = text.upper()
        if word == "ALL":
            return frozenset(JobState)
        if word not in by_name and word not in others:
            raise BadInput(place, text, f"one of {', '.join(by_name)}, or all")
        # A job that begins or ends counts as running here.
        found.add(by_name.get(word, JobState.RUNNING))
    return frozenset(found)


def wanted(given: Given, user: str) -> Callable[[Job], bool]:
    """Return a test of jobs for the options that choose jobs by user, name, partition, account and node. Raises `BadInput`."""
    login = pwd.getpwuid(os.getuid()).pw_name
    # The name of a user may differ from the login on this host, which scripts name as $USER.
    users = (
        {user}
        if given.has("me")
        else {user if name in (login, str(os.getuid())) else name for name in given.listed("user")}
    )
    names = {*given.listed("name"), *given.listed("jobname")}
    nodes = set(given.listed("nodelist"))
    file = pools_file(os.environ)
    pools = {
        choose(Given({kind: [name]}), file).pool
        for kind, option in (("partition", "partition"), ("account", "account"), ("account", "accounts"))
        for name in given.listed(option)
    }

    def is_wanted(job: Job) -> bool:
        return (
            (not users or job.view.user in users)
            and (not names or job.view.spec.title in names)
            and (not nodes or job.node in nodes)
            and (not pools or pool_of(job) in pools)
        )

    return is_wanted
