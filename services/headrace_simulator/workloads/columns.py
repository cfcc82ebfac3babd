"""Checks and columns that the readers of workloads share: numbers with bounds, times, and tables of comma-separated values. Pure.

A reader catches `Damaged` and counts the line. The text of the error is one harmless line.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from headrace.durations import LONGEST_MS
from headrace.errors import BadInput
from headrace.resources import LARGEST_AMOUNT, Resources
from headrace.suggestions import some
from headrace.wire.operation_spec import LARGEST_JOB_COUNT

#: Longest part of a foreign text in a message, in characters.
LONGEST_SHOWN: Final = 60
#: Longest line of a job, in characters. A longer line reaches a reader as pieces of this length.
LONGEST_LINE: Final = 2**20
#: Upper bounds of the lines of a file and of their characters. A small compressed file may become any number of lines.
MOST_LINES: Final = 20_000_000
_MOST_CHARACTERS: Final = 2**31
#: Longest run, time limit and wait, in seconds.
LONGEST_S: Final = LONGEST_MS // 1_000
#: Latest time of submission, in milliseconds since the Unix epoch: the end of the year 9999.
LATEST_MS: Final = 253_402_300_799_999
KIB: Final = 2**10
MIB: Final = 2**20

_MOST_COLUMNS_NAMED: Final = 30
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"[0-9]{1,30}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,3})?\Z")


class Damaged(ValueError):
    """A line of a file cannot be read."""


def shown(text: str) -> str:
    """Return the beginning of a foreign text, quoted, as one harmless line."""
    return repr(text[:LONGEST_SHOWN])


def bounded(value: float, name: str, most: float) -> None:
    """Check that a number is at least 0 and at most `most`, which also refuses NaN and infinity. Raises `Damaged`."""
    if not 0 <= value <= most:
        raise Damaged(f"{name} is {_figure(value)}; expected a number from 0 to {most}")


def _figure(value: float) -> str:
    """Return a number as a short text. An integer may be too large for a float."""
    return "a number above 1e300" if value > 1e300 else "a number below -1e300" if value < -1e300 else f"{value:.6g}"


def whole(text: str, name: str, most: int) -> int:
    """Read a whole number from 0 to `most`. Raises `Damaged`."""
    if not (text.isdigit() and text.isascii() and len(text) <= LONGEST_SHOWN):
        raise Damaged(f"{name} is {shown(text)}; expected a whole number, 0 or more")
    value = int(text)
    if value > most:
        raise Damaged(f"{name} is {shown(text)}; expected at most {most}")
    return value


def decimal(text: str, name: str, most: float) -> float:
    """Read a number from 0 to `most`, which may have a fraction. Raises `Damaged`."""
    if not _NUMBER.match(text):
        raise Damaged(f"{name} is {shown(text)}; expected a number, 0 or more")
    value = float(text)
    bounded(value, name, most)
    return value


def checked_count(count: int, name: str) -> int:
    """Return the number of jobs of an operation if it is from 1 to `LARGEST_JOB_COUNT`. Raises `Damaged`."""
    if not 1 <= count <= LARGEST_JOB_COUNT:
        raise Damaged(f"{name} is {_figure(count)}; expected a number from 1 to {LARGEST_JOB_COUNT}")
    return count


@lru_cache(maxsize=4096)
def job_size(cpu: int, gpu: int, memory: int) -> Resources:
    """Return the resources of a job. Equal sizes are one object, because a trace may have a million jobs. Raises `Damaged`."""
    for name, amount in (("cpu", cpu), ("gpu", gpu), ("memory", memory)):
        if not 0 <= amount <= LARGEST_AMOUNT:
            raise Damaged(f"{name} is {_figure(amount)}; expected at most {LARGEST_AMOUNT}")
    return Resources(user_slots=1, cpu=cpu, gpu=gpu, memory=memory)


def date_ms(text: str, name: str) -> int:
    """Return the milliseconds since the Unix epoch of an ISO date and time. A time without a zone is UTC. Raises `Damaged`."""
    try:
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        raise Damaged(f"{name} is {shown(text)}; expected a time such as 2026-11-02T10:00:00") from None
    if since.days < 0:
        raise Damaged(f"{name} is {shown(text)}; expected a time since 1970")
    return since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000


def same_text(text: str) -> str:
    """Return the text, as one object for all equal texts, because a trace repeats the names of users and queues."""
    return sys.intern(text.strip())


def column_positions(header: Sequence[str]) -> dict[str, int]:
    """Return the position of each column by its name in lower case. The first of two columns of one name counts."""
    positions: dict[str, int] = {}
    for position, name in enumerate(header):
        positions.setdefault(name.strip().lower(), position)
    return positions


def missing_columns(place: str, header: Sequence[str], needed: str) -> BadInput:
    """Return the error for a header that lacks a needed column."""
    there = some([shown(name.strip()) for name in header], _MOST_COLUMNS_NAMED)
    return BadInput.because(place, f"the header has the columns {there}; needed are {needed}")


def cells_of(line: str) -> list[str]:
    """Return the values of a line of comma-separated values. A record cannot span several lines. Raises `Damaged`."""
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader((line,), strict=True))
    except (csv.Error, StopIteration) as error:
        raise Damaged(f"{error}: {shown(line)}") from None


def bounded_lines(place: str, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers. Raises `BadInput` for a line that is too long, and if the file is too long."""
    left = _MOST_CHARACTERS
    for number, line in enumerate(lines, 1):
        left -= len(line)
        if len(line) >= LONGEST_LINE:
            why = f"{shown(line)} begins a line that is too long; expected at most {LONGEST_LINE - 1} characters in a line"
            raise BadInput.because(f"{place}, line {number}", why)
        if number > MOST_LINES or left < 0:
            expected = f"expected at most {MOST_LINES} lines with {_MOST_CHARACTERS} characters"
            raise BadInput.because(place, f"the file is too long; {expected}")
        yield number, line


def numbered_lines(place: str, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers and without the characters at their ends. Raises `BadInput`."""
    for number, line in bounded_lines(place, lines):
        text = line.strip() if number > 1 else line.lstrip("\ufeff").strip()
        if text:
            yield number, text


def header_cells(place: str, lines: Iterator[tuple[int, str]], needed: str) -> list[str]:
    """Return the names in the first line of comma-separated values. Raises `BadInput` if there is none."""
    for _, text in lines:
        try:
            return [name.strip() for name in cells_of(text)]
        except Damaged as error:
            raise BadInput.because(place, f"the header cannot be read: {error}; needed are {needed}") from None
    raise BadInput.because(place, f"there are no lines; needed is a header with {needed}")
