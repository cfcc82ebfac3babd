"""`python -m headrace_agent.selftest [--config FILE]`: exit status 0 if jobs can run here as the settings say, else 1.

If systemd runs the node of FILE, the selftest is run by `systemd-run`, in a temporary unit like the unit of the node's runner.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import anyio

from headrace.errors import HeadraceError
from headrace.obs.logging import configure
from headrace.runtime.settings import load
from headrace_agent.selftest.in_unit import command_in_unit
from headrace_agent.selftest.trials import try_host
from headrace_agent.settings import AgentSettings


def main() -> None:
    """Run the trials, and print a line for each."""
    parser = argparse.ArgumentParser(
        prog="headrace agent selftest", description="Check whether jobs can run on this host."
    )
    parser.add_argument("--config", type=Path, help="settings file of the agent (TOML)")
    parser.add_argument("--unit-folder", type=Path, default=Path("/etc/systemd/system"))
    arguments = parser.parse_args()
    try:
        settings = load(AgentSettings, "agent", arguments.config, os.environ)
        if arguments.config and (command := command_in_unit(settings, arguments.config, arguments.unit_folder)):
            os.execvp(command[0], command)
        configure("agent", "error")
        verdicts = anyio.run(try_host, settings)
    except (HeadraceError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(2)
    for verdict in verdicts:
        print(f"{'ok    ' if verdict.passed else 'FAILED'}  {verdict.trial}: {verdict.found}")
    sys.exit(0 if all(verdict.passed for verdict in verdicts) else 1)


if __name__ == "__main__":
    main()
