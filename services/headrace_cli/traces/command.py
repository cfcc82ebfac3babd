"""The command `headrace trace`: show where the time of a start went."""

from __future__ import annotations

from pathlib import Path

from headrace.client import NotRunning, Refused, state_folder
from headrace.client.place import find_place, traces_folder
from headrace.errors import HeadraceError
from headrace.obs.span_file import read_spans
from headrace.suggestions import near
from headrace.wire.refusals import NotFound
from headrace.wire.trace import TRACED_JOBS
from headrace_cli.commands.operations.operation_id import check_part, only_one
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Common
from headrace_cli.show.screen import Screen
from headrace_cli.traces.waterfall import trace_of_operation, traced_operations, waterfall, waterfall_table


class SpansElsewhere(HeadraceError):
    """Raised because spans go to a collector, and this machine keeps none."""

    def __init__(self, endpoint: str, sought: str) -> None:
        super().__init__(f"spans go to the collector at {endpoint}: look there for {sought}")


def trace(operation: str, /, *, folder: Path | None = None, common: Common | None = None) -> int:
    """Show how long each step of an operation's start took.

    One line for each step from `headrace run` to the process: the request, its record in the log, the first snapshot of shares that
    has the operation, the heartbeat that placed its jobs, and the first jobs themselves. A step that is not over has no line yet.

    Headrace need not be running. If it sends its spans to a collector, look for them there.

    Examples of use:

        headrace trace my-operation

        headrace trace my-operation --json | jq '.spans[] | select(.took_ms > 50)'

        headrace trace my-operation --folder ./traces-of-another-host

    Parameters
    ----------
    operation
        The operation's id, or the beginning of the id.
    folder
        Folder with the file of spans. Default: the folder for spans in the state folder.
    """
    check_part(operation)
    screen = Screen(json=(common or Common()).json)
    spans = list(read_spans(folder or spans_here(common, f"headrace.operation={operation}")))
    name = only_one(operation, traced_operations(spans)) or operation
    trace_id = trace_of_operation(spans, name)
    if trace_id is None:
        raise Refused(NotFound("trace of operation", name, near(name, traced_operations(spans))))
    found = waterfall(spans, trace_id)
    screen.show(found, waterfall_table(found, screen.width))
    if found.is_cut:
        screen.say(f"only the first {TRACED_JOBS} of its jobs have spans")
    return Exit.DONE


def spans_here(common: Common | None, sought: str) -> Path:
    """Return the folder of spans that belongs to the state folder. Raises `SpansElsewhere` if spans go to a collector."""
    state = (common or Common()).state
    try:
        traces = find_place(state=state).traces
    except NotRunning:
        return traces_folder(state or state_folder())
    if traces.endpoint:
        raise SpansElsewhere(traces.endpoint, sought)
    return Path(traces.folder) if traces.folder else traces_folder(state or state_folder())
