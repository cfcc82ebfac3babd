"""Numbers among the options of commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from cyclopts import Parameter, Token

from headrace.errors import BadInput

_MOST: Final = 2**62


def _read(kind: Any, tokens: Sequence[Token]) -> int | float:
    """Reads a number. Where a whole one is meant, cyclopts would round any other."""
    number, words = (float, "a number") if kind is float else (int, "a whole number")
    try:
        return number(tokens[0].value)
    except ValueError:
        raise BadInput(tokens[0].keyword or "command line", tokens[0].value, words) from None


#: What options and arguments take that are numbers.
Whole = Annotated[int, Parameter(converter=_read)]
MaybeWhole = Annotated[int | None, Parameter(converter=_read)]
Number = Annotated[float, Parameter(converter=_read)]


def at_least(option: str, value: int, least: int) -> int:
    """The number as it is. Raises `BadInput` for a smaller one, and for one that nothing counts to."""
    if value > _MOST:
        raise BadInput(option, value, f"a whole number, at most {_MOST}")
    if value < least:
        raise BadInput(option, value, f"a whole number, {least} or more")
    return value
