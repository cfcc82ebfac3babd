"""The commands `headrace debug …`: look at single messages between processes."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from headrace.client import Client, Refused
from headrace.errors import BadInput
from headrace.obs.span_file import read_spans
from headrace.suggestions import near
from headrace.wire.refusals import NotFound
from headrace_cli.session import Common, talk
from headrace_cli.show.screen import Screen
from headrace_cli.traces.command import SpansElsewhere, spans_here
from headrace_cli.traces.waterfall import waterfall, waterfall_table

_MOST_HEARTBEATS = 100

app = App(name="debug", help="Trace single messages between processes.")


@app.command
def trace(node: str, /, *, heartbeats: int = 1, folder: Path | None = None, common: Common | None = None) -> int:
    """Have a node send a heartbeat now, and show how long each step of it took. For administrators.

    Other heartbeats are not traced. The jobs that this heartbeat starts also appear in the trace of their operation.
    If spans go to a collector, the command prints the trace's id, by which the collector finds the trace.

    Examples of use:

        headrace debug trace alpha

        headrace debug trace alpha --heartbeats 10 --json | jq '.[].took_ms'

    Parameters
    ----------
    node
        Name of the node.
    heartbeats
        Number of heartbeats, one after the other.
    folder
        Folder with the file of spans. Default: the folder for spans in the state folder.
    """
    if not 1 <= heartbeats <= _MOST_HEARTBEATS:
        raise BadInput("--heartbeats", heartbeats, f"a number from 1 to {_MOST_HEARTBEATS}")

    async def work(client: Client, screen: Screen) -> None:
        known = [each.node for each in (await client.nodes()).nodes]
        if node not in known:
            raise Refused(NotFound("node", node, near(node, known)))
        traces = [(await client.trace_heartbeat(node)).trace_id for _ in range(heartbeats)]
        try:
            spans = list(read_spans(folder or spans_here(common, f"trace {traces[0]}")))
        except SpansElsewhere as elsewhere:
            screen.say(str(elsewhere))
            for trace_id in traces:
                screen.print_raw(trace_id)
            return
        found = [waterfall(spans, trace_id) for trace_id in traces]
        if screen.json:
            screen.show({"traces": found}, waterfall_table(found[0], screen.width))
            return
        for each in found:
            screen.print(f"trace {each.trace_id}", waterfall_table(each, screen.width))

    return talk(common, work, bears_restarts=True)
