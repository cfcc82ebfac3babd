"""The commands `headrace op …`: list, show, wait for, change and end operations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from headrace.client import Client, Refused, Unanswered
from headrace.client.asking import at_once
from headrace.client.logs import LogWishes
from headrace.errors import BadInput
from headrace.ids import PoolName, TreeName
from headrace.runtime.clock import SystemClock
from headrace.suggestions import hint, near
from headrace.whole_numbers import at_least
from headrace.wire.nodes import OperationPlaces
from headrace.wire.operations import FINAL_STATES, OperationOrder, OperationState, OperationView
from headrace.wire.plain_values import plain
from headrace.wire.refusals import NotFound
from headrace_cli.commands.operations.job_list import JobWishes, ListedJobs, listed_jobs
from headrace_cli.commands.operations.job_output import file_words, print_output, save_output
from headrace_cli.commands.operations.operation_id import Ids, whole_id
from headrace_cli.commands.operations.requests import ToldShare, reasons_of_idle, share_of
from headrace_cli.commands.operations.tables import (
    failure_lines,
    job_table,
    operation_facts,
    operation_table,
    task_table,
)
from headrace_cli.exit_statuses import Exit
from headrace_cli.option_values import MaybeWhole, Whole
from headrace_cli.session import Common, PoolOption, Switch, Watching, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.shares import share_facts, share_summary, share_table
from headrace_cli.show.starvation import starvation_facts

app = App(name="op", help="List, show, wait for, change and end operations.")


@app.command(name="list")
def list_(
    *,
    pool: PoolOption = None,
    user: Annotated[str | None, Parameter(name=["--user", "-u"])] = None,
    in_state: str | None = None,
    live: Switch = False,
    node: str = "",
    sort: str = OperationOrder.STARTED.value,
    limit: Whole = 50,
    watching: Watching | None = None,
    common: Common | None = None,
) -> int:
    """List operations, the newest first unless `--sort` says otherwise.

    Examples of use:

        headrace op list --live

        headrace op list --pool research --in-state waiting --sort oldest

        headrace op list --live --node host-17

        headrace op list --sort unused-cpu

    Parameters
    ----------
    pool
        Only operations of this pool, by its name or its path.
    user
        Only operations of this user.
    in_state
        Only operations in this state: pending (or waiting), running, completed, failed, aborted, …
    live
        Only operations that have not ended.
    node
        Only operations that have a job on this node now.
    sort
        `started`: the newest first. `oldest`: the oldest first. `unused-cpu` or `unused-memory`: first the operation that left
        the most core-hours or GiB-hours unused; operations without a measured run are left out.
    limit
        Largest number of operations to list.
    """

    at_least("--limit", limit, 1)
    order = _order(sort)
    _refuse_state_of_operations(common)
    state = _state_of_operations(in_state or "")

    async def work(client: Client, screen: Screen) -> None:
        below = await client.pools.at(pool or "")
        views = await client.list(
            pool=below, state=state, user=user or "", live=live, limit=limit + 1, node=node, order=order
        )
        await _show_list(client, screen, views, limit, order)
        if not views and not screen.json:
            chosen = pool or user or in_state or live or node or not order.is_by_start
            screen.say("no operations" + (" match these options" if chosen else " yet"))
            await _say_if_no_pool(screen, client, pool or "")

    return talk(common, work, watching=watching)


def _state_of_operations(text: str) -> str:
    """Return the state that the user typed in lower case, as admission expects it. Raises `BadInput` for an unknown state."""
    if text.lower() not in ("", "waiting", *OperationState):
        raise BadInput("--in-state", text, f"one of waiting, {', '.join(OperationState)}")
    return text.lower()


async def _show_list(
    client: Client, screen: Screen, views: Sequence[OperationView], limit: int, order: OperationOrder
) -> None:
    """Print the first `limit` operations, and say whether there are more."""
    more, views = len(views) > limit, views[:limit]
    idle, all_told = await reasons_of_idle(client, views)
    shown = {"operations": views, "more": more, "no_job_runs_because": idle}
    screen.show(shown, operation_table(views, SystemClock().wall_ms(), idle, order))
    if more and not screen.json:
        which = {OperationOrder.STARTED: "newest", OperationOrder.OLDEST: "oldest"}.get(order, "first")
        filters = "--live, --pool, --user, --in-state, --node"
        screen.say(f"only the {which} {limit} are shown: raise --limit, or filter with {filters}")
    if not all_told:
        screen.say("the allocator does not answer in time: no reasons of waiting are shown", style="yellow")


def _refuse_state_of_operations(common: Common | None) -> None:
    """Raise `BadInput` if the value of `--state` is a state of operations. Other systems expect a state there; here it is a folder."""
    folder = str(common.state) if common is not None and common.state is not None else ""
    if folder.lower() in {*OperationState, "waiting"}:
        raise BadInput(
            "--state",
            folder,
            f"the folder of `headrace up`. To list operations by their state, use --in-state {folder}",
        )


def _order(text: str) -> OperationOrder:
    orders = {order.value.replace("_", "-"): order for order in OperationOrder}
    try:
        return orders[text.lower().replace("_", "-")]
    except KeyError:
        raise BadInput("--sort", text, hint(text, orders)) from None


async def _say_if_no_pool(screen: Screen, client: Client, pool: str) -> None:
    """Warn if no pool has this name. The list of operations of a misspelt pool is empty, and nothing else would show the mistake."""
    names: list[PoolName] = []
    with suppress(Unanswered):  # the list was printed already and does not need the pools
        names = [each.name for each in (await client.pools.list()).pools] if pool and "/" not in pool else []
    if names and pool not in names:
        screen.say(NotFound("pool", pool, near(pool, names)).text(), style="yellow")


@app.command
def get(
    operation: str,
    /,
    *,
    jobs: Switch = False,
    failed: Switch = False,
    job: MaybeWhole = None,
    limit: MaybeWhole = None,
    shares: Switch = False,
    spec: Switch = False,
    common: Common | None = None,
) -> int:
    """Show one operation: its state, jobs, usage and fair share, and the heaviest reason why jobs wait.

    Examples of use:

        headrace op get 69201a4f-0c1d2e3f4a5b

        headrace op get 69201a4f-0c1d2e3f4a5b --jobs --failed --limit 20

        headrace op get 69201a4f-0c1d2e3f4a5b --spec > train.yaml

    Parameters
    ----------
    operation
        The operation's id, or the beginning of the id.
    jobs
        List its jobs too: where each runs or ran, its exit code, its start, and the CPU time and the peak memory that it used, if measured.
    failed
        With `--jobs`: only jobs whose newest attempt that ended has failed or timed out.
    job
        With `--jobs`: only this job, by its index from 0.
    limit
        With `--jobs`: the largest number of jobs to list, from the lowest index on. Default: 1000, or all with `--json`.
    shares
        Show every part of its share, for each resource.
    spec
        Print only the file from which `headrace run --spec` starts the same operation again.
    """
    wishes = JobWishes.read(jobs, failed=failed, job=job, limit=limit, json=common is not None and common.json)

    async def work(client: Client, screen: Screen) -> None:
        view = await client.get(await whole_id(client, operation))
        if spec:
            return print_file(screen, view)
        trees = [each.tree for each in view.placements]
        places = await _places(client, view, trees)
        in_trees = {tree: await _places(client, view, [tree]) for tree in trees} if len(trees) > 1 else {}
        told = await _shares(client, view)
        listed = await listed_jobs(client, view, wishes) if wishes is not None else None
        if screen.json:
            screen.show(_as_json(view, places, in_trees, told, listed), operation_table([], 0))
        else:
            _print_facts(screen, view, places, in_trees)
            _print_shares(screen, told, in_trees, whole=shares)
            _print_jobs(screen, view, listed, None if failed else places)
        for note in listed.notes() if listed is not None else ():
            screen.say(note)

    return talk(common, work)


def print_file(screen: Screen, view: OperationView) -> None:
    """Print the file from which `run --spec` starts the operation again, as YAML or JSON.

    Raises `BadInput` if admission withholds the operation's command from this user.
    """
    from headrace.tree_file.pools import as_yaml
    from headrace_cli.commands.operations.operation_file import as_file

    if view.is_withheld:
        raise BadInput.because(
            "op get --spec", f"operation {view.operation} belongs to another user. Only its owner can see its command"
        )
    file = as_file(view.spec)
    if screen.json:
        screen.show(file, operation_table([], 0))
    else:
        screen.print_raw(as_yaml(file), end="")


def _print_facts(
    screen: Screen,
    view: OperationView,
    places: OperationPlaces | None,
    in_trees: Mapping[TreeName, OperationPlaces | None],
) -> None:
    screen.print(operation_facts(view, places, SystemClock().wall_ms(), in_trees))
    if view.spec.tasks:
        screen.print("", task_table(view, places))


def _print_jobs(screen: Screen, view: OperationView, listed: ListedJobs | None, places: OperationPlaces | None) -> None:
    """Print the last failure of an operation, and the jobs if they were asked for."""
    for end in view.last_failures[-1:]:
        screen.print("", *failure_lines(end, view.reason))
    if listed is not None:
        screen.print("", job_table(listed.rows, places, listed.ends, SystemClock().wall_ms(), view.spec))


async def _shares(client: Client, view: OperationView) -> Mapping[TreeName, ToldShare]:
    """Return the share of an operation in each of its trees."""
    placements = {each.tree: each for each in view.placements}
    return await at_once(lambda tree: share_of(client, view, placements[tree]), list(placements))


def _as_json(
    view: OperationView,
    places: OperationPlaces | None,
    in_trees: Mapping[TreeName, OperationPlaces | None],
    shares: Mapping[TreeName, ToldShare],
    listed: ListedJobs | None,
) -> dict[str, object]:
    own = shares.get(view.spec.tree, ToldShare())
    answer: dict[str, object] = {"operation": view, "places": places, "share": own.share}
    answer["starvation_outlooks"] = own.outlooks
    if in_trees:
        answer["trees"] = {
            tree: {"places": each, "share": shares[tree].share, "starvation_outlooks": shares[tree].outlooks}
            for tree, each in in_trees.items()
        }
    answer |= {"jobs": listed.as_json()} if listed is not None else {}
    return {name: plain(value) for name, value in answer.items()}


def _print_shares(
    screen: Screen, shares: Mapping[TreeName, ToldShare], in_trees: Collection[TreeName], *, whole: bool
) -> None:
    for tree, (share, frame, outlooks) in shares.items():
        if share is not None:
            facts = share_facts(share, []) if whole else share_summary(share, frame.total)
            for label, words in starvation_facts(share, outlooks, frame.at_ms):
                facts.add_row(label, words)
            title = [f"in tree {tree}"] if in_trees else []
            tables = [share_table(share, frame.total, None, screen.width)] if whole else []
            for table in (*tables, facts):
                screen.print("", *title, table)
                title = []


async def _places(client: Client, view: OperationView, trees: Sequence[TreeName]) -> OperationPlaces | None:
    """Return where the operation's jobs run.

    Returns None if the operation is over, or if the allocator does not answer or does not know the operation yet.
    """
    if view.state in FINAL_STATES:
        return None
    try:
        return await client.places(view.operation, trees)
    except (Unanswered, Refused):
        return None


@app.command
def logs(
    operation: str,
    /,
    *,
    job: MaybeWhole = None,
    attempt: MaybeWhole = None,
    stdout: Switch = False,
    stderr: Switch = False,
    follow: Annotated[Switch, Parameter(name=["--follow", "-f"])] = False,
    save: Path | None = None,
    common: Common | None = None,
) -> int:
    """Print the output of jobs: stdout, and stderr to this command's stderr. With several jobs, each line begins with the index of its job.

    A node keeps the newest output of each job, up to the log cap of the job. If older output is missing, a line in brackets says how much.

    Examples of use:

        headrace op logs 69201a4f-0c1d2e3f4a5b --job 7 --stderr

        headrace op logs 69201a4f-0c1d2e3f4a5b --job 7 --attempt 1

        headrace op logs 69201a4f-0c1d2e3f4a5b --follow

        headrace op logs 69201a4f-0c1d2e3f4a5b --save logs

    Parameters
    ----------
    operation
        The operation's id, or the beginning of the id.
    job
        Only this job, by its index from 0.
    attempt
        Number of the attempt whose output is printed, from 1. Default: the newest attempt that has ended, and the running attempt.
    stdout
        Print stdout only.
    stderr
        Print stderr only, to this command's stdout.
    follow
        Keep printing until the operation is over. If a job writes very fast, part of its output is left out.
    save
        Write the output into this folder, as 0.out and 0.err for job 0, instead of printing it. The folder is made; files are replaced.
    """
    if job is not None:
        at_least("--job", job, 0)
    wishes = _log_wishes(attempt, stdout=stdout, stderr=stderr)
    wishes["follow"] = follow
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)

    async def work(client: Client, screen: Screen) -> None:
        name = await whole_id(client, operation)
        spec = (await client.get(name)).spec
        several = job is None and spec.job_count > 1
        lines = client.logs(name, job, **wishes)
        if save is not None:
            return screen.say(await save_output(lines, save))
        await print_output(screen, lines, several=several, both=wishes["both"], files=file_words(spec))

    return talk(common, work, bears_restarts=follow)


def _log_wishes(attempt: int | None, *, stdout: bool, stderr: bool) -> LogWishes:
    """Return the arguments of `Client.logs` that select an attempt and its streams. Raises `BadInput` if the options cannot be combined."""
    if stdout and stderr:
        raise BadInput.because(
            "op logs", "--stdout and --stderr cannot be combined. Without either, both streams are shown"
        )
    wishes: LogWishes = {"stderr": stderr, "both": not stdout and not stderr}
    if attempt is not None:
        wishes["attempt"] = at_least("--attempt", attempt, 1)
    return wishes


@app.command
def wait(
    operations: Ids,
    /,
    *,
    abort_on_interrupt: Switch = False,
    common: Common | None = None,
) -> int:
    """Wait until operations are over, one after the other. The exit status is 0 only if all of them completed.

    Ctrl-C stops the waiting, not the operations, unless `--abort-on-interrupt` is given.

    Parameters
    ----------
    operations
        Ids of the operations, or the beginnings of the ids.
    abort_on_interrupt
        Ctrl-C aborts the operation that is waited for.
    """

    # Imported here and not for every command: importing progress bars takes longer than printing a list of operations.
    from headrace_cli.commands.operations.progress import follow as follow_to_end

    async def work(client: Client, screen: Screen) -> int:
        views = [await client.get(await whole_id(client, operation)) for operation in operations]
        status = int(Exit.DONE)
        for view in views:
            operation = client.operation(view.operation)
            ended = await follow_to_end(screen, operation, abort_on_interrupt=abort_on_interrupt)
            if ended == Exit.INTERRUPTED:
                return ended
            status = max(status, ended)
        return status

    return talk(common, work, bears_restarts=True)


#: Commands in modules that are imported only when the command runs, because listing operations does not need them.
_ELSEWHERE: Final = {
    "abort": "changes:abort",
    "efficiency": "efficiency:efficiency",
    "exec": "interactive:exec_",
    "explain": "explain:explain",
    "history": "history:history",
    "rerun": "rerun:rerun",
    "set": "changes:set_",
    "suspend": "changes:suspend",
    "resume": "changes:resume",
    "complete": "changes:complete",
    "scan": "changes:scan",
}
for _name, _place in _ELSEWHERE.items():
    _usage = {"usage": "Usage: headrace op exec [OPTIONS] OPERATION JOB -- COMMAND..."} if _name == "exec" else {}
    app.command(f"headrace_cli.commands.operations.{_place}", name=_name, **_usage)
