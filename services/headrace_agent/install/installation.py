"""Installs and removes the systemd units of a node. Repeating either of them changes nothing."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import BadInput
from headrace.systemd.systemctl import is_outdated, is_true, systemctl
from headrace.systemd.unit_files import (
    CannotInstall,
    check_reach,
    check_root,
    check_unit_folder,
    give,
    installed_text,
    write_unit,
)
from headrace.systemd.unit_text import SystemdUnit
from headrace.wire.nodes import StopMode
from headrace_agent.host.account_mapping import AGENT, SAME, UsersSetting, parse_accounts
from headrace_agent.host.state_folder import FolderHolder, claim
from headrace_agent.install import units
from headrace_agent.runner.host.accounts import account_named
from headrace_agent.settings import AgentSettings
from headrace_agent.to_runner.process import runner_command

#: The kinds of processes that hold a lock on a state folder, each with the function that returns the name of the process's unit.
_HOLDERS: Final[dict[FolderHolder, Callable[[str], str]]] = {
    "agent": units.agent_unit_name,
    "runner": units.runner_unit_name,
}


class InstallLocation(msgspec.Struct, frozen=True):
    """The folder of the systemd units, and the account that the agent and the runner run as; empty: root."""

    unit_folder: Path
    account: str = ""


def units_of(settings: AgentSettings, config: Path, account: str) -> list[SystemdUnit]:
    """Return the units of a node's runner and agent. Raises `BadInput`."""
    node, waits = settings.node_name(), settings.stop_mode is StopMode.WAIT
    cgroup = settings.cgroup or units.cgroup_of(units.runner_unit_name(node))
    of_runner = runner_command(msgspec.structs.replace(settings, cgroup=cgroup))
    of_agent = [sys.executable, "-m", "headrace_agent", "--config", str(config)]
    return [
        units.runner_unit(node, of_runner, account),
        units.agent_unit(node, of_agent, account, None if waits else settings.stop_timeout_ms),
    ]


def check(place: InstallLocation, users: UsersSetting, users_place: str, folder: Path) -> None:
    """Check in advance whether the units can be installed and run. Raises `CannotInstall`, `NoSystemd`, `BadInput`."""
    check_root("install")
    if place.account:
        if users:
            raise BadInput.because(
                users_place, f"accounts of users cannot be combined with `--account`: all jobs run as {place.account}"
            )
        check_reach(account_named(place.account).name, folder)
    elif not users:
        fault = f"no account for jobs is named. Use `{SAME}`, PERSON=ACCOUNT,… or `{AGENT}`, or `--account NAME` for the agent and its jobs"
        raise BadInput.because(users_place, fault)
    else:
        parse_accounts(users)
    check_unit_folder(place.unit_folder)


def install(settings: AgentSettings, config: Path, place: InstallLocation, *, restart: bool) -> Iterator[str]:
    """Install the units and start the agent. Yield lines that say what was done, and a diff before a unit file is replaced.

    Raises the errors of `check`, `StateInUse` if an agent or runner that no unit started uses the state folder, and OSError.
    """
    if not settings.state_folder:
        raise BadInput.because(
            f"{config}: [agent] state_folder",
            "the setting is missing. Name a folder for the state of the node: a service of systemd has no home folder",
        )
    state = Path(settings.state())
    check(place, settings.users, f"{config}: [agent] users", state)
    runner, agent = wanted = units_of(settings, config, place.account)
    runs = is_true("is-active", agent.name)
    # Refuse if an agent or a runner that was started without its unit holds the lock of the state folder: the unit's process could not use
    # the folder then. The jobs of such a runner would also be outside of the cgroup of the unit.
    for holder, unit_name in _HOLDERS.items():
        if not is_true("is-active", unit_name(settings.node_name())):
            # The folder may belong to any account now: the administrator asked for the installation, and `own_folder` gives the folder to
            # the right account.
            os.close(claim(str(state), holder, state.stat().st_uid if state.exists() else None))
    # The unit files are compared even if the agent runs already: an earlier run may have been interrupted when it had written only some of
    # the files.
    changed = {
        unit.name
        for unit in wanted
        if installed_text(place.unit_folder, unit.name) != unit.text or is_outdated(unit.name)
    }
    owned = own_folder(state, place.account)
    if owned:
        yield f"{state} now belongs to {place.account or 'root'}, and no other account can read it"
    for unit in wanted:
        if unit.name in changed:
            yield from write_unit(place.unit_folder, unit)
    if changed:
        systemctl("daemon-reload")
    if not is_true("is-enabled", agent.name):
        systemctl("enable", agent.name)
        changed.add(agent.name)
    if not runs:
        systemctl("start", agent.name)
        yield f"{agent.name} is enabled and started"
    elif restart or agent.name in changed:
        systemctl("restart", agent.name)
        yield f"{agent.name} is restarted; its jobs keep running"
    elif not changed and not owned:
        yield f"{agent.name} is installed and runs: nothing to change"
    if runs and runner.name in changed:
        yield f"{runner.name} keeps running from its former unit: `systemctl restart {runner.name}` ends its jobs"


def uninstall(node: str, place: InstallLocation) -> Iterator[str]:
    """Stop the agent, the runner and the jobs of a node, and remove the units. Raises `CannotInstall`, `NoSystemd`, OSError."""
    agent, runner = units.agent_unit_name(node), units.runner_unit_name(node)
    # Only the units that still exist are stopped. An earlier run may have been interrupted after it removed one unit, and systemd refuses
    # to stop a unit that it does not know.
    there = [name for name in (agent, runner) if (place.unit_folder / name).exists()]
    if not there:
        yield f"no unit of node {node} is in {place.unit_folder}: nothing to change"
        return
    check_root("remove")
    # The agent is stopped first: it interrupts the jobs, reports their ends, and ends the runner.
    for name in there:
        systemctl("stop", name)
    if agent in there:
        systemctl("disable", agent)
    for name in there:
        (place.unit_folder / name).unlink()
        yield f"{place.unit_folder / name} is removed"
    systemctl("daemon-reload")
    yield f"its state folder stays, and the node stays in the cluster until `headrace node remove {node}`"


def own_folder(state: Path, account: str) -> int:
    """Give the state folder and its files to the account that runs the agent, and close the folder to other accounts.

    Return the number of changes: files and folders that had another owner, plus one if the state folder was open to other accounts. Raises
    `CannotInstall`.
    """
    uid, gid = (found := pwd.getpwnam(account) if account else pwd.getpwuid(0)).pw_uid, found.pw_gid
    paths = [state, *state.iterdir()]
    for path in paths[1:]:
        if path.is_dir() and path.lstat().st_uid != uid:
            raise CannotInstall(
                f"{path} belongs to an agent that ran as another account: join with a new token, into another folder"
            )
    strange = [path for path in paths if path.lstat().st_uid != uid]
    for path in strange:
        give(path, uid, gid)
    is_open = bool(state.stat().st_mode & 0o077)
    if is_open:
        state.chmod(0o700)
    return len(strange) + is_open
