"""Numbers among the options of commands: how they are read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter, Token

from headrace.errors import BadInput


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
