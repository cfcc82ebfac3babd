"""The commands of Slurm: `python -m headrace_cli.slurm COMMAND ...`. The files of `headrace slurm install` call it."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from headrace.client import Client, NotRunning, Unanswered, connect
from headrace.errors import HeadraceError, first_error
from headrace.files.standard_streams import open_streams
from headrace_cli.exit_statuses import Exit, end_without_reader
from headrace_cli.slurm import accounts, control, query, submit
from headrace_cli.slurm.command_line import Given, Table
from headrace_cli.slurm.options import SACCT, SACCTMGR, SBATCH, SCANCEL, SCONTROL, SINFO, SQUEUE, SRUN
from headrace_cli.slurm.steps import is_in_job, run_step
from headrace_cli.slurm.submit import say

#: The commands, each with its options and its function.
COMMANDS: Final[Mapping[str, tuple[Table, Callable[[Client, Given], Awaitable[int]]]]] = {
    "sbatch": (SBATCH, submit.sbatch),
    "srun": (SRUN, submit.srun),
    "squeue": (SQUEUE, query.squeue),
    "scancel": (SCANCEL, control.scancel),
    "sacct": (SACCT, query.sacct),
    "sinfo": (SINFO, control.sinfo),
    "scontrol": (SCONTROL, control.scontrol),
    "sacctmgr": (SACCTMGR, accounts.sacctmgr),
}
_HELP: Final = """{command} of Headrace: docs/how-to/slurm-commands.md describes it.
Options that have their effect: {ours}
Options that are ignored: {ignored}
Options that are refused: {refused}"""


def help_of(command: str) -> str:
    """Return the help of a command: what becomes of each option."""
    every = COMMANDS[command][0].by_name.values()
    kinds = {
        "ours": [each for each in every if not each.ignored and not each.refusal],
        "ignored": [each for each in every if each.ignored],
        "refused": [each for each in every if each.refusal],
    }
    return _HELP.format(
        command=command, **{kind: " ".join(f"--{each.name}" for each in found) for kind, found in kinds.items()}
    )


def run(command: str, words: list[str]) -> int:
    """Run one command and return its exit status. Raises what the command raises."""
    if words[:1] in (["--version"], ["-V"]):
        print(control.VERSION)
        return 0
    if words[:1] in (["--help"], ["--usage"]):
        print(help_of(command))
        return 0
    table, work = COMMANDS[command]
    given = table.read(words)
    if command == "srun" and is_in_job(os.environ):
        return run_step(given)

    async def talk() -> int:
        async with connect() as client:
            client.silence.bears_restarts = True
            return await work(client, given)

    return anyio.run(talk)


def _text(cause: HeadraceError | OSError) -> str:
    """Return the message of an error. The message about a file begins with the name of the file."""
    if isinstance(cause, OSError) and cause.filename is not None:
        return f"{cause.filename}: {cause.strerror}"
    return str(cause)


def main(words: list[str]) -> None:
    """Run the command that the first word names, and end the process. Errors are written as Slurm writes them."""
    # No garbage is collected, as in the command `headrace`: a short process ends before there is garbage worth collecting.
    gc.disable()
    open_streams()
    atexit.register(gc.freeze)
    command, *words = words or [""]
    if command not in COMMANDS:
        say("headrace slurm", f"{command!r} is not one of the commands of Slurm: {', '.join(COMMANDS)}")
        sys.exit(Exit.USAGE)
    try:
        status = run(command, words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except (HeadraceError, OSError, BaseExceptionGroup) as error:
        cause = first_error(error)
        if isinstance(cause, BrokenPipeError):
            end_without_reader()
        if not isinstance(cause, HeadraceError | OSError):
            raise
        gone = "Unable to contact slurm controller: " if isinstance(cause, NotRunning | Unanswered) else ""
        say(command, f"error: {gone}{_text(cause)}")
        sys.exit(1)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
