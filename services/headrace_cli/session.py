"""The frame of every command: connect a client, run the command, and turn an error into one line and an exit status."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import anyio
from cyclopts import Parameter
from rich.text import Text

from headrace.client import Client, NotAdmitted, NotRunning, NotTrusted, NotYours, Refused, Unanswered, connect
from headrace.client.asking import PATIENCE_S
from headrace.errors import BadInput, HeadraceError, first_error
from headrace.installation.extras import MissingExtra
from headrace.installation.systems import NeedsLinux
from headrace.pools import Defects
from headrace.runtime.readiness import Readiness
from headrace.systemd.notifier import notifier_of
from headrace.tree_file.problems import UnusableFile
from headrace.wire.pool_changes import PoolPlan
from headrace.wire.what_if import WhatIfAnswer
from headrace_cli.exit_statuses import Exit
from headrace_cli.show.configuration_changes import show_plan
from headrace_cli.show.screen import Screen

_SHORTEST_INTERVAL_S: Final = 0.1
_LONGEST_INTERVAL_S: Final = 86_400

#: A flag without a negative form. Help does not show its default, which is always off.
Switch = Annotated[bool, Parameter(negative=(), show_default=False)]


Json = Annotated[bool, Parameter(name=["--json", "-j"], negative=(), show_default=False)]
#: The option that names the pool of operations.
PoolOption = Annotated[str | None, Parameter(name=["--pool", "-p"])]


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
    """Options of every command that sends requests to a running Headrace."""

    state: Path | None = None
    """State folder of `headrace up`. Default: `$HEADRACE_STATE`, else the login, else `~/.local/state/headrace`."""
    json: Json = False
    """Print the answer as JSON (cores in `cpu`, bytes in `memory`)."""


@Parameter(name="*")
@dataclass(frozen=True)
class InTree(Common):
    """Options of every command that works in one tree."""

    tree: str = ""
    """The tree. Default: `$HEADRACE_TREE`, else the first tree that is served."""


@Parameter(name="*")
@dataclass(frozen=True)
class Watching:
    """Options of every list."""

    watch: Annotated[Switch, Parameter(name="--watch")] = False
    """Repeat the output until Ctrl-C. With `--json` each document is one line."""
    interval: float = 1.0
    """Seconds between two updates of `--watch`."""
    wide: Switch = False
    """Print each row in full, however narrow the terminal is."""


def own_readiness() -> Readiness:
    """Return the `Readiness` that reports to systemd, if systemd runs this process; else it reports nothing."""
    return Readiness(notifier_of(os.environ, os.getpid(), time.monotonic))


def checked_interval_s(interval_s: float) -> float:
    """Return the value of `--interval`, in seconds. Raises `BadInput` if it is outside 0.1 to 86,400."""
    if not _SHORTEST_INTERVAL_S <= interval_s <= _LONGEST_INTERVAL_S:
        raise BadInput(
            "--interval", interval_s, f"a number of seconds from {_SHORTEST_INTERVAL_S} to {_LONGEST_INTERVAL_S}"
        )
    return interval_s


def talk(
    common: Common | None,
    work: Callable[[Client, Screen], Awaitable[int | None]],
    *,
    watching: Watching | None = None,
    tells_silence: bool = True,
    bears_restarts: bool = False,
    readiness: Readiness | None = None,
) -> int:
    """Run `work` with a connected client and return its exit status, or 0. Raises what `connect` and `work` raise.

    A named tree that does not exist is refused before `work` runs. With `--watch` (in `watching`), `work` runs again and again. With
    `tells_silence`, a line below the output names each service that did not answer, unless `work` failed because of it. Set
    `bears_restarts` for work that changes something or waits: a service that is down is then tried for 10 s instead of 2 s.
    Give `readiness` for work that systemd may run for ever: systemd then gets signs of life, and `work` must report when it is ready.
    """
    common, readiness = common or Common(), readiness or Readiness()
    screen = Screen(json=common.json)
    if watching is not None and watching.wide:
        screen.widen()
    tree = common.tree if isinstance(common, InTree) else ""
    interval_s = checked_interval_s(watching.interval) if watching is not None else 0.0

    async def run() -> int:
        readiness.waits("waits for the server")
        async with readiness.kept_alive(), connect(state=common.state, tree=tree, patience_s=PATIENCE_S) as client:
            client.silence.bears_restarts = bears_restarts
            if tree:
                with suppress(Unanswered):  # other services may know what the command needs
                    await client.trees.list(tree)

            async def show_once(shown: Screen) -> int | None:
                status = await work(client, shown)
                for words in client.silence.words() if tells_silence else []:
                    shown.say(words, style="yellow")
                return status

            if watching is not None and watching.watch:
                from headrace_cli.live.watching import watch

                await watch(screen, show_once, interval_s)
                return Exit.DONE
            return await show_once(screen) or Exit.DONE

    return anyio.run(run)


def change(
    common: Common | None,
    ask: Callable[[Client], Awaitable[PoolPlan | WhatIfAnswer]],
    done: str,
    *,
    whole: bool = False,
) -> int:
    """Request a change of configuration, or ask what it would do, print the resulting plan, and return the exit status.

    Raises what `talk` raises.
    """

    async def work(client: Client, screen: Screen) -> int:
        answer = await ask(client)
        if isinstance(answer, PoolPlan):
            from headrace_cli.show.unknown_groups import with_unknown_groups

            answer = await with_unknown_groups(client, answer)
            return Exit.DONE if show_plan(screen, answer, done, whole=whole) else Exit.REFUSED
        from headrace_cli.commands.plans.what_if import show_what_if

        return Exit.DONE if show_what_if(screen, answer) else Exit.REFUSED

    return talk(common, work, bears_restarts=True)


def confirmed(question: str) -> bool:
    """Ask on the terminal whether to go on. True only if the answer is yes; False without a terminal."""
    screen = Screen()
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        screen.say(f"{question} Nothing was changed: add --yes to confirm.", style="red")
        return False
    screen.err.print(Text(f"{question} Continue? [y/N] "), end="")
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    screen.say("nothing was changed", style="red")
    return False


def complain(error: BaseException) -> int:
    """Print what went wrong and return the exit status. Any error that the user cannot act on is raised again."""
    cause = first_error(error)
    status = exit_of(cause)
    if status is None:
        raise error
    Screen().say(str(cause), style="red")
    return status


def exit_of(error: BaseException) -> int | None:
    """Return the exit status for an error that the user can act on, else None."""
    from headrace.systemd.systemctl import NoSystemd
    from headrace.systemd.unit_files import CannotInstall
    from headrace_cli.up.state_folder import InUse

    match error:
        case NotRunning() | Unanswered():
            return Exit.NOT_RUNNING
        case (
            Refused()
            | InUse()
            | NotAdmitted()
            | NotTrusted()
            | NotYours()
            | MissingExtra()
            | NeedsLinux()
            | CannotInstall()
            | NoSystemd()
        ):
            return Exit.REFUSED
        case BadInput() | Defects() | UnusableFile():
            return Exit.USAGE
        case HeadraceError() | OSError():
            return Exit.FAILED
        case _:
            return None
