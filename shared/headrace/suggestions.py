"""Names in messages: suggestions for a misspelt name, and the first few of many names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from heapq import nlargest
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Final

_MOST_NAMED: Final = 3
_SHORTEST_PART: Final = 3
_SURELY: Final = 0.8
#: Largest number of names that are compared letter by letter, which takes up to 1 ms for names of 100 letters. If there are more
#: names, only the names with the most pairs of letters in common with the misspelt name are compared.
MOST_COMPARED: Final = 20
#: Largest number of names whose pairs of letters are counted, which takes some microseconds for each name.
_MOST_COUNTED: Final = 10_000
#: Number of characters at the beginning of a name that are compared.
_LONGEST_COMPARED: Final = 100


def is_misspelt(name: str, names: Iterable[str]) -> bool:
    """True if `name` is surely meant to be one of the names: it is very similar to one of them, or consists of its first words."""
    known = list(names)
    return any(other.startswith(f"{name}_") for other in known) or bool(_similar(name, known, 1, _SURELY))


def near(name: str, names: Iterable[str]) -> list[str]:
    """Return the most similar names, best first, or else names that contain `name`. At most three names are returned.

    Services call this with names that people have chosen, so the time is bounded even for very many or very long names.
    """
    known = list(islice(names, _MOST_COUNTED))
    similar = _similar(name, known, _MOST_NAMED, 0.6)
    return similar or [other for other in known if len(name) >= _SHORTEST_PART and name in other][:_MOST_NAMED]


def _similar(name: str, names: list[str], most: int, cutoff: float) -> list[str]:
    """Return up to `most` of the names that are at least as similar as `cutoff` (0 to 1), the most similar name first."""
    if len(name) > 2 * _LONGEST_COMPARED:
        return []
    if len(names) > MOST_COMPARED:
        pairs = set(pairwise(name[:_LONGEST_COMPARED]))

        def in_common(other: str) -> float:
            common = len(pairs.intersection(pairwise(other[:_LONGEST_COMPARED])))
            return common - abs(len(other) - len(name)) / 2

        names = nlargest(MOST_COMPARED, names, in_common)
    return difflib.get_close_matches(name, names, n=most, cutoff=cutoff)


def hint(
    name: str, names: Iterable[str], *, most_listed: int = 100, elsewhere: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return a text that suggests the nearest names, or else lists the first of all valid names.

    `elsewhere` has names of other systems, each with the valid name that means the same.
    """
    known = list(names)
    found = [elsewhere[name]] if name in elsewhere else near(name, known)
    if found:
        return f"did you mean {' or '.join(found)}?"
    more = f" ({len(known)} in all)" if len(known) > most_listed else ""
    return "one of " + ", ".join(known[:most_listed]) + more


def some(names: Iterable[str], most: int = _MOST_NAMED) -> str:
    """Return a text with the first few names and the number of further names."""
    listed = list(names)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")


def some_lines(lines: Iterable[str], most_bytes: int) -> list[str]:
    """Return the first lines, as many as fit in `most_bytes`, and a last line with the number of further lines."""
    listed = list(lines)
    for place, line in enumerate(listed):
        most_bytes -= len(line.encode())
        if most_bytes < 0:
            return [*listed[:place], f"and {len(listed) - place} more"]
    return listed
