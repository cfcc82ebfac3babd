"""A command line as bash hands it over at a Tab, and how a candidate is written there. Pure.

bash leaves both to the completer: it hands over the line as it was typed, with its quotes, and inserts what comes back as it is.
What it replaces begins behind an open quote, or else behind the last `=` or `:` of the word.
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
    """A line up to the cursor."""

    #: Behind the name of the program, without quotes; the last one is under the cursor, empty behind a blank.
    words: tuple[str, ...]
    #: The part of that word that stays as it was typed.
    kept: str
    #: The quote that is open where the rest begins; empty for none.
    quote: str

    def written(self, candidate: str) -> str | None:
        """Returns the text for the replaced part, or None for a candidate that the word does not lead to."""
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
    """Reads a line from the parts that stay and that are replaced, which end at the cursor."""
    words, _ = _split(stays + replaced)
    before, quote = _split(stays)
    return BashLine(tuple(words[1:]) or ("",), before[-1] if len(before) == len(words) else "", quote)


def _split(line: str) -> tuple[list[str], str]:
    """The words, and the quote that is still open at the end."""
    words = [""]
    quote = ""
    for piece in _PIECE.finditer(line):
        if piece["blank"]:
            words += [""] if piece.start() else []
            continue
        words[-1] += piece["plain"] or piece["escaped"] or piece["single"] or _ESCAPE.sub(r"\1", piece["double"] or "")
        quote = "'" if piece["single_end"] == "" else '"' if piece["double_end"] == "" else ""
    return words, quote
