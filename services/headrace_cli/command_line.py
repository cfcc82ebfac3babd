"""The table of all commands. Only the chosen command imports what it needs, because the user waits for every import."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING, Final

from cyclopts import App, CycloptsError, CycloptsPanel, Parameter, UnusedCliTokensError

from headrace_cli.exit_statuses import EXIT_HELP, Exit

if TYPE_CHECKING:
    from rich.panel import Panel

#: Each command: its function or app, and its line in the list of commands. The help of the command starts with the same line.
COMMANDS: Final = {
    "up": (
        "headrace_cli.up.command:up",
        "Run all of Headrace on this machine until Ctrl-C: NATS server, services, and an agent for this host.",
    ),
    "run": (
        "headrace_cli.commands.run:run",
        "Start an operation: so many jobs, each a process that runs the command.",
    ),
    "op": ("headrace_cli.commands.op:app", "List, look into, wait for, and end operations."),
    "top": (
        "headrace_cli.top.command:top",
        "Show the cluster live: what is in use, pools, operations, nodes, what starves and who made room.",
    ),
    "events": (
        "headrace_cli.commands.events:events",
        "Print what happens as it happens: starts, ends, preemptions, starvation.",
    ),
    "pool": ("headrace_cli.commands.pool:app", "List, make, change and remove pools."),
    "tree": (
        "headrace_cli.commands.tree:app",
        "List, make, change and remove pool trees, each with pools, options and nodes of its own.",
    ),
    "node": ("headrace_cli.commands.node:app", "List nodes, let hosts join, drain nodes, and take them out."),
    "agent": ("headrace_cli.agent.command:app", "Make this host a node."),
    "bus": ("headrace_cli.commands.bus:app", "Make the buckets and streams that services need."),
    "trace": ("headrace_cli.traces.command:trace", "Show where the time of a start went."),
    "debug": ("headrace_cli.traces.debug:app", "Look at single messages between processes."),
    "service": ("headrace_cli.commands.service:app", "List the processes of Headrace itself, and their figures."),
    "cluster": (
        "headrace_cli.cluster.command:app",
        "Make credentials and settings of services that run on their own, in containers or on hosts.",
    ),
    "user": ("headrace_cli.persons.users:app", "Let people into a cluster, and shut them out."),
    "login": ("headrace_cli.persons.login:login", "Let later commands go to a cluster, in your name."),
    "logout": (
        "headrace_cli.persons.login:logout",
        "Forget the cluster of a login, and the credential for it on this machine.",
    ),
    "whoami": (
        "headrace_cli.persons.login:whoami",
        "Show who you are to Headrace, where, and which rights you have.",
    ),
    "tls": ("headrace_cli.cluster.tls:app", "Make certificates for a server, where nobody else makes them."),
    "pause": (
        "headrace_cli.commands.pause:pause",
        "Let no job start in a tree, or take nothing back in it, until it is resumed. It outlives every restart.",
    ),
    "resume": ("headrace_cli.commands.pause:resume", "End a pause."),
    "plan": (
        "headrace_cli.commands.plan:plan",
        "Compute the shares of a tree in a file, or those of the running tree after changes that nobody makes.",
    ),
    "replay": (
        "headrace_cli.replay.command:replay",
        "Run a day of the log again under another configuration of pools, in simulated time, beside the recorded one.",
    ),
    "demo": (
        "headrace_cli.demo.command:demo",
        "See Headrace at work: sixty jobs of three pools, then one that comes back and takes its share.",
    ),
    "completion": (
        "headrace_cli.commands.completion:completion",
        "Print the script by which a shell completes commands, options, and the names of pools, operations, nodes and trees.",
    ),
}


_HELP: Final = frozenset({"--help", "-h"})
_MARKED: Final = re.compile(r"\*\*(.+?)\*\*|`(.+?)`")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version("headrace")
    except PackageNotFoundError:  # run from a checkout
        return "0.1.0"


def version() -> None:
    """Print the version."""
    print(_version())


def _panel(error: CycloptsError) -> Panel:
    unused = error.unused_tokens if isinstance(error, UnusedCliTokensError) else None
    return CycloptsPanel(f"Words that are too many here: {shlex.join(unused)}" if unused else error)


def _app(*, listing: bool) -> App:
    """Return the app with all commands.

    With `listing`, each command gets its line of `COMMANDS` as help, for the list of commands. Without it, each command
    keeps its own help.
    """
    made = App(
        name="headrace",
        help="Share hosts between teams: pools own guarantees and weights, operations run their jobs in pools.",
        # Parsing Markdown takes as long as the rest of the list of commands, and the lines of the list contain no Markdown.
        help_format="rich" if listing else None,
        help_epilogue=_MARKED.sub(r"[bold]\1[/][markdown.code]\2[/]", EXIT_HELP) if listing else EXIT_HELP,
        version=_version,
        default_parameter=Parameter(negative=()),
        error_formatter=_panel,
    )
    for name, (place, summary) in COMMANDS.items():
        made.command(place, name=name, help=summary if listing else None)
    made.command(version)
    return made


app = _app(listing=False)


def _load_all(command: App) -> None:
    """Import all subcommands of a command, because the list of subcommands shows a line of each."""
    for name in command:
        command[name]


def _tell_more(error: CycloptsError, words: list[str]) -> None:
    """Print what to type instead of words that the command does not accept."""
    from headrace_cli.slurm_words import said_here

    command = " ".join(error.command_chain or ())
    more = f"`headrace {command} --help` says what it takes" if isinstance(error, UnusedCliTokensError) else ""
    if said := said_here(words) or more:
        print(said, file=sys.stderr)


def run_command(words: list[str]) -> int:
    """Run the command named by the words after `headrace` and return its exit status. Raises what the command raises."""
    if words and not words[0].startswith("-"):
        # Imported here because the list of all commands does not need the completion table.
        from headrace_cli.completion.spoken import canonical
        from headrace_cli.completion.table import read_table

        words = canonical(read_table(), words)
    first = next((word for word in words if not word.startswith("-")), "")
    named = first in COMMANDS
    if named:
        from headrace.obs.logging import configure

        configure("cli", "error")
        if len(words) == 1 or not _HELP.isdisjoint(words):
            _load_all(app[first])
    try:
        status = (app if named else _app(listing=True))(words, exit_on_error=False)
    except CycloptsError as error:  # it has already printed what is wrong
        _tell_more(error, words)
        return Exit.USAGE
    return status if isinstance(status, int) else Exit.DONE
