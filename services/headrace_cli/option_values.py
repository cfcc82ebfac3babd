"""Numbers among the options of commands: how they are read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from cyclopts import Parameter, Token

from headrace.errors import BadInput

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
