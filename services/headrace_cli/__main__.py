"""The command `headrace`. What a command needs is imported only when it is that command: a person waits for every import."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final

from cyclopts import App, CycloptsError, Parameter

from headrace.errors import BadInput, HeadraceError
from headrace.obs.logging import configure
from headrace_cli.exit_statuses import EXIT_HELP, Exit

_STDERR: Final = 2
#: Each command: where it is, and the line about it in the list of all, which its own module begins with too.
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
        "Compute the shares of a tree of pools and operations that stands in a file. Asks no server, changes nothing.",
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


def complete(shell: str, /, *words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Print what can stand at the cursor. Asked by the scripts of `headrace completion`."""
    from headrace_cli.commands.completion import answer

    answer(app, shell, words)


def _app(*, listing: bool) -> App:
    """All commands. For the list of them they come with a line each, which would stand in place of a command's own help."""
    made = App(
        name="headrace",
        help="Share hosts between teams: pools own guarantees and weights, operations run their jobs in pools.",
        help_epilogue=EXIT_HELP,
        version=_version,
        default_parameter=Parameter(negative=()),
    )
    for name, (place, summary) in COMMANDS.items():
        made.command(place, name=name, help=summary if listing else None)
    made.command(version)
    made.command(complete, show=False)
    return made


app = _app(listing=False)


def _open_streams() -> None:
    """Opens the streams that our caller has closed, so that no connection takes their place."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(opened)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w")


def _check_words() -> None:
    for word in sys.argv[1:]:
        if not word.isascii() and word != word.encode(errors="replace").decode():
            raise BadInput("command line", word, "words in UTF-8")


def main() -> None:
    """Runs the command line, and ends the process with an exit status of `headrace_cli.exit_statuses`."""
    _open_streams()
    configure("cli", "error")
    try:
        _check_words()
        first = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        status = (app if first in COMMANDS else _app(listing=True))(exit_on_error=False)
    except CycloptsError:
        sys.exit(Exit.USAGE)  # it has said what is wrong
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does.
        sys.stderr.close()
        sys.exit(Exit.DONE)
    except (HeadraceError, OSError, BaseExceptionGroup) as error:
        from headrace_cli.session import complain

        sys.exit(complain(error))
    sys.exit(status if isinstance(status, int) else Exit.DONE)


if __name__ == "__main__":
    main()
