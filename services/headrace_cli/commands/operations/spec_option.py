"""The option `--spec` of `run`. Only a command with `--spec` imports the reader of files."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from headrace_cli.option_names import named_options

if TYPE_CHECKING:
    from cyclopts import ArgumentCollection

    from headrace_cli.commands.operations.operation_file import OperationFile

OPTION: Final = "--spec"
SpecOption = Annotated[Path | None, Parameter(name=OPTION, allow_leading_hyphen=True)]

#: Files that were read for a command that has not begun yet, by the value of `--spec`. Standard input can be read only once.
_opened: dict[str, OperationFile] = {}


def fill_from_file(arguments: ArgumentCollection) -> None:
    """Fill the arguments of `run` from the file that `--spec` names. Raises `UnusableFile`."""
    path = next((each.tokens[0].value for each in arguments if each.name == OPTION and each.tokens), None)
    if path is not None:
        from headrace_cli.commands.operations.operation_file import OperationFile

        _opened[path] = OperationFile(path)
        _opened[path].fill(arguments)


def opened_file(path: Path | None) -> OperationFile | None:
    """Return the file that `fill_from_file` has read for this value of `--spec`."""
    return None if path is None else _opened.popitem()[1]


def named_as_given(file: OperationFile | None) -> AbstractContextManager[None]:
    """Name the key of the file, else the option of `run`, in every `BadInput` and every refused request of the block."""
    return named_options() if file is None else file.named_keys()
