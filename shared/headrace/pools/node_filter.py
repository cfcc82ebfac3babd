"""Formulas over tags of nodes: `ssd & (fast | !old)`. An empty formula matches every node.

Pure. A tag is a word of letters, digits and `_-./:@`. `!` binds tighter than `&`, and `&` tighter than `|`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection
from functools import lru_cache, reduce
from typing import Final

from headrace.errors import BadInput

#: A compiled formula. It works on sets of nodes, which are integers with one bit for each node. Its arguments are a function that
#: returns the nodes with a tag, and the set of all nodes. It returns the nodes that match.
TagFormula = Callable[[Callable[[str], int], int], int]

_EXPECTED: Final = "a formula over tags such as ssd & (fast | !old)"
_MOST_NESTED: Final = 50


def matches(formula: str, tags: Collection[str]) -> bool:
    """True if a node with these tags matches a formula. Raises `BadInput` if the text is not a formula."""
    return bool(parse_formula(formula)(lambda tag: tag in tags, 1))


@lru_cache(maxsize=256)
def parse_formula(text: str) -> TagFormula:
    """Return the compiled formula. Raises `BadInput`, which names the position of the error."""
    return _Reader(text).whole() if text.strip() else lambda _having, every: every


class _Reader:
    """Parses a formula from left to right: terms joined by `|`, and within them terms joined by `&`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nested = 0

    def whole(self) -> TagFormula:
        """Return the formula. Raises `BadInput` if text remains after it."""
        formula = self._any()
        if self._text[self._at :].strip():
            raise self._wrong()
        return formula

    def _any(self) -> TagFormula:
        return self._joined("[|]", operator.or_, lambda: self._joined("&", operator.and_, self._term))

    def _joined(self, sign: str, join: Callable[[int, int], int], read: Callable[[], TagFormula]) -> TagFormula:
        parts = [read()]
        while self._take(sign):
            parts.append(read())
        if len(parts) == 1:
            return parts[0]
        return lambda having, every: reduce(join, (part(having, every) for part in parts))

    def _term(self) -> TagFormula:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise BadInput("formula", self._text[:100], f"{_EXPECTED}, nested at most {_MOST_NESTED} deep")
        if self._take("!"):
            inner = self._term()
            formula: TagFormula = lambda having, every: every & ~inner(having, every)  # noqa: E731
        elif self._take("[(]"):
            formula = self._any()
            if not self._take("[)]"):
                raise self._wrong()
        else:
            tag = self._take("[A-Za-z0-9_./:@-]+")
            if not tag:
                raise self._wrong()
            formula = lambda having, _every: having(tag)  # noqa: E731
        self._nested -= 1
        return formula

    def _take(self, token: str) -> str:
        """Consume and return the next token if it matches the pattern, else return an empty text."""
        match = re.compile(rf"\s*({token})").match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[1]

    def _wrong(self) -> BadInput:
        return BadInput("formula", self._text[:100], f"{_EXPECTED}; the error is before character {self._at + 1}")
