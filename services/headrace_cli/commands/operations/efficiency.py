"""The command `headrace op efficiency`: what the jobs of an operation asked for, and what their runs used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.client import Client
from headrace.counted import counted
from headrace.durations import format_duration
from headrace.efficiency import Efficiency, efficiency_of
from headrace.resources import format_amount, percent
from headrace.wire.heartbeat import JobResult
from headrace.wire.operations import FINAL_STATES, OperationView, RunUsage
from headrace.wire.plain_values import plain
from headrace_cli.commands.operations.operation_id import whole_id
from headrace_cli.commands.operations.tables import peak_words, result_words, size_words, state_words, unused_words
from headrace_cli.session import Common, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import facts_table, table

_NOT_KNOWN: Final = "–"


def efficiency(operation: str, /, *, common: Common | None = None) -> int:
    """Show what each job of an operation asked for, what its runs used, and what to ask for the next time.

    A suggestion is the peak of all measured runs with a quarter on top, rounded up, as options of `headrace run`. If jobs completed only
    with the memory that `--memory-on-oom` gave them, that memory is the suggestion. Jobs that still run are not included. Runs that failed
    or were interrupted have lines of their own. A dash stands for what was not measured.

    Examples of use:

        headrace op efficiency 69201a4f-0c1d2e3f4a5b

        headrace op efficiency 69201a4f-0c1d2e3f4a5b --json | jq -r '.suggestions[]'

    Parameters
    ----------
    operation
        The operation's id, or the beginning of the id.
    """

    async def work(client: Client, screen: Screen) -> None:
        view = await client.get(await whole_id(client, operation))
        found = efficiency_of(view)
        if screen.json:
            fields = plain(found)
            assert isinstance(fields, dict)
            screen.show({"operation": view.operation, "state": view.state.value, **fields}, table())
            return
        screen.print(efficiency_facts(view, found))
        if (runs := usage_table(view)).row_count:
            screen.print("", runs)
        for line in notes(view):
            screen.say(line)

    return talk(common, work)


def efficiency_facts(view: OperationView, found: Efficiency) -> Table:
    """Return a table of what each job asked for, what the completed runs used, and what is suggested."""
    facts = facts_table()
    facts.add_row("operation", view.operation)
    facts.add_row("state", state_words(view))
    facts.add_row("each job", size_words(view.spec))
    for task, of_task in found.tasks.items():
        facts.add_row(f"task {task}", f"memory: {_memory_words(of_task)}")
        facts.add_row("", f"cores: {_cores_words(of_task)}")
        # The suggestion is shown as keys: tasks are written in a file for `run --spec`, whose keys are the options without dashes.
        keys = ", ".join(each.removeprefix("--").replace(" ", ": ", 1) for each in of_task.suggestions)
        facts.add_row("", Text(f"suggestion: {keys or _suggestion_words(of_task)}"))
    if view.spec.tasks:
        facts.add_row("unused", unused_words(found.unused_core_seconds, found.unused_byte_seconds))
        return facts
    facts.add_row("memory", _memory_words(found))
    facts.add_row("cores", _cores_words(found))
    if view.used:
        facts.add_row("unused", unused_words(found.unused_core_seconds, found.unused_byte_seconds))
    facts.add_row("suggestion", Text(_suggestion_words(found)))
    return facts


def usage_table(view: OperationView) -> Table:
    """Return a table of what the runs used, with one line for each result, such as completed or failed."""
    made = table("runs that", "number", "measured", "run time", "cpu time", "mean cores", "peak memory", right=_NUMBERS)
    for result, number in _numbers_of_runs(view).items():
        used = view.used.get(result, RunUsage())
        cells = (
            (
                format_duration(used.ran_ms),
                format_duration(used.cpu_ms),
                f"{used.cpu_ms / used.ran_ms:.2g}" if used.ran_ms else _NOT_KNOWN,
                peak_words(used.max_rss_bytes),
            )
            if used.runs
            else (_NOT_KNOWN,) * 4
        )
        if number or used.runs:
            made.add_row(_RUNS_THAT.get(result, result_words(result)), str(number), str(used.runs), *cells)
    return made


_NUMBERS: Final = ("number", "measured", "run time", "cpu time", "mean cores", "peak memory")
_RUNS_THAT: Final = {JobResult.ABORTED: "were interrupted", JobResult.LOST: "were lost"}


def notes(view: OperationView) -> Iterator[str]:
    """Yield notes on what the figures do not cover: runs that go on, runs that were not measured, hosts without cgroups."""
    measured = sum(used.runs for used in view.used.values())
    if not measured:
        yield "no run was measured yet: a run is measured when it ends, on a node of this release"
        return
    if view.state not in FINAL_STATES:
        yield "jobs that still run are not included"
    alone = measured - sum(used.runs_in_cgroups for used in view.used.values())
    if alone:
        yield (
            f"{alone} of {measured} measured runs had no cgroup: their peak memory is that of the largest single process, "
            "and their CPU time has only processes that the job waited for. A job of several processes may need more than the suggestion"
        )


def _numbers_of_runs(view: OperationView) -> dict[JobResult, int]:
    numbers = {
        JobResult.COMPLETED: view.completed_jobs,
        JobResult.FAILED: view.failed_jobs,
        JobResult.ABORTED: view.aborted_jobs,
        JobResult.LOST: view.lost_jobs,
        JobResult.TIMED_OUT: view.timed_out_jobs,
    }
    return numbers | {result: used.runs for result, used in view.used.items() if result not in numbers}


def _memory_words(found: Efficiency) -> str:
    used, asked = found.max_rss_bytes, found.asked.memory
    words = f"asked for {format_amount('memory', asked)}" if asked else "asked for none"
    raised = max((usage.raised_memory_bytes for usage in found.used.values()), default=0)
    if raised:
        runs = sum(usage.raised_runs for usage in found.used.values())
        words += f", raised to at most {format_amount('memory', raised)} for {counted(runs, 'run')}"
    if used is None:
        return f"{words}, used {_NOT_KNOWN}"
    most = max(asked, raised)
    part = f" ({percent(used / most)})" if most else ""
    return f"{words}, used at most {format_amount('memory', used)}{part} by its completed runs"


def _cores_words(found: Efficiency) -> str:
    used, asked = found.mean_cores, found.asked.cpu
    if used is None:
        return f"asked for {format_amount('cpu', asked)}, used {_NOT_KNOWN}"
    part = f" ({percent(used * 100 / asked)})" if asked else ""
    return f"{used:.2g} of {format_amount('cpu', asked)}{part} on average by its completed runs"


def _suggestion_words(found: Efficiency) -> str:
    if found.suggestions:
        return f"headrace run {' '.join(found.suggestions)}"
    return "none: no completed run was measured" if found.max_rss_bytes is None else "none: the request fits the usage"
