"""A command line as bash passes it at a Tab, and the text of a candidate for that line. Pure.

bash leaves the quoting to the completer: it passes the line as typed, with its quotes, and inserts the answer
unchanged. The part that bash replaces begins after an open quote, or else after the last `=` or `:` of the word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECE = re.compile(
    r"""(?P<blank>[ \t\n]+)|(?P<plain>[^ \t\n'"\\]+)|\\(?P<escaped>.?)|'(?P<single>[^']*)(?P<single_end>'|\Z)"""
    r"""|"(?P<double>(?:[^"\\]|\\.?)*)(?P<double_end>"|\Z)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r'\\(["\\$`]|\Z)')
_PLAIN = frozenset("_@%+=:,./-")
_ESCAPED_IN_DOUBLE = '"\\$`'


@dataclass(frozen=True)
class BashLine:
    """A command line up to the cursor."""

    #: Words after the name of the program, without quotes. The last word is under the cursor, and empty after a blank.
    words: tuple[str, ...]
    #: Part of the last word that stays as it was typed.
    kept: str
    #: Quote that is open where the replaced part begins; empty: none.
    quote: str

    def written(self, candidate: str) -> str | None:
        """Return the text for the replaced part, or None if the candidate does not begin with the last word."""
        if not candidate.startswith(self.words[-1]):
            return None
        rest = candidate[len(self.kept) :]
        match self.quote:
            case "'":
                return rest.replace("'", "'\\''")
            case '"':
                return "".join(f"\\{c}" if c in _ESCAPED_IN_DOUBLE else c for c in rest)
            case _:
                return "".join(c if c.isalnum() or c in _PLAIN else f"\\{c}" for c in rest)


def read_line(stays: str, replaced: str) -> BashLine:
    """Parse a line from its two parts up to the cursor: the part that stays, and the part that is replaced."""
    words, _ = _split(stays + replaced)
    before, quote = _split(stays)
    return BashLine(tuple(words[1:]) or ("",), before[-1] if len(before) == len(words) else "", quote)


def _split(line: str) -> tuple[list[str], str]:
    """Return the words, and the quote that is still open at the end."""
    words = [""]
    quote = ""
    for piece in _PIECE.finditer(line):
        if piece["blank"]:
            words += [""] if piece.start() else []
            continue
        words[-1] += piece["plain"] or piece["escaped"] or piece["single"] or _ESCAPE.sub(r"\1", piece["double"] or "")
        quote = "'" if piece["single_end"] == "" else '"' if piece["double_end"] == "" else ""
    return words, quote
