"""`python -m headrace_agent.install`: the part of `headrace agent install`, `join --install` and `uninstall` that is done on this host.

Exit status: 0 done, 2 unusable command line or settings, 4 this host does not allow it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import BadInput, HeadraceError
from headrace.runtime.settings import load
from headrace_agent.install.installation import InstallLocation, check, install, uninstall, units_of
from headrace_agent.settings import AgentSettings


def main() -> None:
    """Do what the command line says, and print what was done."""
    parser = argparse.ArgumentParser(prog="headrace agent install")
    parser.add_argument("verb", choices=["check", "show", "install", "uninstall"])
    parser.add_argument("--node", default="", help="node whose units are removed, or that has no settings yet")
    parser.add_argument("--config", type=Path, help="settings file of the agent (TOML)")
    parser.add_argument("--users", default="", help="setting `users` of an agent that has no settings yet")
    parser.add_argument("--account", default="", help="account of the agent and its jobs; default: root")
    parser.add_argument("--unit-folder", type=Path, default=Path("/etc/systemd/system"))
    parser.add_argument("--restart", action="store_true", help="restart the agent because its settings have changed")
    arguments = parser.parse_args()
    try:
        for line in _lines(arguments):
            print(line, flush=True)
    except BadInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except (HeadraceError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(4)


def _lines(arguments: argparse.Namespace) -> Iterator[str]:
    place = InstallLocation(arguments.unit_folder, arguments.account)
    if arguments.verb == "uninstall":
        yield from uninstall(arguments.node, place)
        return
    config = arguments.config
    if arguments.verb == "check":
        check(place, arguments.users, "--users", config.parent)
        return
    if arguments.node:
        settings = AgentSettings(node=arguments.node, state_folder=str(config.parent), users=arguments.users)
    else:
        # The settings are read without this process's environment variables, because the units do not have these variables.
        settings = load(AgentSettings, "agent", config, {})
    if arguments.verb == "show":
        for unit in units_of(settings, config, place.account):
            yield f"# {place.unit_folder}/{unit.name}\n{unit.text}"
        return
    yield from install(settings, config, place, restart=arguments.restart)


if __name__ == "__main__":
    main()
