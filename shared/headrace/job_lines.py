"""Replacing `{}` in the command of an operation by the line of a job. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from headrace.errors import BadInput

_BRACES: Final = "{}"
#: Largest size in bytes of a command in which a job's line has replaced each `{}`. A command may contain `{}` very
#: often: without the bound a request of 100 KB could make a command of a gigabyte. The runner keeps the commands of all
#: its jobs, and sends them to its agent in one message.
LONGEST_COMMAND_BYTES: Final = 256 * 1024


def with_line(argv: Sequence[str], line: str) -> list[str]:
    """Return the command with the line in place of each `{}`. Raises `BadInput`, as `check_lines` does."""
    check_lines(argv, [line])
    return [word.replace(_BRACES, line) for word in argv]


def check_lines(argv: Sequence[str], lines: Iterable[str]) -> None:
    """Check that the command has at most `LONGEST_COMMAND_BYTES` with each of the lines. Raises `BadInput`."""
    line_bytes = max(map(len, map(str.encode, lines)), default=0)
    own_bytes = sum(len(word.encode()) for word in argv)
    length = own_bytes + sum(word.count(_BRACES) for word in argv) * (line_bytes - len(_BRACES))
    if line_bytes and length > LONGEST_COMMAND_BYTES:
        raise BadInput.because(
            "lines",
            f"a line of {line_bytes} bytes makes the command {length} bytes long; at most {LONGEST_COMMAND_BYTES} are allowed",
        )
