"""Rows as `squeue`, `sacct`, `sinfo` and `scontrol` print them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from headrace.errors import BadInput
from headrace.suggestions import near
from headrace_cli.show.screen import one_harmless_line
from headrace_cli.slurm.fields import SACCT, SHOW_JOB, SQUEUE_LETTERS, SQUEUE_NAMES, VALUES, Column
from headrace_cli.slurm.jobs import Job

T = TypeVar("T")
_SPEC: Final = re.compile(r"%(\.?)(\d*)([A-Za-z%])")
_USUAL_WIDTH: Final = 20


class Part(NamedTuple, Generic[T]):
    """A field in a format, or the text between two fields."""

    text: str
    title: str = ""
    value: Callable[[T], str] | None = None
    width: int = 0
    is_right: bool = False

    def fitted(self, text: str) -> str:
        """Return the text, cut or padded to `width` characters. If `width` is 0, return the whole text."""
        if not self.width:
            return text
        return text[: self.width].rjust(self.width) if self.is_right else text[: self.width].ljust(self.width)


def parse_letters(text: str, letters: Mapping[str, tuple[str, Callable[[T], str]]], place: str) -> list[Part[T]]:
    """Read a format such as `%.18i %j`. `letters` has a title and a value for each letter. Raises `BadInput`."""
    parts, end = list[Part[T]](), 0
    for found in _SPEC.finditer(text):
        parts.append(Part(text[end : found.start()]))
        end = found.end()
        right, width, letter = found.groups()
        if letter == "%":
            parts.append(Part("%"))
        elif letter in letters:
            title, value = letters[letter]
            parts.append(Part("", title, value, int(width or 0), bool(right)))
        else:
            raise BadInput(place, f"%{letter}", f"one of {', '.join(f'%{each}' for each in letters)}")
    return [*parts, Part(text[end:])]


def squeue_letters(now_ms: int) -> dict[str, tuple[str, Callable[[Job], str]]]:
    """Return the letters of `squeue --format`."""
    return {letter: (title, _at(VALUES[name], now_ms)) for letter, (title, name) in SQUEUE_LETTERS.items()}


def _at(value: Callable[[Job, int], str], now_ms: int) -> Callable[[Job], str]:
    return lambda job: value(job, now_ms)


def parse_names(text: str, now_ms: int, place: str) -> list[Part[Job]]:
    """Read a format of names such as `jobid:12,state`, for `squeue --Format`. Raises `BadInput`."""
    letters, parts = squeue_letters(now_ms), list[Part[Job]]()
    for word in filter(None, text.split(",")):
        name, _, width = word.partition(":")
        right, digits = width.startswith("."), width.lstrip(".")
        letter = SQUEUE_NAMES.get(name.strip().lower())
        if letter is None or not (digits.isdecimal() or not digits):
            raise BadInput(place, word, f"names such as jobid:12, out of {', '.join(SQUEUE_NAMES)}")
        title, value = letters[letter]
        parts.append(Part("", title, value, int(digits or _USUAL_WIDTH), right))
    return parts


def rows(parts: Sequence[Part[T]], items: Iterable[T], *, header: bool) -> Iterator[str]:
    """Yield the lines of a table, with a line of titles first if `header` is true."""
    if header:
        yield "".join(part.text or part.fitted(part.title) for part in parts).rstrip()
    for item in items:
        yield "".join(
            part.text if part.value is None else part.fitted(one_harmless_line(part.value(item))) for part in parts
        ).rstrip()


class SacctColumn(NamedTuple):
    """A column of `sacct`, and its width: negative for text on the left."""

    column: Column
    width: int


def parse_sacct(text: str) -> list[SacctColumn]:
    """Read a format such as `JobID%20,State`. Raises `BadInput`, whose message suggests names that are similar to an unknown name."""
    found = []
    for word in filter(None, (each.strip() for each in text.split(","))):
        name, _, width = word.partition("%")
        column = SACCT.get(name.lower())
        if column is None:
            hint = near(name.lower(), SACCT)
            known = ", ".join(each.title for each in SACCT.values())
            raise BadInput("--format", name, f"did you mean {SACCT[hint[0]].title}?" if hint else f"one of {known}")
        if not re.fullmatch(r"-?\d*", width):
            raise BadInput("--format", word, "a width such as JobName%30")
        found.append(SacctColumn(column, int(width) if width not in ("", "-") else column.width))
    return found


def sacct_rows(
    columns: Sequence[SacctColumn],
    jobs: Iterable[Job],
    now_ms: int,
    *,
    header: bool,
    delimiter: str = "",
    ends_with_delimiter: bool = False,
    steps: bool = False,
) -> Iterator[str]:
    """Yield the lines of `sacct`. With a `delimiter` the values are not padded. With `steps` each job has a line for its batch step."""
    last = delimiter if ends_with_delimiter else ""
    if header:
        titles = [each.column.title for each in columns]
        if delimiter:
            yield delimiter.join(titles) + last
        else:
            yield " ".join(_fitted(title, each.width) for title, each in zip(titles, columns, strict=True)) + " "
            yield " ".join("-" * abs(each.width) for each in columns) + " "
    for job in jobs:
        values = [one_harmless_line(each.column.value(job, now_ms)) for each in columns]
        lines = [values]
        if steps and job.started_ms:
            lines.append([_of_step(each.column, value) for each, value in zip(columns, values, strict=True)])
        for line in lines:
            if delimiter:
                yield delimiter.join(line) + last
            else:
                yield " ".join(_fitted(value, each.width) for value, each in zip(line, columns, strict=True)) + " "


#: Fields that Slurm leaves empty for steps.
_NOT_OF_STEPS: Final = frozenset(
    {"User", "Partition", "QOS", "Timelimit", "TimelimitRaw", "Reason", "Priority", "WorkDir"}
)


def _of_step(column: Column, value: str) -> str:
    if column.title in ("JobID", "JobIDRaw"):
        return f"{value}.batch"
    if column.title == "JobName":
        return "batch"
    return "" if column.title in _NOT_OF_STEPS else value


def _fitted(value: str, width: int) -> str:
    size = abs(width)
    if len(value) > size:
        value = value[: size - 1] + "+"
    return value.ljust(size) if width < 0 else value.rjust(size)


def show_job(job: Job, now_ms: int, *, one_line: bool) -> str:
    """Return the text of `scontrol show job`."""
    array = "" if job.view.spec.indexes == "" else f" ArrayJobId={job.number} ArrayTaskId={VALUES['task'](job, now_ms)}"
    lines = []
    for nth, fields in enumerate(SHOW_JOB):
        line = " ".join(f"{title}={one_harmless_line(value(job, now_ms))}" for title, value in fields)
        lines.append(line.replace(" JobName=", f"{array} JobName=", 1) if nth == 0 else line)
    return (" " if one_line else "\n   ").join(lines)
