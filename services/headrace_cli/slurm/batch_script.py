"""Batch scripts: the options in their `#SBATCH` lines, and those in variables such as `SBATCH_PARTITION`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.errors import BadInput
from headrace_cli.slurm.command_line import Given, Takes
from headrace_cli.slurm.options import SBATCH

_MARK: Final = "#SBATCH"
#: Options whose variable has another name than the option, by the variable without `SBATCH_`.
_RENAMED: Final = {"TIMELIMIT": "time", "ARRAY_INX": "array", "MEM_PER_NODE": "mem", "NUM_TASKS": "ntasks"}
#: Options that no variable sets. Otherwise a job that submits another job would pass these options on to it in its environment.
_NOT_BY_VARIABLES: Final = frozenset({"wrap", "parsable", "array"})


class BatchScript(NamedTuple):
    """A script that `sbatch` submits."""

    #: Name of the script's file; `wrap` for a script of `--wrap`; `sbatch` for a script from stdin.
    name: str
    body: bytes


def wrapped(command: str) -> BatchScript:
    """Return the script of `sbatch --wrap`."""
    return BatchScript("wrap", f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n".encode())


def check_script(script: BatchScript) -> None:
    """Raise `BadInput` for a file that no host could run."""
    if not script.body.startswith(b"#!"):
        first = script.body.partition(b"\n")[0][:60].decode(errors="replace")
        raise BadInput(
            script.name, first, "a batch script whose first line is `#!` and an interpreter, such as #!/bin/bash"
        )
    if b"\r\n" in script.body:
        raise BadInput.because(script.name, "the lines end with \\r\\n. Run dos2unix on the script")


def options_in_script(script: BatchScript) -> Given:
    """Return the options of the `#SBATCH` lines before the first command of a script. Raises `BadInput`, `NoCounterpart`."""
    found = Given()
    for number, line in enumerate(script.body.decode(errors="replace").splitlines(), 1):
        if line.startswith(_MARK) and line[len(_MARK) :][:1] in (" ", "\t"):
            where = f"line {number} of {script.name}: "
            try:
                words = shlex.split(line[len(_MARK) :], comments=True)
            except ValueError as error:
                raise BadInput(where.rstrip(": "), line, f"quotes in pairs ({error})") from None
            given = SBATCH.read(words, where)
            if given.words:
                raise BadInput(where.rstrip(": "), given.words[0], "options only, such as #SBATCH --time=1:00:00")
            found = given.over(found)
        elif line.strip() and not line.startswith("#"):
            break
    return found


def options_in_environment(environment: Mapping[str, str]) -> Given:
    """Return the options that variables such as `SBATCH_PARTITION` set. Raises `NoCounterpart`."""
    found = Given()
    for variable, value in environment.items():
        if variable.startswith("SBATCH_"):
            word = variable.removeprefix("SBATCH_")
            name = _RENAMED.get(word, word.lower().replace("_", "-"))
            option = SBATCH.by_name.get(name)
            if option is not None and name not in _NOT_BY_VARIABLES and (value or option.takes is Takes.NOTHING):
                SBATCH.note(name, value, found, variable)
    return found
