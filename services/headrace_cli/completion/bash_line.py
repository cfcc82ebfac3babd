"""A command line as bash hands it over at a Tab, and how a candidate is written there. Pure.

bash leaves both to the completer: it hands over the line as it was typed, with its quotes, and inserts what comes back as it is.
What it replaces begins behind an open quote, or else behind the last `=` or `:` of the word.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BashLine", "read_line"]

_BLANK = " \t\n"
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
    characters = iter(line)
    in_word = False
    for character in characters:
        if quote == "'":
            quote, words[-1] = ("", words[-1]) if character == "'" else (quote, words[-1] + character)
        elif character == "\\":
            following = next(characters, "")
            keeps = quote == '"' and following not in _ESCAPED_IN_DOUBLE
            words[-1] += "\\" + following if keeps else following
        elif quote == '"':
            quote, words[-1] = ("", words[-1]) if character == '"' else (quote, words[-1] + character)
        elif character in "'\"":
            quote = character
        elif character in _BLANK:
            if in_word:
                words.append("")
            in_word = False
            continue
        else:
            words[-1] += character
        in_word = True
    return words, quote
