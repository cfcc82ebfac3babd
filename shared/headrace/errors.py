"""The one root of all errors that Headrace raises on purpose.

A subclass is a situation, carries its figures as fields, and its docstring is the default message.
Across the bus an error travels as a tagged Struct (`headrace.wire.refusals`), never as text of an exception.
"""

from __future__ import annotations

import inspect

_LONGEST_SHOWN = 300


class HeadraceError(Exception):
    """Something in Headrace could not be done."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or inspect.getdoc(type(self)) or type(self).__name__)


class BadInput(HeadraceError):
    """A value given from outside cannot be used.

    `place` says where it stood (an option, a key, a line), `value` what stood there, `expected` what would do.
    """

    def __init__(self, place: str, value: object, expected: str) -> None:
        self.place = place
        self.value = value
        self.expected = expected
        super().__init__(f"{place}: {shortened(repr(value))} cannot be used; {said_of(expected)}")


class UnknownKey(BadInput):
    """A key that names nothing."""


def shortened(text: str) -> str:
    """The beginning of a text that is too long to be read."""
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def said_of(expected: str) -> str:
    """Makes the expected value the end of a sentence. A question stays one."""
    return expected if expected.endswith("?") else f"expected {expected}"
