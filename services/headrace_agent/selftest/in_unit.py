"""Runs the selftest of a node that systemd runs. This needs a temporary unit with the same kind of cgroup, limits and account as the
unit of the node's runner.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from headrace.errors import HeadraceError
from headrace.systemd.systemctl import systemctl
from headrace_agent.host import facts
from headrace_agent.install import units
from headrace_agent.settings import AgentSettings

#: Prefixes of unit settings that are not copied into the temporary unit: they say what is run, how often and how long. The other settings
#: say under which account and limits.
_OF_RUNNING: Final = ("Exec", "Type", "NotifyAccess", "Restart", "Timeout", "KillMode", "Watchdog")


class NotRoot(HeadraceError):
    """The selftest needs a temporary unit, and only root can start it."""


def command_in_unit(settings: AgentSettings, config: Path, unit_folder: Path) -> list[str]:
    """Return a command that runs the selftest in a temporary unit with the settings of the node's runner unit.

    The command is empty if the runner's unit is not installed, or if no unit is needed because the settings name a cgroup. Raises
    `NotRoot`, `NoSystemd`.
    """
    node = settings.node_name()
    runner = units.runner_unit_name(node)
    if settings.cgroup or not (unit_folder / runner).exists():
        return []
    if not facts.is_root():
        raise NotRoot(f"{runner} is installed, and only root can run jobs under its limits: try again with `sudo`")
    own = f"headrace-selftest-{node}.service"
    properties = properties_of(systemctl("cat", runner))
    command = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--unit={own}"]
    command += [f"--property={each}" for each in properties]
    command += [f"--setenv=HEADRACE_AGENT_CGROUP={units.cgroup_of(own)}"]
    return [*command, sys.executable, "-m", "headrace_agent.selftest", "--config", str(config)]


def properties_of(text: str) -> list[str]:
    """Return those settings of a unit and its drop-ins that a temporary unit is to have too. `text` is the output of `systemctl cat`."""
    return [line for line in _of_service(_whole(text.splitlines())) if not line.startswith(_OF_RUNNING)]


def _of_service(lines: Iterable[str]) -> Iterator[str]:
    section = ""
    for line in lines:
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line:
            yield line


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without comments. Lines that a backslash continues are joined."""
    begun = ""
    for line in map(str.strip, lines):
        if line.startswith(("#", ";")):
            continue
        begun += line.removesuffix("\\")
        if not line.endswith("\\"):
            yield begun
            begun = ""
