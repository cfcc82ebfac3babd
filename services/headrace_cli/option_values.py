"""Numbers and amounts of memory among the options of commands: how they are read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from cyclopts import Parameter, Token

from headrace.errors import BadInput
from headrace.resources import parse_amount

_MOST: Final = 2**62


def _read(kind: Any, tokens: Sequence[Token]) -> int | float:
    """Parse a number. Without this converter, cyclopts would round a fraction where a whole number is expected."""
    number, words = (float, "a number") if kind is float else (int, "a whole number")
    try:
        return number(tokens[0].value)
    except ValueError:
        raise BadInput(tokens[0].keyword or "command line", tokens[0].value, words) from None


#: Types of options and arguments that are numbers.
Whole = Annotated[int, Parameter(converter=_read)]
MaybeWhole = Annotated[int | None, Parameter(converter=_read)]
Number = Annotated[float, Parameter(converter=_read)]


def at_least(option: str, value: int, least: int) -> int:
    """Return the number unchanged. Raises `BadInput` if it is below `least` or above 2**62."""
    if value > _MOST:
        raise BadInput(option, value, f"a whole number, at most {_MOST}")
    if value < least:
        raise BadInput(option, value, f"a whole number, {least} or more")
    return value


#: Smallest plausible amount of memory, in bytes. No process runs in less.
_LEAST: Final = 100_000


def parse_memory(text: str, place: str) -> int:
    """Return the amount in bytes. Raises `BadInput`.

    An amount from 1 to 99,999 bytes is refused too, because the unit was probably forgotten: other systems count
    megabytes.
    """
    memory = parse_amount("memory", text, place=place)
    if 0 < memory < _LEAST:
        near = f"{text.strip()}M" if text.strip().isdigit() else "64M"
        raise BadInput(
            place,
            text,
            f"an amount with a unit, such as {near}: without a unit it is in bytes, and no process runs in so few bytes",
        )
    return memory
