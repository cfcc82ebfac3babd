"""`squeue` and `sacct`: list the jobs of operations that `sbatch` started."""

from __future__ import annotations

import os
import pwd
import re
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
from headrace_cli.slurm.fields import BRIEF_SACCT, LONG_SACCT, LONG_SQUEUE, SACCT, USUAL_SACCT, USUAL_SQUEUE, pool_of
from headrace_cli.slurm.jobs import LIVE, SHORT_STATES, Facts, Job, JobState, jobs_of
from headrace_cli.slurm.numbers import JobName, number_of, operation_of, parse_jobs
from headrace_cli.slurm.pools_file import choose
from headrace_cli.slurm.printing import parse_letters, parse_names, parse_sacct, rows, sacct_rows, squeue_letters
from headrace_cli.slurm.submit import pools_file, say

#: Upper bound of the operations in a list, the newest first. By default, admission keeps the same number of ended operations.
_MOST_OPERATIONS: Final = 10_000
_AGO: Final = re.compile(r"now-([0-9]{1,6})([a-z]*)\Z")
_UNITS: Final = ("seconds", "minutes", "hours", "days", "weeks")
#: Operations whose jobs are requested at the same time.
_AT_ONCE: Final = 50


async def squeue(client: Client, given: Given) -> int:
    """Print the jobs in the states that `--states` names; without `--states`, live jobs. Return the exit status."""
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
    live, nodes = states <= LIVE, given.listed("nodelist")
    keep = wanted(given, client.user)
    found = await named_jobs(client, names, keep, live=live, each_task=given.has("array"), detail=not live)
    if names and not found.jobs and found.missing:
        say("slurm_load_jobs", "error: Invalid job id specified")
        return 1
    jobs = [job for job in found.jobs if job.state in states and (not nodes or job.node in nodes)]
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
    if given.has("helpformat"):
        print(" ".join(column.title for column in SACCT.values()))
        return 0
    names = parse_jobs(given.values.get("jobs", []), "--jobs")
    states = parse_states(given.listed("state"), "--state")
    steps = not given.has("allocations")
    detail = steps or any(each.column.needs_ends for each in columns)
    since_ms, until_ms = _period(given, now_ms, named=bool(names))
    mine = given if given.has("user") or given.has("allusers") or names else given.over(Given({"user": [client.user]}))
    is_wanted, nodes = wanted(mine, client.user), given.listed("nodelist")

    def keep(view: OperationView) -> bool:
        is_over = view.ended_at_ms and view.ended_at_ms < since_ms
        return is_wanted(view) and view.started_at_ms <= until_ms and not is_over

    found = await named_jobs(client, names, keep, detail=detail, each_task=given.has("array"))
    jobs = [job for job in found.jobs if (not states or job.state in states) and (not nodes or job.node in nodes)]
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
    usual_ms = 0 if named else parse_moment_ms("today", "--starttime", now_ms)
    return (
        usual_ms if since is None else parse_moment_ms(since, "--starttime", now_ms),
        now_ms + 1000 if until is None else parse_moment_ms(until, "--endtime", now_ms) + 1000,
    )


def parse_moment_ms(text: str, place: str, now_ms: int) -> int:
    """Read `now`, `now-2days`, `today`, `2026-11-20` or `2026-11-20T18:00`. Raises `BadInput`."""
    word = text.strip().lower()
    if word.startswith("now-"):
        found = _AGO.match(word)
        unit = next((name for name in _UNITS if found and name.startswith(found[2] or "s")), None)
        if found and unit:
            return now_ms - int(timedelta(**{unit: int(found[1])}).total_seconds() * 1000)
        raise BadInput(place, text, "a time such as now-2days")
    if word in ("today", "midnight"):
        return parse_timestamp_ms("0:00", place=place, now_ms=now_ms)
    try:
        return parse_timestamp_ms(text.strip().upper().replace("NOW", "now"), place=place, now_ms=now_ms)
    except BadInput as error:
        raise BadInput(place, text, error.expected) from None


class Found:
    """The jobs that were found, and the names for which there is no job."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        #: Named jobs that do not exist.
        self.missing: list[JobName] = []


async def named_jobs(
    client: Client,
    names: Sequence[JobName] = (),
    keep: Callable[[OperationView], bool] = lambda _: True,
    *,
    live: bool = False,
    detail: bool = False,
    each_task: bool = False,
) -> Found:
    """Return the named jobs, or all jobs if none is named.

    Only jobs of operations that pass `keep` are returned. With `live` and without names, only operations that are not over are requested.
    With `detail`, the start, the end and the usage of each run are requested too. Raises `Unanswered`.
    """
    found, now_ms = Found(), SystemClock().wall_ms()
    listed = await _views(client, names, found) if names else await client.list(live=live, limit=_MOST_OPERATIONS)
    numbers = {view.operation: number_of(view.operation) or 0 for view in listed}
    views = [
        view
        for view in sorted(listed, key=lambda view: numbers[view.operation])
        if numbers[view.operation] and keep(view)
    ]
    split = each_task or any(name.indexes is not None for name in names)
    for first in range(0, len(views), _AT_ONCE):
        page = views[first : first + _AT_ONCE]
        facts = await at_once(lambda nth: _facts(client, views[nth], detail=detail), range(first, first + len(page)))
        for view, known in facts.values():
            found.jobs += jobs_of(view, known, now_ms, each_task=split)
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


async def _facts(client: Client, view: OperationView, *, detail: bool) -> tuple[OperationView, Facts]:
    """Return the answers about the jobs of an operation, with its view. The view is requested again if the operation may have ended."""
    operation, places = client.operation(view.operation), None
    if view.state not in FINAL_STATES and not view.awaits:
        try:
            places = await operation.places()
        except Refused as refused:
            # NotFound is no error: the allocator does not know an operation that has just started or ended.
            if not isinstance(refused.refusal, NotFound):
                raise
        if places is None or not places.running_jobs + places.pending_jobs:
            view = await operation.view()
    # Ends are requested last, so that a job that ends meanwhile never seems to be pending again.
    rows = await operation.jobs() if view.spec.indexes or detail else []
    ended = [row.slot for row in rows if row.result is not None]
    ends = await client.happenings.ends(view.operation, ended) if detail and ended else {}
    return view, Facts(rows, places.running if places is not None else (), ends)


def parse_states(texts: Iterable[str], place: str) -> frozenset[JobState]:
    """Read names of states, short or long, or `all`. Raises `BadInput`."""
    by_name = {str(state): state for state in JobState} | {short: state for state, short in SHORT_STATES.items()}
    others = ("S", "SUSPENDED", "CG", "COMPLETING", "CF", "CONFIGURING")
    found = set[JobState]()
    for text in texts:
        word = text.upper()
        if word == "ALL":
            return frozenset(JobState)
        if word not in by_name and word not in others:
            raise BadInput(place, text, f"one of {', '.join(by_name)}, or all")
        # Headrace has no states such as CONFIGURING and COMPLETING: a job that begins or ends is shown as running.
        found.add(by_name.get(word, JobState.RUNNING))
    return frozenset(found)


def wanted(given: Given, user: str) -> Callable[[OperationView], bool]:
    """Return a test of operations for the options that choose jobs by user, name, partition and account. Raises `BadInput`."""
    users, names = _users(given, user), {*given.listed("name"), *given.listed("jobname")}
    file = pools_file(os.environ)
    pools = {
        choose(Given({kind: [name]}), file).pool
        for kind, option in (("partition", "partition"), ("account", "account"), ("account", "accounts"))
        for name in given.listed(option)
    }

    def is_wanted(view: OperationView) -> bool:
        return (
            (not users or view.user in users)
            and (not names or view.spec.title in names)
            and (not pools or pool_of(view) in pools)
        )

    return is_wanted


def _users(given: Given, user: str) -> set[str]:
    """Return the users whose jobs were asked for; an empty set stands for all users."""
    if given.has("me"):
        return {user}
    # Scripts name the user by $USER, the login on this host, which may differ from the user's name in Headrace.
    own = (pwd.getpwuid(os.getuid()).pw_name, str(os.getuid()))
    return {user if name in own else name for name in given.listed("user")}
