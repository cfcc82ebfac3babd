"""Formulas over tags of nodes: `ssd & (fast | !old)`. An empty one is true of every node.

Pure. A tag is a word of letters, digits and `_-./:@`; `!` binds tighter than `&`, and that tighter than `|`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final

from headrace.errors import BadInput

__all__ = ["matches", "parse_formula"]

Formula = Callable[[Collection[str]], bool]

_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z0-9_./:@-]+)|([&|!()]))")
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
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nested = 0
        self._token = self._next()

    def whole(self) -> Formula:
        formula = self._any()
        if self._token:
            raise self._wrong()
        return formula

    def _any(self) -> Formula:
        parts = [self._all()]
        while self._take("|"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda tags: any(part(tags) for part in parts)

    def _all(self) -> Formula:
        parts = [self._one()]
        while self._take("&"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda tags: all(part(tags) for part in parts)

    def _one(self) -> Formula:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise BadInput("formula", self._text[:100], f"{_EXPECTED}, at most {_MOST_NESTED} deep")
        if self._take("!"):
            inner = self._one()
            formula: Formula = lambda tags: not inner(tags)  # noqa: E731
        elif self._take("("):
            formula = self._any()
            if not self._take(")"):
                raise self._wrong()
        else:
            tag = self._token
            if not tag or tag in "&|!()":
                raise self._wrong()
            self._token = self._next()
            formula = lambda tags: tag in tags  # noqa: E731
        self._nested -= 1
        return formula

    def _take(self, sign: str) -> bool:
        if self._token != sign:
            return False
        self._token = self._next()
        return True

    def _next(self) -> str:
        if not self._text[self._at :].strip():
            self._at = len(self._text)
            return ""
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._wrong()
        self._at = match.end()
        return match[1] or match[2]

    def _wrong(self) -> BadInput:
        return BadInput("formula", self._text[:100], f"{_EXPECTED}; wrong before character {self._at + 1}")
