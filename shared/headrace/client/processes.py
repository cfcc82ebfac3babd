"""The processes of Headrace itself, as far as they answer in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from headrace.bus import Bus
from headrace.errors import shortened
from headrace.ids import UserName
from headrace.wire import subjects
from headrace.wire.codec import BadMessage, decode, encode
from headrace.wire.figures import FiguresAnswer, FiguresRequest
from headrace.wire.services import ListServices, ServiceView

V = TypeVar("V", bound=msgspec.Struct)

#: Seconds within which a process must answer to be counted.
_SCATTER_S: Final = 0.5


class Unread(NamedTuple):
    """An answer that cannot be read. All other answers are still used."""

    #: Name of the process according to the answer; empty if even the name cannot be read.
    process: str
    why: str

    def text(self) -> str:
        """Return one line for people."""
        return f"the answer of {self.process or 'an unknown process'} cannot be read and is left out: {self.why}"


class _Named(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The fields that name the process, which answers of all kinds have."""

    service: str = ""
    instance: str = ""


class Processes:
    """Requests that every process of every service answers."""

    def __init__(self, bus: Bus, user: UserName) -> None:
        self._bus = bus
        self._user = user
        #: Answers that could not be read, of all answers to the last request.
        self.unread: Sequence[Unread] = ()

    async def list(self) -> Sequence[ServiceView]:
        """Return all processes, including standbys, by role. Raises `BusError`."""
        views = await self._gather("service.list", ListServices(), ServiceView)
        return sorted(views, key=lambda view: (view.role, not view.leads, view.instance))

    async def figures(self) -> Sequence[FiguresAnswer]:
        """Return the metrics of the leaders and of the agents, by role. Raises `BusError`."""
        answers = await self._gather("service.figures", FiguresRequest(), FiguresAnswer)
        return sorted(answers, key=lambda told: (told.role, told.service, told.instance))

    async def _gather(self, verb: str, request: msgspec.Struct, kind: type[V]) -> Sequence[V]:
        """Return the answers that can be read; store the unreadable answers in `unread`."""
        found, self.unread = await ask_all(self._bus, subjects.user(self._user, verb), request, kind)
        return found


async def ask_all(
    bus: Bus, subject: str, request: msgspec.Struct, kind: type[V]
) -> tuple[Sequence[V], Sequence[Unread]]:
    """Ask every process. Return the answers that can be read, and the answers that cannot be read. Raises `BusError`."""
    found, unread = [], []
    for answer in await bus.gather(subject, encode(request), wait_s=_SCATTER_S):
        try:
            found.append(decode(answer, kind))
        except BadMessage as error:
            unread.append(Unread(_name_in(answer), shortened(str(error))))
    return found, unread


def _name_in(answer: bytes) -> str:
    try:
        named = decode(answer, _Named)
    except BadMessage:
        return ""
    return shortened(" ".join(filter(None, (named.service, named.instance))))
