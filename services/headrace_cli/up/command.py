"""The command `headrace up`: the command line of the supervisor."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import anyio
import msgspec
from cyclopts import Parameter
from rich.text import Text

from headrace.client import state_folder
from headrace.client.place import traces_folder
from headrace.client.places.kept import SavedServers
from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.ids import node_name_from_host
from headrace.installation.extras import require
from headrace.obs.trace_sinks import Traces, check_endpoint, is_switched_off, with_otel_variables
from headrace.wire.nodes import StopMode
from headrace_cli.exit_statuses import Exit
from headrace_cli.option_values import MaybeWhole, Number, Whole
from headrace_cli.session import Switch
from headrace_cli.show.amounts import amounts
from headrace_cli.show.screen import Screen
from headrace_cli.up.configuration import DEFAULT_PORT, DEFAULT_WEB_PORT
from headrace_cli.up.node_option import NodeOption, parse_nodes, parse_trees, spread
from headrace_cli.up.options import UpOptions
from headrace_cli.up.supervisor import Ready, run_up


@Parameter(name="*")
@dataclass(frozen=True)
class StopOptions:
    """Options for what happens to running jobs when `headrace up` is stopped."""

    wait: Switch = False
    """On the first Ctrl-C, wait until running jobs have ended, however long they take."""
    leave_running: Switch = False
    """On the first Ctrl-C, leave running jobs for the next `headrace up`."""

    def mode(self) -> StopMode:
        """Return the way of stopping. Raises `BadInput` if both options are given."""
        if self.wait and self.leave_running:
            raise BadInput.because("--leave-running", "--wait and --leave-running cannot be combined")
        return StopMode.WAIT if self.wait else StopMode.LEAVE if self.leave_running else StopMode.INTERRUPT


@Parameter(name="*")
@dataclass(frozen=True)
class ProcessOptions:
    """Options for the processes that are run."""

    standby: Switch = False
    """Run two processes of each service: a leader, and a standby that takes over when the leader is stopped or dies."""
    web: Switch = False
    """Also serve the HTTP API and the page for the browser, as `headrace web` does. The address for a browser is printed."""
    web_port: MaybeWhole = None
    """Port of the web service on 127.0.0.1, 0: any free one. Implies `--web`. Default: 8040."""

    def port_of_web(self) -> int | None:
        """Return the port of the web service; None: no web service. Raises `BadInput`, `MissingExtra`."""
        if not self.web and self.web_port is None:
            return None
        require("web", "`headrace up --web`")
        return _port(DEFAULT_WEB_PORT if self.web_port is None else self.web_port, "--web-port")


@Parameter(name="*")
@dataclass(frozen=True)
class TraceOptions:
    """Options for the traces of operations."""

    trace_sample: Number = 1.0
    """Part of the operations that are traced, from 0 to 1. `headrace trace OP` shows how long each step took."""
    trace_endpoint: str = ""
    """Collector that takes OTLP over HTTP, such as http://127.0.0.1:4318. Default: $OTEL_EXPORTER_OTLP_ENDPOINT, else a file in the state
    folder."""

    def traces(self, state: Path) -> Traces:
        """Return the settings of traces. Raises `BadInput`, `MissingExtra`."""
        if not 0.0 <= self.trace_sample <= 1.0:
            raise BadInput("--trace-sample", self.trace_sample, "a number from 0 to 1")
        if self.trace_endpoint:
            check_endpoint(self.trace_endpoint, "--trace-endpoint")
        given = with_otel_variables(Traces(self.trace_endpoint, sample_ratio=self.trace_sample), os.environ)
        if given.endpoint:
            require("tracing", f"sending spans to {given.endpoint}")
        folder = "" if is_switched_off(os.environ) else str(traces_folder(state))
        return msgspec.structs.replace(given, folder=folder)


def up(
    *,
    state: Path | None = None,
    port: Whole = DEFAULT_PORT,
    node: Annotated[list[str] | None, Parameter(negative=())] = None,
    tree: Annotated[list[str] | None, Parameter(negative=())] = None,
    process_options: ProcessOptions | None = None,
    stop_options: StopOptions | None = None,
    trace_options: TraceOptions | None = None,
    ready_timeout: str = "60s",
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    verbose: Annotated[Switch, Parameter(name=["--verbose", "-v"])] = False,
) -> int:
    """Run all of Headrace on this machine until Ctrl-C: NATS server, services, and an agent for this host.

    Everything is kept in the state folder, which only you can read. The server listens on 127.0.0.1. Server and
    commands verify each other with certificates and passwords in that folder, which are new at each start.

    The first Ctrl-C (or SIGTERM) stops Headrace within 15 s: running jobs are interrupted, and are pending again for the next
    `headrace up`. A second Ctrl-C kills everything at once.

    Examples of use:

        headrace up
        headrace up --web --node small:cpu=1,memory=1G --node large:cpu=4,memory=8G
        headrace up --tree cpu --tree gpu --node a:cpu=4,tree=cpu --node b:cpu=2,gpu=1,tree=gpu

    Parameters
    ----------
    state
        State folder. Default: `$HEADRACE_STATE`, else `headrace` in `$XDG_STATE_HOME` or `~/.local/state`.
    port
        Port of the NATS server on 127.0.0.1; 0: any free one.
    node
        An agent NAME:cpu=2,memory=2G,tag=ssd,… with what it offers; may be repeated. Unless given: one with all resources here.
    tree
        A pool tree to serve; may be repeated. Nodes without `tree=NAME` join the trees in turn. Commands use the first.
    ready_timeout
        Longest time to wait until everything answers.
    log_level
        Log level of all processes. Their logs are in the folder `logs` of the state folder.
    verbose
        Print all log lines here too.
    """
    trees, processes = parse_trees(tree or ["default"]), process_options or ProcessOptions()
    options = UpOptions(
        state=_folder(state),
        port=_port(port),
        nodes=spread(parse_nodes(node) if node else [_this_host()], trees),
        trees=tuple(trees),
        standby=processes.standby,
        web_port=processes.port_of_web(),
        log_level=log_level,
        verbose=verbose,
        ready_timeout_s=parse_duration_ms(ready_timeout, place="--ready-timeout") / 1000,
        stop_mode=(stop_options or StopOptions()).mode(),
        traces=(trace_options or TraceOptions()).traces(_folder(state)),
    )
    return _run(options, Screen())


def _run(options: UpOptions, screen: Screen) -> int:
    require("up", "`headrace up`")

    async def when_ready(ready: Ready) -> bool:
        with suppress(OSError):
            _welcome(screen, options, ready)
        return False

    def tell(words: str) -> None:
        # Printing fails if the terminal was closed. That error must not keep the processes from being stopped group by group.
        with suppress(OSError):
            screen.say(words, whole=True)

    outcome = anyio.run(run_up, options, tell, when_ready)
    if outcome.ready:
        return Exit.DONE
    return Exit.INTERRUPTED if outcome.interrupted else Exit.FAILED


def _folder(state: Path | None) -> Path:
    return Path(os.path.abspath(state)) if state is not None else state_folder()


def _this_host() -> NodeOption:
    return NodeOption(node=node_name_from_host(os.uname().nodename))


def _port(port: int, option: str = "--port") -> int:
    if not 0 <= port <= 65_535:
        raise BadInput(option, port, "a number from 0 to 65535")
    return port


def _welcome(screen: Screen, options: UpOptions, ready: Ready) -> None:
    out = screen.out
    out.print(Text(f"headrace is ready in {ready.took_s:.1f} s", style="bold green"))
    out.print(Text(f"  state folder  {options.state}"), soft_wrap=True)
    for node in ready.nodes:
        out.print(
            Text(f"  node          {node.node}: {amounts(node.total, leave_out=('user_slots',))}"), soft_wrap=True
        )
    if len(options.trees) > 1:
        out.print(Text(f"  trees         {', '.join(options.trees)}"), soft_wrap=True)
    for warning in ready.warnings:
        screen.say(warning, style="yellow")
    out.print("\nIn another terminal:")
    # Without HEADRACE_STATE, the printed commands might use another state folder, or a cluster in which the user logged in. Then the first
    # printed command sets it.
    elsewhere = {name: value for name, value in os.environ.items() if name != "HEADRACE_STATE"}
    if options.state != state_folder(elsewhere) or SavedServers().names():
        out.print(Text(f"  export HEADRACE_STATE={options.state}"), soft_wrap=True)
    name = _own_name()
    for words in (
        "run --pool research --jobs 10 --cpu 1 --memory 256M --wait -- python3 -c 'print(6 * 7)'",
        "op list",
        "pool list",
        "node list",
    ):
        out.print(Text(f"  {name} {words}"), soft_wrap=True)
    out.print("\nCtrl-C stops everything.")


def _own_name() -> str:
    """Return the name by which this program was called, so that users can copy the examples."""
    typed = sys.argv[0]
    if shutil.which("headrace"):
        return "headrace"
    return os.path.relpath(typed) if os.path.basename(typed) == "headrace" else "python -m headrace_cli"
