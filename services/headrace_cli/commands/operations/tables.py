"""Operations and their jobs in words. Pure: the result depends only on the arguments."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from rich.table import Table
from rich.text import Text

from headrace.counted import counted
from headrace.durations import format_duration
from headrace.efficiency import mean_cores, unused_of
from headrace.errors import in_one_line, shortened
from headrace.ids import TreeName
from headrace.resources import format_amount, percent
from headrace.wire.happenings import JobEnded
from headrace.wire.heartbeat import JobEnd, JobResult, JobSlot
from headrace.wire.nodes import JobPlace, OperationPlaces
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import FINAL_STATES, JobRow, OperationOrder, OperationState, OperationView, TaskEnds
from headrace.wire.placements import UPSTREAM, TreePlacement, WaitingFor
from headrace_cli.commands.node_tables import limits_words
from headrace_cli.commands.operations.time_limits import job_left_words, time_limit_rows
from headrace_cli.commands.operations.upstream_words import after_words, ends_words
from headrace_cli.show.amounts import amounts, pool_words
from headrace_cli.show.tables import facts_table, table
from headrace_cli.show.times import time_of_day

_ONE_TREE: Final[Mapping[TreeName, OperationPlaces | None]] = {}
#: Upper bound of the jobs whose progress is listed one by one when their operation is shown.
_MOST_PROGRESS: Final = 5
_NO_ENDS: Final[Mapping[JobSlot, JobEnded]] = {}
_NO_REASONS: Final[Mapping[str, str]] = {}
_STATE_STYLES = {
    OperationState.COMPLETED: "green",
    OperationState.FAILED: "red",
    OperationState.FAILING: "red",
    OperationState.ABORTED: "yellow",
    OperationState.ABORTING: "yellow",
    OperationState.RUNNING: "cyan",
}


def time_words(view: OperationView, now_ms: int) -> str:
    """Return how long the operation has existed, or existed until its end."""
    return format_duration(max(0, (view.ended_at_ms or now_ms) - view.started_at_ms))


def state_words(view: OperationView) -> Text:
    """Return the operation's state, and whether it is suspended."""
    words = view.state.value + (", suspended" if view.suspended and view.state not in FINAL_STATES else "")
    return Text(words, style=_STATE_STYLES.get(view.state, ""))


def waiting_words(view: OperationView) -> str:
    """Return the operations or jobs that the operation waits for, or its position in each tree.

    A position is written as `position 3 of 12 at a (2 of 2 running)`. The text is empty if the operation waits for nothing.
    """
    if view.awaits:
        return ends_words(view.awaits)
    several = len(view.placements) > 1
    words = [_waiting_in_tree(each, named=several) for each in view.waiting]
    if view.awaiting_jobs:
        words.append(f"{view.spec.after_each}: {counted(view.awaiting_jobs, 'job')} to complete there first")
    return "; ".join(words)


def _waiting_in_tree(waiting: WaitingFor, *, named: bool) -> str:
    tree = f"in tree {waiting.tree}: " if named else ""
    place = f"position {waiting.place} of {waiting.waiting} at " if waiting.place else "waits at "
    return f"{tree}{place}{pool_words(waiting.blocked_by)} ({waiting.running} of {waiting.limit} running)"


def operation_table(
    views: Sequence[OperationView],
    now_ms: int,
    idle: Mapping[str, str] = _NO_REASONS,
    order: OperationOrder = OperationOrder.STARTED,
) -> Table:
    """Return a table with one line for each operation. `idle` says why some running operations run no job.

    If `order` is an order by unused resources, a column shows the unused resources.
    """
    columns = ["operation", "state", "pool", "done", "failed", "started", "time", "user", "each job", "title"]
    if idle or any(map(waiting_words, views)):
        columns.insert(3, "waits for")
    if not order.is_by_start:
        columns.insert(1, "unused")
    made = table(*columns, right=("done", "failed", "time"), cut="waits for" if "waits for" in columns else "title")
    for view in views:
        state = state_words(view)
        if view.operation in idle:
            state.append(", no job")
        cells: dict[str, str | Text] = {
            "operation": view.operation,
            "unused": unused_words(*unused_of(view.spec, view.used, view.task_ends)),
            "state": state,
            "pool": view.spec.pool,
            "waits for": idle.get(view.operation, waiting_words(view)),
            "user": view.user,
            "done": f"{view.completed_jobs}/{view.spec.job_count}",
            "failed": _failed_words(view),
            "started": time_of_day(view.started_at_ms, now_ms),
            "time": time_words(view, now_ms),
            "each job": size_words(view.spec),
            "title": Text(view.spec.title),
        }
        made.add_row(*(cells[column] for column in columns))
    return made


def _failed_words(view: OperationView) -> str:
    parts = [str(view.failed_jobs)] if view.failed_jobs else []
    parts += [f"{view.timed_out_jobs} timed out"] if view.timed_out_jobs else []
    return ", ".join(parts) or "–"


def operation_facts(
    view: OperationView,
    places: OperationPlaces | None,
    now_ms: int,
    in_trees: Mapping[TreeName, OperationPlaces | None] = _ONE_TREE,
) -> Table:
    """Return a table of all facts about one operation, with the heaviest reason why jobs wait.

    `in_trees` says where its jobs run in each tree; it is empty for an operation in one tree.
    """
    facts = facts_table()
    spec = view.spec
    facts.add_row("operation", view.operation)
    _add_words(facts, "title", spec.title)
    facts.add_row("state", state_words(view))
    _add_words(facts, "because", view.reason)
    _add_words(facts, "suspended by", view.suspended_for)
    if in_trees:
        for placement in view.placements:
            facts.add_row(f"in tree {placement.tree}", _tree_words(placement, in_trees.get(placement.tree)))
    else:
        rule = next((f", by the placement rule `{each.rule}`" for each in view.placements if each.rule), "")
        facts.add_row("pool", Text(spec.pool + (" (ephemeral)" if view.ephemeral_pool else "") + rule))
    if view.erased_trees:
        facts.add_row("left out", "a limit was reached there, or the tree was removed: " + ", ".join(view.erased_trees))
    _add_words(facts, "waits for", waiting_words(view))
    _add_words(facts, "after", after_words(spec))
    facts.add_row("user", view.user)
    accounts = {*view.accounts, *(place.account for place in places.running)} if places is not None else view.accounts
    if accounts:
        facts.add_row("jobs run as", ", ".join(account_words(each) for each in sorted(accounts)))
    facts.add_row("time", time_words(view, now_ms))
    for name, words in _command_facts(view):
        facts.add_row(name, Text(words))
    facts.add_row("each job", size_words(spec))
    if spec.terminal:
        facts.add_row("terminal", "yes; what is written there is not logged")
    for label, words in time_limit_rows(view, places, now_ms):
        facts.add_row(label, words)
    _add_words(facts, "failed jobs", retry_rule_words(spec))
    facts.add_row("jobs", _job_words(view, places))
    if (completed := view.used.get(JobResult.COMPLETED)) is not None:
        mean = mean_cores(completed)
        cores = f"{mean:.2g} cores on average and " if mean is not None else ""
        peak = peak_words(completed.max_rss_bytes)
        facts.add_row("completed runs used", f"{cores}at most {peak}: headrace op efficiency {view.operation}")
    if places is not None and (told := _progress_words(view, places)):
        facts.add_row("progress", told)
    if view.pausing_jobs:
        facts.add_row("to be retried", retry_words(view, now_ms))
    if places is not None and view.state not in FINAL_STATES:
        for label, words in _heaviest_reason(view, places.reasons):
            facts.add_row(label, Text(words))
    return facts


def _heaviest_reason(view: OperationView, reasons: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the heaviest reason why jobs wait, and the command that shows the other reasons."""
    for reason in reasons[:1]:
        # The row is left out for a pending operation: it waits for a running slot, which the row "waits for" says already.
        if view.state is not OperationState.PENDING:
            yield "waits because", reason
        more = f"{len(reasons) - 1} more, and " if len(reasons) > 1 else ""
        yield "", f"{more}what would end the waiting: headrace op explain {view.operation}"


def _command_facts(view: OperationView) -> Iterator[tuple[str, str]]:
    """Yield the facts about the command, the indexes, the lines and the files of the jobs, each with its name."""
    spec = view.spec
    withheld = " …  (only the owner, and managers of the pool, can see the rest)" if view.is_withheld else ""
    # The table of tasks has the command of each task.
    if not spec.tasks:
        yield "command", shlex.join(spec.argv) + withheld
    if spec.image:
        yield "image", spec.image
    if spec.indexes:
        yield "indexes", shortened(spec.indexes)
    if spec.lines:
        yield "lines", f"{len(spec.lines)}, one for each index"
    for name in ("output", "error", "stdin"):
        if getattr(spec, name):
            yield name, getattr(spec, name)
    if spec.rerun_of:
        yield "reruns", f"jobs of operation {spec.rerun_of}"
    if spec.files is not None:
        yield "files", f"{spec.files.file_count}, {format_amount('memory', spec.files.size_bytes)} packed"


def _add_words(facts: Table, label: str, words: str) -> None:
    """Add a row, unless there are no words for it."""
    if words:
        facts.add_row(label, Text(words))


def _tree_words(placement: TreePlacement, places: OperationPlaces | None) -> str:
    words = [f"pool {placement.pool}"]
    words += [f"by the placement rule `{placement.rule}`"] if placement.rule else []
    if placement.blocked_by == UPSTREAM:
        words.append("waits for other operations")
    elif placement.blocked_by is not None:
        words.append(f"waits at {pool_words(placement.blocked_by)}")
    elif places is not None:
        words.append(f"{places.running_jobs} running")
    return ", ".join(words)


def _job_words(view: OperationView, places: OperationPlaces | None) -> str:
    words = [f"{view.completed_jobs} of {view.spec.job_count} done"]
    if places is not None and view.state not in FINAL_STATES:
        words += [f"{places.running_jobs} running", f"{places.pending_jobs} pending"]
        words += [f"{places.in_doubt_jobs} unconfirmed"] if places.in_doubt_jobs else []
    words += [failed_runs(view)] if view.failed_jobs else []
    words += [f"{view.timed_out_jobs} timed out"] if view.timed_out_jobs else []
    words += [f"{view.given_up_jobs} given up"] if view.given_up_jobs else []
    words += [f"{view.aborted_jobs} interrupted"] if view.aborted_jobs else []
    words += [f"{view.lost_jobs} lost"] if view.lost_jobs else []
    return ", ".join(words)


def _progress_words(view: OperationView, places: OperationPlaces) -> str:
    """Return the progress of the running jobs that report it."""
    told = [place for place in places.running if place.progress is not None]
    if view.spec.job_count == 1 or places.progress is None:
        return "".join(_percent(place) for place in told)
    part = places.progress.done(view.completed_jobs, view.spec.job_count)
    first = ", ".join(f"job {place.index} {_percent(place)}" for place in told[:_MOST_PROGRESS])
    more = places.progress.jobs - _MOST_PROGRESS
    return f"{percent(part)} of all jobs; {first}" + (
        f", {more} more: headrace op get {view.operation} --jobs" if more > 0 else ""
    )


def _percent(place: JobPlace) -> str:
    return "" if place.progress is None else f"{place.progress / 10:g}%"


def retry_words(view: OperationView, now_ms: int) -> str:
    """Return how many failed jobs wait for a retry, and when the next retry is due."""
    left_ms = view.next_retry_at_ms - now_ms
    when = f"in {format_duration(left_ms)}" if left_ms > 0 else "now"
    if view.pausing_jobs == 1:
        return f"1 failed job, {when}"
    return f"{view.pausing_jobs} failed jobs, the next {when}"


def ephemeral_words(pool: str, near: Sequence[str]) -> str:
    """Return a text which says that a pool was made for an operation, and names the configured pools that may have been meant."""
    meant = f"; did you mean {' or '.join(near[:3])}?" if near else ""
    return f"pool {pool!r} is not configured: it is ephemeral, and exists as long as its operations{meant}"


def retry_rule_words(spec: OperationSpec) -> str:
    """Return in words after which failures jobs are retried, and whether the first failure suspends the operation.

    Empty if the operation has no such rules.
    """
    words = [f"retried only after {shortened(spec.retry_on)}"] if spec.retry_on else []
    words += [f"not retried after {shortened(spec.no_retry_on)}"] if spec.no_retry_on else []
    words += [f"memory after out of memory: {spec.memory_on_oom}"] if spec.memory_on_oom else []
    words += ["suspended after the first failure"] if spec.suspend_on_failure else []
    return ", ".join(words)


def memory_words(view: OperationView) -> str:
    """Return how many runs ended out of memory, and what would help; empty if none did."""
    if not view.out_of_memory_runs:
        return ""
    runs = f"{view.out_of_memory_runs} of {counted(view.failed_jobs, 'failed run')}"
    if view.spec.tasks:
        return f"{runs}; each task has its own memory"
    has = f"{runs}; each job has {format_amount('memory', view.spec.resources.memory)}"
    raised = f" at first, {view.spec.memory_on_oom} after it ran out of memory" if view.spec.memory_on_oom else ""
    return f"{has}{raised} (run --memory)"


def size_words(spec: OperationSpec) -> str:
    """Return the resources of each job; for an operation with tasks, the number of its tasks."""
    return counted(len(spec.tasks), "task") if spec.tasks else amounts(spec.resources, leave_out=("user_slots",))


def failed_runs(view: OperationView) -> str:
    """Return how many runs of the operation's jobs failed, and how many of the failed runs were out of memory."""
    words = f"{counted(view.failed_jobs, 'run')} failed"
    return words + (f" ({view.out_of_memory_runs} out of memory)" if view.out_of_memory_runs else "")


def account_words(account: str) -> str:
    """Return the name of the account that runs a job on its node."""
    return account or "the agent's own account"


def result_words(result: JobResult) -> str:
    """Return the result of a run as text."""
    return result.value.replace("_", " ")


def failure_lines(end: JobEnd, told: str = "") -> list[str]:
    """Return the end of a failed or timed-out job in words, with the tail of its stderr.

    The reason may be long. It is left out if `told`, a text that was printed before, contains it.
    """
    if end.reason and end.reason in told:
        end = msgspec.structs.replace(end, reason="reason above")
    how = f"exit code {end.exit_code}" if end.exit_code is not None else ""
    if end.signal is not None:
        how = f"signal {end.signal}"
    reason = ", ".join(filter(None, (how, in_one_line(end.reason))))
    attempt = f", attempt {end.attempt}" if end.attempt > 1 else ""
    where = f" on node {end.node}" if end.node else ""
    where += f" as {end.account}" if end.account else ""
    lines = [f"job {end.index}{attempt} {result_words(end.result)}{where}: {reason or 'no reason is known'}"]
    if end.stderr_tail.strip():
        lines.append("the end of its stderr:")
        lines.extend(f"  {line}" for line in end.stderr_tail.rstrip("\n").splitlines())
    return lines


def peak_words(size_bytes: int | None) -> str:
    """Return a peak of memory, or a dash if it was not measured."""
    return format_amount("memory", size_bytes) if size_bytes else "–"


def unused_words(core_seconds: int, byte_seconds: int) -> str:
    """Return in words the core-hours and the GiB-hours of memory that jobs were allotted and did not use."""
    return f"{core_seconds / 3600:.3g} core-hours, {byte_seconds / 3600 / 1024**3:.3g} GiB-hours"


def task_table(view: OperationView, places: OperationPlaces | None) -> Table:
    """Return a table with one line for each task of an operation. Without `places`, the numbers of running and pending jobs are empty."""
    counts = ("jobs", "running", "pending", "completed", "failed")
    made = table("task", *counts, "each job", "command", right=counts, cut="command")
    for number, task in enumerate(view.spec.tasks):
        ends = view.task_ends.get(number, TaskEnds()).counts
        there = places.tasks[number] if places is not None and number < len(places.tasks) else None
        now = ("", "") if there is None else (str(there.on_nodes), str(there.pending))
        failed = ends.get(JobResult.FAILED, 0) + ends.get(JobResult.TIMED_OUT, 0)
        done = str(ends.get(JobResult.COMPLETED, 0))
        size = amounts(task.resources, leave_out=("user_slots",))
        made.add_row(task.name, str(task.job_count), *now, done, str(failed), size, Text(shlex.join(task.argv)))
    return made


def job_table(
    rows: Sequence[JobRow],
    places: OperationPlaces | None,
    ends: Mapping[JobSlot, JobEnded] = _NO_ENDS,
    now_ms: int = 0,
    spec: OperationSpec | None = None,
) -> Table:
    """Return a table with one line for each job.

    If `spec` has tasks, a column shows the task of each job. If it has a time limit, running jobs show their remaining time.

    With `ends`, columns show start, run time, CPU time and peak memory of each attempt. A column shows GPU devices if a running job has
    one. A column shows which limits a node enforces if some node does not enforce all. A column shows the account of each job if jobs ran
    as several accounts.
    """
    running = {place.index: place for place in places.running} if places is not None else {}
    limits = ["limits"] if any(place.limits not in ("", "cgroup2") for place in running.values()) else []
    gpus = ["gpus"] if any(place.gpus for place in running.values()) else []
    used = ("started", "ran", "cpu time", "peak memory") if ends else ()
    task = ["task"] if spec is not None and spec.tasks else []
    # If all jobs ran as the same account, this table does not show it, because the table of facts does.
    accounts = {place.account for place in running.values()} | {row.account for row in rows if row.result is not None}
    run_as = ["as"] if len(accounts) > 1 else []
    headings = ("job", *task, "attempt", "state", "node", *gpus, *limits, *run_as, "exit code", *used)
    made = table(*headings, right=("job", "attempt", "exit code", "ran", "cpu time", "peak memory"))
    for row in rows:
        found = spec.task_of(row.slot.index) if spec is not None else None
        names = [found.task.name] if found is not None else []
        place = running.get(row.slot.index)
        if place is not None:
            left = job_left_words(spec, place) if spec is not None else ""
            state = Text(", ".join(filter(None, ("running", _percent(place), left))), style="cyan")
            more = [",".join(place.gpus) for _ in gpus] + [limits_words(place.limits) for _ in limits]
            more += [account_words(place.account) for _ in run_as]
            cells = [time_of_day(now_ms - place.ran_ms, now_ms), format_duration(place.ran_ms), "", ""] if used else []
            made.add_row(str(place.index), *names, str(place.attempt), state, place.node, *more, "", *cells)
            continue
        words = result_words(row.result) if row.result is not None else "pending"
        words += ", out of memory" if row.out_of_memory else ""
        words += ", to be retried" if row.retry_at_ms else ""
        words += f", memory raised {counted(row.memory_step, 'time')}" if row.memory_step else ""
        code = "" if row.exit_code is None else str(row.exit_code)
        more = ["" for _ in (*gpus, *limits)]
        more += [account_words(row.account) if row.result is not None else "" for _ in run_as]
        cells = _used_cells(ends.get(row.slot), now_ms) if used else []
        made.add_row(str(row.slot.index), *names, str(row.slot.attempt), words, str(row.node), *more, code, *cells)
    return made


def _used_cells(end: JobEnded | None, now_ms: int) -> list[str]:
    """Return the start, the run time, the CPU time and the peak memory of an attempt, with a dash for what is not known."""
    if end is None:
        return ["–"] * 4
    return [
        time_of_day(end.started_at_ms, now_ms) if end.started_at_ms else "–",
        "–" if end.ran_ms is None else format_duration(end.ran_ms),
        "–" if end.cpu_ms is None else format_duration(end.cpu_ms),
        peak_words(end.max_rss_bytes),
    ]
