"""Warnings of an import: what differs from YARN, and what was done about it."""

from __future__ import annotations

import msgspec


class Warned(msgspec.Struct, frozen=True):
    """One difference between a file and its translation."""

    #: Code of the kind of difference, such as W09.
    code: str
    file: str
    line: int
    #: Path of the queue and name of the element, such as `root.prod maxAMShare`.
    place: str
    words: str
    #: True if the newest YARN refuses the whole file because of this difference. Older releases of YARN accept such files, and so does the
    #: import.
    yarn_refuses: bool = False

    def text(self) -> str:
        """Return the warning as one line."""
        more = "; the newest YARN refuses such a file" if self.yarn_refuses else ""
        return f"{self.file}:{self.line}: {self.code} {self.place}: {self.words}{more}"


class Warnings:
    """Collects the warnings about one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Warned] = []

    def say(self, code: str, line: int, place: str, words: str, *, yarn_refuses: bool = False) -> None:
        self.found.append(Warned(code, self.file, line, place, words, yarn_refuses))
