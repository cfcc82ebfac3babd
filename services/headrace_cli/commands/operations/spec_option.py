"""The option `--spec` of `run`, and the names of options in errors. Only a command with `--spec` imports the reader of files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

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
    """Turn each `BadInput` of the block about a value of the file into an `UnusableFile` with line and key."""
    if file is None:
        yield
        return
    with file.named_keys():
        yield


#: The option for each field of a start request, for error messages.
_OPTIONS: Final = {
    "keep_going": "--keep-going",
    "no_retry_on": "--no-retry-on",
    "retry_on": "--retry-on",
    "spec.after": "--after",
    "spec.after_each": "--after-each",
    "spec.argv": "command",
    "spec.environment": "--env",
    "spec.image": "--image",
    "spec.indexes": "--indexes",
    "spec.job_count": "--jobs",
    "spec.lines": "--each-line",
    "spec.max_failed_job_count": "--max-failed-job-count",
    "spec.no_retry_on": "--no-retry-on",
    "spec.pool_trees": "--pool-tree",
    "spec.resources.gpu": "--gpu",
    "spec.resource_limits.gpu": "--max-gpu",
    "spec.retry_on": "--retry-on",
    "spec.scheduling_tag_filter": "--node-filter",
    "spec.title": "--title",
    "spec.tries": "--tries",
    "spec.weight": "--weight",
    "spec.working_directory": "--cwd",
}


@contextmanager
def named_options() -> Iterator[None]:
    """Replace the name of a field by the name of its option in every `BadInput` that the block raises."""
    try:
        yield
    except BadInput as error:
        raise BadInput(_OPTIONS.get(error.place, error.place), error.value, error.expected) from None
