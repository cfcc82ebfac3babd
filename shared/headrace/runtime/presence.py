"""The answer of a process to `service list`: whether it leads its role or stands by. A standby answers nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

import anyio
import anyio.lowlevel

from headrace.bus import Bus, BusError
from headrace.runtime.clock import Clock
from headrace.runtime.endpoints import Caller, CallerKind, Endpoints
from headrace.runtime.engine import Figure
from headrace.runtime.role import Role
from headrace.wire import subjects
from headrace.wire.services import ListServices, ServiceView

#: Seconds to wait for the log before answering without it, because clients list only the processes that answer soon.
_LOG_S: Final = 0.2


class Presence:
    """Answers `service list` for one process, which leads a role or stands by for it. Created when the process starts."""

    def __init__(self, bus: Bus, service: str, instance: str, clock: Clock) -> None:
        self._bus = bus
        self._service = service
        self._instance = instance
        self._clock = clock
        self._began_s = clock.steady_s()
        self._name = ""
        self._role: Role | None = None
        self._sequence: Callable[[], int] | None = None
        self._troubles: list[Callable[[], str]] = [self._foreign_entries]
        self._figures: list[Callable[[], list[Figure]]] = []

    async def stand_by(self, name: str, endpoints: Endpoints, sequence: Callable[[], int] | None) -> None:
        """Answer `service list` from now on, for a role that another process may lead.

        `sequence` returns the number of the last log entry that the process has taken.
        """
        self._name = name
        self._sequence = sequence
        await endpoints.serve(subjects.user("*", "service.list"), ListServices, CallerKind.USER, self._on_list)

    def watches(self, trouble: Callable[[], str], figures: Callable[[], list[Figure]] = list) -> None:
        """From now on also report a possible trouble, and metrics. `trouble` returns the text that describes the trouble, empty
        if there is none.
        """
        self._troubles.append(trouble)
        self._figures.append(figures)

    def figures(self) -> list[Figure]:
        """Return the metrics that were added by `watches`."""
        return [figure for figures in self._figures for figure in figures()]

    def lead(self, role: Role) -> None:
        """Record that this process leads the role."""
        self._role = role

    async def _on_list(self, _request: ListServices, _caller: Caller) -> ServiceView:
        asked_s = self._clock.steady_s()
        await anyio.lowlevel.checkpoint()
        now_s = self._clock.steady_s()
        return ServiceView(
            service=self._service,
            role=self._name,
            instance=self._instance,
            leads=self._role is not None,
            term=self._role.term if self._role is not None else 0,
            age_ms=int((now_s - self._began_s) * 1000),
            lag_ms=round((now_s - asked_s) * 1000, 3),
            pid=os.getpid(),
            entries_behind=await self._entries_behind(),
            trouble="; ".join(filter(None, (trouble() for trouble in self._troubles))),
        )

    def _foreign_entries(self) -> str:
        count = self._bus.statistics().get("foreign", 0)
        if not count:
            return ""
        return (
            f"{count} foreign entries in buckets or streams were ignored: a credential of a service may be stolen; "
            "the log of this process names each entry"
        )

    async def _entries_behind(self) -> int | None:
        if self._sequence is None:
            return None
        with anyio.move_on_after(_LOG_S), contextlib.suppress(BusError):
            _, last = await (await self._bus.log(subjects.STREAM, subjects.LOG)).bounds()
            return max(0, last - self._sequence())
        return None
