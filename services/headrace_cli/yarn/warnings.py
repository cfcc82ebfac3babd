"""Warnings of an import: what is other here than in YARN, and what was done about it."""

from __future__ import annotations

import msgspec


class Warned(msgspec.Struct, frozen=True):
    """One difference between a file and what it became."""

    #: Such as W09: one code for each kind of difference.
    code: str
    file: str
    line: int
    #: Path of the queue with the element, such as `root.prod maxAMShare`.
    place: str
    words: str

    def text(self) -> str:
        """Writes it as one line."""
        return f"{self.file}:{self.line}: {self.code} {self.place}: {self.words}"


class Warnings:
    """Collects the warnings of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Warned] = []

    def say(self, code: str, line: int, place: str, words: str) -> None:
        self.found.append(Warned(code, self.file, line, place, words))
