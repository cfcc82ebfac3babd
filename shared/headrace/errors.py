"""The base class of all errors that Headrace raises on purpose.

Each subclass stands for one situation, whose details are the fields of the error. The first paragraph of a subclass's docstring is its
default message. On the bus an error is sent as a tagged Struct (`headrace.wire.refusals`), never as the text of an exception.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Final, Self

_LONGEST_SHOWN = 300
#: A name of an input in the text of a message, such as `keep_going` between backticks.
_NAMED_INPUT: Final = re.compile(r"`([^`\s]+)`")


#: Control characters that change the direction of writing. With them, a terminal shows the characters of a text in another order.
DIRECTIONS: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
#: Symbols to show in place of control characters, except line feed and tab.
_SIGNS: Final = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys([*range(0x80, 0xA0), *DIRECTIONS], 0xFFFD),
}


class HeadraceError(Exception):
    """Something in Headrace could not be done."""

    def __init__(self, message: str | None = None) -> None:
        paragraph = (inspect.getdoc(type(self)) or type(self).__name__).partition("\n\n")[0]
        super().__init__(message or " ".join(paragraph.split()))


class BadInput(HeadraceError):
    """Input from outside cannot be used.

    `place` names the source of the input (a command, an option, a key, a line). If a value is wrong, `value` is the value, and
    `expected` says what is accepted. If no value is wrong, use `because`; then only `fault` is set.
    """

    def __init__(self, place: str, value: object, expected: str, fault: str = "") -> None:
        self.place = place
        self.value = value
        self.expected = expected
        self.fault = fault
        super().__init__(f"{place}: {fault or wrong_value(shortened(repr(value)), expected)}")

    @classmethod
    def because(cls, place: str, fault: str) -> Self:
        """Return the error for input in which no value is wrong. `fault` says in sentences what is wrong and what to do next."""
        return cls(place, "", "", fault)

    def at(self, place: str) -> Self:
        """Return the same error with another place."""
        return type(self)(place, self.value, self.expected, self.fault)

    def renamed(self, name_of: Callable[[str], str]) -> Self:
        """Return the same error with other names of the inputs. `name_of` returns the new name of the error's place, and of each input
        between backticks in the text.
        """
        expected, fault = (with_names(text, name_of) for text in (self.expected, self.fault))
        return type(self)(name_of(self.place), self.value, expected, fault)


class UnknownKey(BadInput):
    """There is no such key."""


def with_names(text: str, name_of: Callable[[str], str]) -> str:
    """Return a text in which each name between backticks is replaced by `name_of` of the name."""
    return _NAMED_INPUT.sub(lambda found: f"`{name_of(found[1])}`", text)


def without_control_characters(text: str) -> str:
    """Return a text from outside as a terminal may show it, with symbols in place of control characters. Line feeds and tabs stay."""
    return text if text.isprintable() else text.translate(_SIGNS)


def in_one_line(text: str) -> str:
    """Return a text from outside without line ends, so that it cannot add lines to an output with one line for each item."""
    return " ".join(text.splitlines())


def shortened(text: str) -> str:
    """Return the text, cut to a length that a person can read."""
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def wrong_value(value: str, expected: str) -> str:
    """Return the message about a wrong value, without its place."""
    return f"{value or 'an empty text'} cannot be used; {said_of(expected)}"


def said_of(expected: str) -> str:
    """Return the part of a message that says what is accepted. If `expected` is a question (it ends in `?`), it is returned unchanged."""
    return expected if expected.endswith("?") else f"expected {expected}"


def first_error(error: BaseException) -> BaseException:
    """Return the single error inside nested groups of one error, because a task group wraps even one error in a group."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
