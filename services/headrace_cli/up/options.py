"""The options of `headrace up`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace.ids import TreeName
from headrace.obs.trace_sinks import Traces
from headrace.wire.nodes import StopMode
from headrace_cli.up.node_option import NodeOption


class UpOptions(msgspec.Struct, frozen=True):
    """The options of `headrace up`, after they were checked."""

    #: Absolute path of the state folder.
    state: Path
    #: Port of the NATS server; 0: any free port.
    port: int
    #: Agents to start, at least one.
    nodes: list[NodeOption]
    #: Trees to serve, each with at least one node. Commands that name no tree use the first.
    trees: tuple[TreeName, ...] = (TreeName("default"),)
    #: True: run two processes of each service, one of them as standby.
    standby: bool = False
    #: Port of the web service; 0: any free port; None: no web service.
    web_port: int | None = None
    log_level: str = "info"
    #: True: print the log lines of all processes on stderr too.
    verbose: bool = False
    ready_timeout_s: float = 60.0
    #: Treatment of running jobs at the first Ctrl-C or SIGTERM.
    stop_mode: StopMode = StopMode.INTERRUPT
    #: Trace settings of all processes, and of clients that find the server by the state folder.
    traces: Traces = Traces()
