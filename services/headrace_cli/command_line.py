"""The table of all commands. Only the chosen command imports what it needs, because the user waits for every import."""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING, Final

from cyclopts import (
    App,
    CycloptsError,
    CycloptsPanel,
    Group,
    Parameter,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from headrace import __version__
from headrace.errors import without_control_characters
from headrace_cli.exit_statuses import EXIT_HELP, Exit

if TYPE_CHECKING:
    from cyclopts import ArgumentCollection
    from rich.panel import Panel

#: All commands by group. Each command has its function or app, and a line for the list of commands. The command's own help begins with the
#: same line.
GROUPS: Final = {
    "Work": {
        "run": (
            "headrace_cli.commands.operations.run:run",
            "Start an operation: a number of jobs, each a process that runs the command.",
        ),
        "shell": (
            "headrace_cli.commands.operations.interactive:shell",
            "Start a job with a terminal, and connect this terminal to it.",
        ),
        "op": ("headrace_cli.commands.operations.op:app", "List, show, wait for, change and end operations."),
        "top": (
            "headrace_cli.top.command:top",
            "Show the cluster live: resources in use, pools, operations, nodes, starvation and preemptions.",
        ),
        "web": (
            "headrace_cli.commands.web:app",
            "Serve the HTTP API and a page for the browser on this machine.",
        ),
        "events": (
            "headrace_cli.commands.operations.events:events",
            "Print events: starts, ends, preemptions, starvation.",
        ),
        "usage": (
            "headrace_cli.commands.usage.command:usage",
            "Show what finished runs were allotted, used and lost, by person, pool, operation or day.",
        ),
        "slurm": ("headrace_cli.slurm.command:app", "Install commands of Slurm, for tools and scripts that call them."),
        "export": ("headrace_cli.export.command:app", "Export finished operations to a file or an HTTP endpoint."),
        "notify": (
            "headrace_cli.notify.command:notify",
            "Send webhooks or mail when operations end, pools starve or nodes are lost.",
        ),
        "trace": ("headrace_cli.traces.command:trace", "Show how long each step of an operation's start took."),
        "whoami": (
            "headrace_cli.persons.login:whoami",
            "Show your user name, your groups, your cluster and your rights.",
        ),
        "login": ("headrace_cli.persons.login:login", "Send later commands to a cluster, under your name."),
        "logout": (
            "headrace_cli.persons.login:logout",
            "Forget a login: remove its cluster and its credential from this machine.",
        ),
        "token": (
            "headrace_cli.persons.tokens:app",
            "Make, list and revoke tokens for programs that use the HTTP API in your name.",
        ),
        "completion": (
            "headrace_cli.commands.completion:completion",
            "Print the script by which a shell completes commands, options, and the names of pools, operations, nodes and trees.",
        ),
    },
    "Pools and nodes": {
        "pool": ("headrace_cli.commands.pools.pool:app", "List, make, change and remove pools."),
        "tree": (
            "headrace_cli.commands.tree:app",
            "List, make, change and remove pool trees, each with pools, options and nodes of its own.",
        ),
        "node": ("headrace_cli.commands.node:app", "List nodes, let hosts join, drain nodes, and remove them."),
        "group": (
            "headrace_cli.commands.group:app",
            "List, make and change groups of people.",
        ),
        "plan": (
            "headrace_cli.commands.plans.plan:plan",
            "Compute the shares of a tree in a file, or of the running tree after supposed changes.",
        ),
        "replay": (
            "headrace_cli.replay.command:replay",
            "Replay a period of the log under another configuration of pools, and compare it with what happened.",
        ),
        "simulate": (
            "headrace_cli.simulate.command:simulate",
            "Simulate a recorded workload of any scheduler, and show what everybody would have got.",
        ),
        "pause": (
            "headrace_cli.commands.pause:pause",
            "Pause starts or preemption in a tree until it is resumed. A pause survives restarts.",
        ),
        "resume": ("headrace_cli.commands.pause:resume", "End a pause."),
    },
    "Running Headrace": {
        "up": (
            "headrace_cli.up.command:up",
            "Run all of Headrace on this machine until Ctrl-C: NATS server, services, and an agent for this host.",
        ),
        "demo": (
            "headrace_cli.demo.command:demo",
            "Show Headrace at work: sixty jobs in three pools, then a pool that comes back and gets its share.",
        ),
        "service": ("headrace_cli.commands.service:app", "List the processes of Headrace itself, and their metrics."),
        "agent": ("headrace_cli.agent.command:app", "Make this host a node."),
        "cluster": (
            "headrace_cli.cluster.command:app",
            "Make credentials and settings for services, and have systemd run the services.",
        ),
        "user": ("headrace_cli.persons.users:app", "Admit people to a cluster, and remove them."),
        "bus": ("headrace_cli.commands.bus:app", "Make the buckets and streams that services need."),
        "tls": ("headrace_cli.cluster.tls:app", "Make certificates for a server if you have no certificate authority."),
        "debug": ("headrace_cli.traces.debug:app", "Trace single messages between processes."),
    },
}
COMMANDS: Final = {name: command for group in GROUPS.values() for name, command in group.items()}

#: Usage lines for commands that run a command of the user, given behind `--`. Without these lines, cyclopts would show the user's command
#: as `[ARGS...]`.
_USAGES: Final = {
    "run": "Usage: headrace run [OPTIONS] -- COMMAND...",
    "shell": "Usage: headrace shell [OPTIONS] [-- COMMAND...]",
}


#: First words of the commands that need Linux, because they run or manage processes of Headrace on this host.
_LINUX_ONLY: Final = (("up",), ("demo",), ("agent",), ("cluster", "install"), ("cluster", "uninstall"))
_HELP: Final = frozenset({"--help", "-h"})
_MARKED: Final = re.compile(r"\*\*(.+?)\*\*|`(.+?)`")


def version() -> None:
    """Print the version."""
    print(__version__)


def _panel(error: CycloptsError) -> Panel:
    # A script may pass on words that somebody else wrote.
    return CycloptsPanel(without_control_characters(_fault(error)))


def _fault(error: CycloptsError) -> str:
    """Return what is wrong with the words of a command."""
    from headrace_cli.slurm_words import said_here

    if isinstance(error, UnknownOptionError):
        # If the word is an option of Slurm, the explanation names the counterpart in Headrace. The option of Headrace with the nearest name
        # would not help.
        word = error.token.keyword or error.token.value
        return f"Unknown option: {word}{'' if said_here(['run', word]) else _near_option(error, word)}"
    if isinstance(error, UnknownCommandError) and (words := error.unused_tokens) and said_here(words):
        return f"Unknown command: {words[0]}"
    unused = error.unused_tokens if isinstance(error, UnusedCliTokensError) else None
    return f"Unexpected words: {shlex.join(unused)}" if unused else str(error)


def _near_option(error: UnknownOptionError, word: str) -> str:
    """Return the option that was probably meant, or an empty string.

    Names are compared without their dashes, which would make any two short names similar.
    """
    from headrace.suggestions import near

    names = {name.lstrip("-"): name for each in error.argument_collection if each.parse for name in each.names}
    found = near(word.lstrip("-").partition("=")[0], names)
    return f". Did you mean {names[found[0]]}?" if found else ""


def _filled(_: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill the arguments of `run` from a file, if its option `--spec` names one."""
    if commands == ("run",):
        from headrace_cli.commands.operations.spec_option import fill_from_file

        fill_from_file(arguments)


def _app(*, listing: bool) -> App:
    """Return the app with all commands.

    With `listing`, each command gets its line of `COMMANDS` as help, for the list of commands. Without it, each command
    keeps its own help.
    """
    made = App(
        name="headrace",
        help="Share hosts between teams: pools own guarantees and weights, operations run their jobs in pools.",
        # The list of commands is not parsed as Markdown. It contains none, and parsing would double the time that the list takes.
        help_format="rich" if listing else None,
        help_epilogue=_MARKED.sub(r"[bold]\1[/][markdown.code]\2[/]", EXIT_HELP) if listing else EXIT_HELP,
        version=__version__,
        default_parameter=Parameter(negative=(), show_default=lambda value: value if value != "" else None),
        error_formatter=_panel,
        config=_filled,
    )
    for place, (title, commands) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=place)
        for nth, (name, (function, summary)) in enumerate(commands.items()):
            if listing:
                made.command(function, name=name, help=summary, group=group, sort_key=nth)
            else:
                usage = {"usage": _USAGES[name]} if name in _USAGES else {}
                made.command(function, name=name, **usage)
    made.command(version, group=Group("Other", sort_key=len(GROUPS)) if listing else None)
    made["--help"].group = made["--version"].group = "Other"
    return made


app = _app(listing=False)


def _load_all(command: App) -> None:
    """Import all subcommands of a command, because the list of subcommands shows a line of each."""
    for name in command:
        command[name]


def _tell_more(error: CycloptsError, words: list[str]) -> None:
    """Print what to type in place of words that the command does not accept."""
    from headrace_cli.slurm_words import said_here

    command = " ".join(error.command_chain or ())
    more = f"`headrace {command} --help` shows what it accepts" if isinstance(error, UnusedCliTokensError) else ""
    if said := said_here(words) or more:
        print(said, file=sys.stderr)


def _check_system(words: list[str]) -> None:
    """Raise `NeedsLinux` for a command that this system cannot run. Its help is shown on every system, so `--help` raises nothing."""
    if sys.platform == "linux":
        return
    from headrace.installation.systems import require_linux

    for command in _LINUX_ONLY:
        if tuple(words[: len(command)]) == command and _HELP.isdisjoint(words):
            require_linux(f"`headrace {' '.join(command)}`")


def run_command(words: list[str]) -> int:
    """Run the command named by the words after `headrace` and return its exit status. Raises what the command raises."""
    if words and not words[0].startswith("-"):
        # Imported here because the list of all commands does not need the completion table.
        from headrace_cli.completion.synonyms import canonical
        from headrace_cli.completion.table import read_table

        words = canonical(read_table(), words)
    first = next((word for word in words if not word.startswith("-")), "")
    named = first in COMMANDS
    if named:
        _check_system(words)
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
