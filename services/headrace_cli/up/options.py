"""Options of `headrace up`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace.ids import TreeName
from headrace.obs.trace_sinks import Traces
from headrace.wire.nodes import StopMode
from headrace_cli.up.node_option import NodeOption


class UpOptions(msgspec.Struct, frozen=True):
    """Checked options."""

    #: Absolute.
    state: Path
    #: 0: any free one.
    port: int
    #: At least one.
    nodes: list[NodeOption]
    #: Served trees, each with a node at least. The first is that of commands which name none.
    trees: tuple[TreeName, ...] = (TreeName("default"),)
    #: Two of each service run, of which one stands by.
    standby: bool = False
    log_level: str = "info"
    #: Log lines of all processes go to stderr too.
    verbose: bool = False
    ready_timeout_s: float = 60.0
    #: What the first Ctrl-C or SIGTERM does to running jobs.
    stop_mode: StopMode = StopMode.INTERRUPT
    #: Of all processes, and of clients that find them by the state folder.
    traces: Traces = Traces()
