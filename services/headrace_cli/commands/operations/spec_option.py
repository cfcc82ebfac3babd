"""The option `--spec` of `run`, and the names of options in errors. Only a command with `--spec` imports the reader of files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from headrace.client.run_options import RunOptions, named_keywords
from headrace.errors import BadInput

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


@contextmanager
def named_keys(file: OperationFile | None) -> Iterator[None]:
    """Raise an `UnusableFile` with line and key in place of each `BadInput` that the block raises about a value of the file."""
    if file is None:
        yield
        return
    with file.named_keys():
        yield


#: Options of `run` whose keyword has another name.
KEYWORDS: Final = {"env": "environment", "cwd": "working_directory", "each_line": "lines"}
#: Options of `run` that are not part of the operation spec.
NO_KEYWORDS: Final = frozenset({"upload", "spec", "id"})
_OPTIONS: Final = {keyword: f"--{option.replace('_', '-')}" for option, keyword in KEYWORDS.items()} | {
    "argv": "command"
}


@contextmanager
def named_options() -> Iterator[None]:
    """Replace the name of a field or a keyword by the name of its option in every `BadInput` that the block raises."""
    try:
        with named_keywords():
            yield
    except BadInput as error:
        # A place may have more words after the keyword, such as `pool_tree gpu: weight`.
        keyword, blank, rest = error.place.partition(" ")
        option = _OPTIONS.get(keyword, keyword)
        if keyword in RunOptions.__optional_keys__ and keyword not in _OPTIONS:
            option = f"--{keyword.replace('_', '-')}"
        raise error.at(option + blank + rest) from None
