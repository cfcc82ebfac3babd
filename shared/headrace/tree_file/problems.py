"""Problems of a file, each with its line and key, all reported at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from headrace.errors import BadInput, HeadraceError, UnknownKey, said_of
from headrace.wire.version import Counter

_LONGEST_SHOWN: Final = 60
#: Number of problems after which a file is not checked any further, because reporting a problem may include a search for similar
#: names, which takes some 0.4 ms.
_MOST_PROBLEMS: Final = 1_000


class FileProblem(msgspec.Struct, frozen=True):
    """One problem in a file."""

    #: Line in the file, from 1; 0 if the problem concerns the file as a whole.
    line: Counter
    #: Key, such as `pools.research.weight`; empty if the problem concerns the file as a whole.
    key: str
    #: Value at the key, shortened; empty if there is none.
    value: str
    wrong: str
    expected: str

    @staticmethod
    def of(line: int, error: BadInput) -> FileProblem:
        """Return the problem that an error on this line reports."""
        value = shown(error.value)
        wrong = "unknown key" if isinstance(error, UnknownKey) else error.fault or f"{value} cannot be used"
        return FileProblem(line, error.place, "" if error.fault else value, wrong, error.expected)

    def text(self, file: str) -> str:
        """Return the problem on one line: file and line, key, what is wrong, and what is accepted."""
        place = f"{file}:{self.line}" if self.line else file
        words = f"{self.key}: {self.wrong}" if self.key else self.wrong
        return f"{place}: {words}" + (f"; {said_of(self.expected)}" if self.expected else "")


class UnusableFile(HeadraceError):
    """The file cannot be used."""

    def __init__(self, file: str, problems: Iterable[FileProblem]) -> None:
        self.file = file
        self.problems = sorted(problems, key=lambda problem: problem.line)
        super().__init__("\n".join(problem.text(file) for problem in self.problems))


class Problems:
    """Collects the problems of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[FileProblem] = []
        #: Returns the line of a key; set once the file is parsed.
        self.line_of: Callable[[str], int] = lambda _: 0

    def say(self, key: str, wrong: str, expected: str, value: str = "") -> None:
        """Add a problem of the value at a key, or of a missing value. Raises `UnusableFile` if the file has very many problems."""
        self._add(FileProblem(self.line_of(key), key, value, wrong, expected))

    def _add(self, problem: FileProblem) -> None:
        self.found.append(problem)
        if len(self.found) == _MOST_PROBLEMS:
            words = f"the rest is not checked, because there are {_MOST_PROBLEMS} problems so far"
            raise self.unusable(FileProblem(problem.line, "", "", words, ""))

    def add(self, *problems: BadInput) -> None:
        """Add the errors that a parser of attributes raised. Raises `UnusableFile` if the file has very many problems."""
        for problem in problems:
            self._add(FileProblem.of(self.line_of(problem.place), problem))

    def unusable(self, *more: FileProblem) -> UnusableFile:
        """Return the error with all problems so far, and `more`."""
        return UnusableFile(self.file, [*self.found, *more])

    def refuse(self) -> None:
        """Raise `UnusableFile` if there are problems."""
        if self.found:
            raise self.unusable()


def shown(value: object) -> str:
    """Return a value as a short text for a message."""
    match value:
        case Mapping():
            return "a map" if value else "an empty map"
        case list() | tuple():
            return "a list"
        case None:
            return "null"
        case bool():
            return str(value).lower()
    text = str(value)
    text = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
    return text if text and text.isprintable() else repr(text)
