"""Version = (term, epoch): which life of a service said something, and its how-manieth word that was.

A service takes a higher term at every start, so two versions are always comparable, whatever was lost in between.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

Counter = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
#: A life of a service; starts at 1, 0 is «none seen yet».
Term = Counter


#: A term so far above all that is recorded is a mistake or a lie: believed once, no higher one could ever be taken.
LARGEST_JUMP: Final = 1_000_000


class Version(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Compared by term, then by epoch."""

    term: Term = 0
    epoch: Counter = 0

    def __str__(self) -> str:
        return f"{self.term}.{self.epoch}"

    def next(self) -> Version:
        return Version(self.term, self.epoch + 1)


NEVER = Version()
#: Of a role or of a process.
Name = Annotated[str, msgspec.Meta(max_length=200)]


class WhoRequest(msgspec.Struct, frozen=True):
    """«Which terms of this role have you seen?», asked by a service that takes a term."""

    role: str


class WhoAnswer(msgspec.Struct, frozen=True):
    """The highest term of the role that the answering party has seen, 0 for none."""

    role: Name
    term: Term
    #: Who answers, for the log.
    peer: Name = ""
