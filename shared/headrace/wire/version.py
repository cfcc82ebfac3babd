"""Version = (term, epoch): the run of a service that published something, and the number of the publication within that run.

A service takes a higher term at every start, so that two versions can always be compared, whatever was lost in between.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

Counter = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
#: Number of a run of a service; starts at 1. 0 means "none seen yet".
Term = Counter


#: Largest number of terms that a service may skip beyond the recorded terms. A larger jump is a mistake or a forgery. If a service believed
#: a term near the largest number, no service could ever take a higher term.
LARGEST_JUMP: Final = 1_000_000


class Version(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The version of a publication, compared by term, then by epoch."""

    term: Term = 0
    epoch: Counter = 0

    def __str__(self) -> str:
        return f"{self.term}.{self.epoch}"

    def next(self) -> Version:
        return Version(self.term, self.epoch + 1)


NEVER = Version()
#: Name of a role or of a process.
Name = Annotated[str, msgspec.Meta(max_length=200)]


class WhoRequest(msgspec.Struct, frozen=True):
    """Ask which terms of this role the other processes have seen. Sent by a service that takes a term."""

    role: str


class WhoAnswer(msgspec.Struct, frozen=True):
    """The highest term of the role that the answering process has seen, 0 if none."""

    role: Name
    term: Term
    #: Name of the process that answers, for the log.
    peer: Name = ""
