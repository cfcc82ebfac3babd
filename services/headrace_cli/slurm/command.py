"""The command `headrace slurm`: install the commands of Slurm."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Final

import msgspec
from cyclopts import App

from headrace.errors import BadInput
from headrace.files.durable import replace_durably
from headrace_cli.session import Json
from headrace_cli.show.screen import Screen

app = App(name="slurm", help="Install commands of Slurm, for tools and scripts that call them.")

COMMANDS: Final = ("sbatch", "srun", "squeue", "scancel", "sacct", "sinfo", "scontrol", "sacctmgr")
_POOLS: Final = "pools.toml"
_TEXT: Final = """#!{python} -EP
# Written by `headrace slurm install`.
import os
import sys

os.environ.setdefault("HEADRACE_SLURM_POOLS", {pools!r})
from headrace_cli.slurm.__main__ import main

main(["{command}", *sys.argv[1:]])
"""
#: File of a command in place of `_TEXT`, if the kernel cannot read the interpreter's path after `#!`. `_TEXT` is better, because it needs
#: no shell: some shells lose functions that bash exported.
_TEXT_OF_SHELL: Final = """#!/bin/sh
# Written by `headrace slurm install`.
HEADRACE_SLURM_POOLS=${{HEADRACE_SLURM_POOLS-{pools}}}
export HEADRACE_SLURM_POOLS
exec {python} -E -P -m headrace_cli.slurm {command} "$@"
"""
#: Longest path after `#!` that every kernel reads, in bytes.
_LONGEST_PATH: Final = 120


def command_text(command: str, python: str, pools: str) -> str:
    """Return the text of a command's file. `python` is the path of the interpreter that runs it, and `pools` that of the file of pools."""
    if len(os.fsencode(python)) > _LONGEST_PATH or any(map(str.isspace, python)):
        return _TEXT_OF_SHELL.format(command=command, python=shlex.quote(python), pools=shlex.quote(pools))
    return _TEXT.format(command=command, python=python, pools=pools)


class Installed(msgspec.Struct):
    """The answer of `install --json`."""

    folder: str
    commands: list[str]


@app.command
def install(folder: Path, /, *, json: Json = False) -> None:
    """Write the files sbatch, srun, squeue, scancel, sacct, sinfo, scontrol and sacctmgr into a folder.

    Put the folder first in the PATH of those who use tools of Slurm, on the hosts where they work and on all nodes, at the same path.
    The file pools.toml in that folder may map partitions, accounts and QOS to pools, tags and trees. It is not overwritten.
    docs/how-to/slurm-commands.md has more.

    Examples of use:

        headrace slurm install ~/slurm

        PATH=~/slurm:$PATH sbatch --wait job.sh

    Parameters
    ----------
    folder
        The folder. It is made if it does not exist. It is refused if every account can write to it.
    json
        Print the answer as JSON.
    """
    folder = Path(os.path.abspath(folder))
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    screen, warning = Screen(json=json), _refuse_unsafe(folder)
    for command in COMMANDS:
        text = command_text(command, sys.executable, str(folder / _POOLS))
        replace_durably(folder / command, text, 0o755)
    answer = Installed(str(folder), [*COMMANDS])
    if warning:
        screen.say(warning)
    screen.show_line(answer, f"{folder}: {', '.join(COMMANDS)}")


def _refuse_unsafe(folder: Path) -> str:
    """Return a warning if a group can replace the commands, which those who have the folder in their PATH run; else an empty text.

    Raises `BadInput` if other accounts can.
    """
    from headrace.executor.job import why_unsafe  # imported here, because other commands do not need it

    status = folder.stat()
    # The path is checked with and without its links, because another account may have made a link or the folder to which it leads.
    why = why_unsafe(str(folder)) or why_unsafe(str(folder.resolve()))
    if not why and status.st_uid not in (0, os.geteuid()):
        why = f"{folder} belongs to account {status.st_uid}"
    if why:
        accepted = (
            "a folder that no other account can write to, because its commands run under the account of their caller"
        )
        raise BadInput("folder", str(folder), f"{accepted} ({why})")
    # Some systems let a group of administrators write to /usr/local/bin, so this is no reason to refuse the folder.
    if status.st_mode & stat.S_IWGRP:
        return f"group {status.st_gid} can write to {folder}: its members can replace the commands"
    return ""
