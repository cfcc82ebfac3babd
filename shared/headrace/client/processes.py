"""The processes of Headrace itself, as they answer within a moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.bus import Bus
from headrace.ids import UserName
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.figures import FiguresAnswer, FiguresRequest
from headrace.wire.services import ListServices, ServiceView

#: Every process answers within this, or is not counted.
_SCATTER_S: Final = 0.5


class Processes:
    """Questions that every process of every service answers."""

    def __init__(self, bus: Bus, user: UserName) -> None:
        self._bus = bus
        self._user = user

    async def list(self) -> Sequence[ServiceView]:
        """All processes, those that stand by too, by role. Raises `BusError`."""
        views = [decode(answer, ServiceView) for answer in await self._gather("service.list", encode(ListServices()))]
        return sorted(views, key=lambda view: (view.role, not view.leads, view.instance))

    async def figures(self) -> Sequence[FiguresAnswer]:
        """The figures of those that lead, by role. Raises `BusError`."""
        answers = await self._gather("service.figures", encode(FiguresRequest()))
        return sorted((decode(answer, FiguresAnswer) for answer in answers), key=lambda told: (told.role, told.service))

    async def _gather(self, verb: str, request: bytes) -> Sequence[bytes]:
        return await self._bus.gather(subjects.user(self._user, verb), request, wait_s=_SCATTER_S)
