"""The commands `headrace agent …`: make this host a node."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, NoReturn

from cyclopts import App, Parameter

from headrace.client.place import state_folder
from headrace.errors import BadInput
from headrace.files.bounded import SMALL_FILE_BYTES, read_bounded
from headrace.ids import node_name
from headrace_cli.agent.joining import SETTINGS_FILE, join_host
from headrace_cli.agent.token import read_token
from headrace_cli.exit_statuses import Exit
from headrace_cli.session import Switch
from headrace_cli.show.screen import Screen

app = App(name="agent", help="Make this host a node.")

#: Parent folder of the state folders of nodes whose agents run under systemd.
_INSTALLED_STATE: Final = Path("/var/lib/headrace")


@Parameter(name="*")
@dataclass(frozen=True)
class Units:
    """Options of commands that write systemd units."""

    account: str = ""
    """Account of the agent and its jobs. Default: the agent runs as root, and its setting `users` chooses the accounts of jobs."""

    unit_folder: Path = Path("/etc/systemd/system")
    """Folder of the units."""

    dry_run: Switch = False
    """Only print the units."""

    def words(self) -> list[str]:
        """Return the options as arguments of `headrace_agent.install`."""
        return ["--account", self.account, "--unit-folder", str(self.unit_folder.absolute())]


@Parameter(name="*")
@dataclass(frozen=True)
class AtOnce(Units):
    """Options for a host that joins and immediately has systemd run its agent."""

    install: Switch = False
    """Have systemd run the agent, now and whenever the host starts."""

    users: str = ""
    """Accounts of jobs, for an agent that runs as root: `same`, PERSON=ACCOUNT pairs separated by commas, or `agent`."""

    def refuse_nonsense(self, *, no_start: bool) -> None:
        """Check that the options can be combined. Raises `BadInput`."""
        if not self.install and self != AtOnce(users=self.users):
            raise BadInput.because("--account, --unit-folder, --dry-run", "these options need --install")
        if self.install and no_start:
            raise BadInput.because("--no-start", "--no-start and --install cannot be combined")


@app.command
def join(
    url: str = "",
    /,
    *,
    token: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    token_file: Path | None = None,
    folder: Path | None = None,
    no_start: Switch = False,
    units: AtOnce | None = None,
) -> int:
    """Make this host a node with a token, and run its agent.

    The token can be used only once. The node's key is made on this host and never leaves it.

    `--token TOKEN` shows the token to everyone who can list processes on this host. `--token -` and `--token-file` do not.

    Examples of use:

        headrace agent join --token-file token

        headrace agent join tls://10.0.0.1:4222 --token -

        headrace agent join --token - --install --users same

    Parameters
    ----------
    url
        Address of the server as seen from this host. Default: the address in the token.
    token
        The token that `headrace node token` printed, or `-` to read it from standard input.
    token_file
        File that contains the token.
    folder
        State folder of the node. Default: `agent-NODE` in the user's state folder, with `--install` in `/var/lib/headrace`.
    no_start
        Print the command that runs the agent, instead of running it.
    """
    units = units or AtOnce()
    units.refuse_nonsense(no_start=no_start)
    read = read_token(_text(token, token_file))
    folder = (folder or (_INSTALLED_STATE if units.install else state_folder()) / f"agent-{read.node}").absolute()
    if units.install and (status := _look_before(read.node, folder, units)):
        return status
    owners = [pwd.getpwnam(units.account).pw_uid] if units.account else []
    joined = join_host(read, url or read.url, folder, units.users, owners)
    screen = Screen()
    screen.say(f"this host is node {joined.node} of tree {joined.tree}")
    if units.install:
        _run_installer("install", "--config", joined.settings, "--restart", *units.words())
    command = [sys.executable, "-m", "headrace_agent", "--config", joined.settings]
    if no_start:
        screen.print_raw(shlex.join(command))
        return Exit.DONE
    sys.stdout.flush()
    os.execv(command[0], command)


@app.command
def install(*, config: Path, units: Units | None = None) -> int:
    """Have systemd run the agent of a host that has joined, now and whenever the host starts.

    Running it again changes nothing. If existing units differ, the differences are printed and the units are replaced.

    Examples of use:

        headrace agent install --config /var/lib/headrace/agent-host-17/settings.toml

    Parameters
    ----------
    config
        Settings that `join` wrote, with `users` under `[agent]` unless there is an `--account`.
    """
    units = units or Units()
    _run_installer("show" if units.dry_run else "install", "--config", str(config.absolute()), *units.words())


@app.command
def uninstall(node: str, /, *, unit_folder: Path = Units.unit_folder) -> int:
    """Stop a node's agent and jobs, and remove the systemd units of the agent. The state folder of the node stays.

    Examples of use:

        headrace agent uninstall host-17

    Parameters
    ----------
    node
        Name of the node.
    unit_folder
        Folder of the units.
    """
    _run_installer("uninstall", "--node", node_name(node), "--unit-folder", str(unit_folder.absolute()))


@app.command
def selftest(*, config: Path | None = None, unit_folder: Path = Units.unit_folder) -> int:
    """Test whether jobs can run on this host: limits, processes left by jobs, accounts, folders. It needs no server.

    For a node under systemd, the tests run in a unit like the runner's, with the drop-ins of the runner's unit. That needs root.

    The exit status is 1 if a test failed.

    Examples of use:

        headrace agent selftest

        headrace agent selftest --config /var/lib/headrace/agent-host-17/settings.toml

    Parameters
    ----------
    config
        Settings file of the agent. Default: settings from the environment, such as `HEADRACE_AGENT_USERS`.
    unit_folder
        Folder of the units.
    """
    options = ["--unit-folder", str(unit_folder.absolute())]
    options += ["--config", str(config.absolute())] if config is not None else []
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "headrace_agent.selftest", *options])


def _look_before(node: str, folder: Path, units: AtOnce) -> int:
    """Check, before the token is used, what would keep the systemd units from running, and return the exit status of the check.

    With `--dry-run`, this process is replaced by a process that prints the units, so the function does not return.
    """
    words = ["--node", node, "--config", str(folder / SETTINGS_FILE), "--users", units.users, *units.words()]
    if units.dry_run:
        _run_installer("show", *words)
    return subprocess.run(_installer("check", *words), check=False).returncode


def _installer(verb: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "headrace_agent.install", verb, *words]


def _run_installer(verb: str, *words: str) -> NoReturn:
    sys.stdout.flush()
    command = _installer(verb, *words)
    os.execv(command[0], command)


def _text(token: str, file: Path | None) -> str:
    if bool(token) == (file is not None):
        raise BadInput.because(
            "--token, --token-file",
            f"{'two tokens are' if token else 'no token is'} given. Use one of --token TOKEN, --token - and --token-file FILE",
        )
    if file is not None:
        return read_bounded(file, SMALL_FILE_BYTES, "--token-file").decode("ascii", errors="replace")
    return sys.stdin.readline(SMALL_FILE_BYTES) if token == "-" else token
