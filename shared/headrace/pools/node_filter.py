"""Formulas over tags of nodes: `ssd & (fast | !old)`. An empty one is true of every node.

Pure. A tag is a word of letters, digits and `_-./:@`; `!` binds tighter than `&`, and that tighter than `|`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final

from headrace.errors import BadInput

__all__ = ["matches", "parse_formula"]

Formula = Callable[[Collection[str]], bool]

_EXPECTED: Final = "a formula over tags such as ssd & (fast | !old)"
_MOST_NESTED: Final = 50


def matches(formula: str, tags: Collection[str]) -> bool:
    """Whether a formula is true of a node with these tags. Raises `BadInput` for what is no formula."""
    return parse_formula(formula)(tags)


@lru_cache(maxsize=256)
def parse_formula(text: str) -> Formula:
    """Reads a formula. Raises `BadInput` naming the place in it."""
    return _Reader(text).whole() if text.strip() else lambda _: True


class _Reader:
    """Reads a formula from left to right: terms joined by `|`, each of terms joined by `&`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nested = 0

    def whole(self) -> Formula:
        """The formula. Raises `BadInput` if anything stands behind it."""
        formula = self._any()
        if self._text[self._at :].strip():
            raise self._wrong()
        return formula

    def _any(self) -> Formula:
        return self._joined("[|]", any, lambda: self._joined("&", all, self._term))

    def _joined(self, sign: str, holds: Callable[[Iterable[bool]], bool], read: Callable[[], Formula]) -> Formula:
        parts = [read()]
        while self._take(sign):
            parts.append(read())
        return parts[0] if len(parts) == 1 else lambda tags: holds(part(tags) for part in parts)

    def _term(self) -> Formula:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise BadInput("formula", self._text[:100], f"{_EXPECTED}, at most {_MOST_NESTED} deep")
        if self._take("!"):
            inner = self._term()
            formula: Formula = lambda tags: not inner(tags)  # noqa: E731
        elif self._take("[(]"):
            formula = self._any()
            if not self._take("[)]"):
                raise self._wrong()
        else:
            tag = self._take("[A-Za-z0-9_./:@-]+")
            if not tag:
                raise self._wrong()
            formula = lambda tags: tag in tags  # noqa: E731
        self._nested -= 1
        return formula

    def _take(self, token: str) -> str:
        """The next token if it is of this form, else nothing."""
        match = re.compile(rf"\s*({token})").match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[1]

    def _wrong(self) -> BadInput:
        return BadInput("formula", self._text[:100], f"{_EXPECTED}; wrong before character {self._at + 1}")
