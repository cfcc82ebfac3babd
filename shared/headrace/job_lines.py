"""The line of a job in place of `{}` in its command. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from headrace.errors import BadInput

_BRACES: Final = "{}"
#: Characters of a command with its line; Linux takes 2 MiB for command and environment. `{}` may stand in a command very often, so a start
#: of 100 KB could otherwise make a command of a gigabyte.
LONGEST_COMMAND: Final = 2**20


def with_line(argv: Sequence[str], line: str) -> list[str]:
    """Return the command with the line in place of each `{}`. Raises `BadInput`, as `check_lines` does."""
    check_lines(argv, [line])
    return [word.replace(_BRACES, line) for word in argv]


def check_lines(argv: Sequence[str], lines: Iterable[str]) -> None:
    """Check that the command has at most `LONGEST_COMMAND` characters with each of the lines. Raises `BadInput`."""
    line = max(map(len, lines), default=0)
    length = sum(map(len, argv)) + sum(word.count(_BRACES) for word in argv) * (line - len(_BRACES))
    if line and length > LONGEST_COMMAND:
        value = f"a line of {line} characters, which makes the command {length} characters long"
        raise BadInput("lines", value, f"at most {LONGEST_COMMAND} characters in a command with its line")
