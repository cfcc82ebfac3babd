"""The formats of recorded workloads: choose the reader of a file by its name and its first line. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from headrace.errors import BadInput
from headrace.suggestions import hint
from headrace_simulator.workloads.columns import shown
from headrace_simulator.workloads.openb import read_openb_pods
from headrace_simulator.workloads.sacct import read_sacct
from headrace_simulator.workloads.swf import read_swf
from headrace_simulator.workloads.table import read_table
from headrace_simulator.workloads.workload import Workload
from headrace_simulator.workloads.yarn import read_yarn

_READERS: Final[dict[str, Callable[[Iterable[str]], Workload]]] = {
    "swf": read_swf,
    "sacct": read_sacct,
    "yarn": read_yarn,
    "openb": read_openb_pods,
    "table": read_table,
}
FORMATS: Final = tuple(_READERS)
AUTO: Final = "auto"
_BY_SUFFIX: Final = {".swf": "swf", ".json": "yarn"}
_SWF_FIELDS: Final = 18
#: Number of blank lines before the first line with text, above which no format is recognized.
_MOST_BLANK: Final = 1_000


def read_workload(name: str, lines: Iterable[str], format: str = AUTO) -> Workload:
    """Return the jobs of a file. `name` is its name, which errors show, and `format` is `auto` or one of `FORMATS`.

    Raises `BadInput` if the format is unknown or cannot be recognized, or if the file is not in the format.
    """
    if format != AUTO and format not in FORMATS:
        raise BadInput("format", format, hint(format, (AUTO, *FORMATS)))
    if format == AUTO:
        rest, seen, first = iter(lines), list[str](), ""
        for line in rest:
            seen.append(line)
            first = line.lstrip("\ufeff").strip()
            if first or len(seen) > _MOST_BLANK:
                break
        format, lines = _recognized(name, first), chain(seen, rest)
    try:
        return _READERS[format](lines)
    except BadInput as error:
        raise error.at(f"{name} ({error.place})") from None


def _recognized(name: str, first: str) -> str:
    """Return the format of a file by its name and its first line with text. Raises `BadInput`."""
    low = name.lower().removesuffix(".gz")
    by_suffix = next((found for suffix, found in _BY_SUFFIX.items() if low.endswith(suffix)), "")
    columns = {column.strip(' "') for column in first.lower().split(",")}
    numbers = first.split()
    if by_suffix:
        return by_suffix
    if first.startswith(("{", "[")):
        return "yarn"
    if first.startswith(";") or (len(numbers) == _SWF_FIELDS and all(map(_is_number, numbers))):
        return "swf"
    if "|" in first:
        return "sacct"
    if "cpu_milli" in columns:
        return "openb"
    if {"submit", "run"} <= columns:
        return "table"
    found = f"the first line is {shown(first)}" if first else "the file has no lines"
    raise BadInput.because(
        name, f"the format cannot be recognized: {found}. Name the format: one of {', '.join(FORMATS)}"
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
