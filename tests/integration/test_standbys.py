"""Whoever stands by knows what its leader knows, and neither writes nor answers: the real shells of all services, in virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from headrace.pools import TreeOptions
from headrace.wire import subjects
from headrace.wire.codec import decode, encode
from headrace.wire.services import ListServices, ServiceView
from tests.contract.waiting import eventually
from tests.simulation import bus as simulated
from tests.simulation.bus import SimulatedBus, connect_to
from tests.simulation.loop import PROCESS, VirtualLoop, run_virtually
from tests.simulation.world import World, a_pool, a_spec, everything_by_seed

pytestmark = pytest.mark.long

SERVICES = ("admission", "allocator", "fair_share", "integral")
#: All that a process answers while it stands by.
ALLOWED = {subjects.WHO, subjects.user("*", "service.list")}


class Watched:
    """Notes what each process writes, says, asks for and answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[tuple[str, str]] = []
        self.served: list[tuple[str, str]] = []
        self.asked: list[tuple[str, str]] = []
        writes: list[tuple[Any, str]] = [
            *((simulated._KeyValue, name) for name in ("put", "update", "delete", "purge")),
            *((simulated._Log, name) for name in ("append", "forget")),
            (simulated._Records, "add"),
            (SimulatedBus, "publish"),
        ]
        for kind, name in writes:
            self._note(monkeypatch, kind, name, self.written)
        self._note(monkeypatch, SimulatedBus, "serve", self.served)
        self._note(monkeypatch, SimulatedBus, "request", self.asked)

    def _note(self, monkeypatch: pytest.MonkeyPatch, kind: Any, name: str, notes: list[tuple[str, str]]) -> None:
        call = getattr(kind, name)

        def noted(this: Any, what: Any, *args: Any, **given: Any) -> Any:
            notes.append((PROCESS.get(), f"{what}" if name in ("serve", "request") else f"{name} {what!r:.40}"))
            return call(this, what, *args, **given)

        monkeypatch.setattr(kind, name, noted)

    def of(self, notes: list[tuple[str, str]], instance: str) -> list[str]:
        """The notes on the processes of one instance."""
        return [words for process, words in notes if process.partition("#")[0].endswith(f".{instance}")]


async def views(world: World) -> list[ServiceView]:
    async with connect_to(world.server, "anna", subjects.inbox("user", "anna")) as bus:
        answers = await bus.gather(subjects.user("anna", "service.list"), encode(ListServices()), wait_s=0.5)
    return [decode(data, ServiceView) for data in answers]


def in_a_world(course: Any) -> None:
    worlds: list[World] = []

    async def run(loop: VirtualLoop) -> None:
        worlds.append(World(loop))
        await worlds[0].configure([a_pool("research")], TreeOptions())
        await course(worlds[0])

    with everything_by_seed(lambda: worlds[0] if worlds else None, 1):
        run_virtually(1, run)


async def with_standbys(world: World) -> None:
    """A leader and a standby of each service, a host, and an operation that has come to its end."""
    for kind in SERVICES:
        world.start_service(kind, "a")
    await eventually(lambda: len(world.shells) == len(SERVICES))
    for kind in SERVICES:
        world.start_service(kind, "b")
    world.start_host("n1", 2)
    await world.run_operation("operation-1", a_spec("research", 20, ["sleep", "1"]))
    await anyio.sleep(5)


def test_whoever_stands_by_is_at_the_end_of_the_log_and_has_written_and_answered_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch)

    async def course(world: World) -> None:
        await with_standbys(world)
        seen = {(view.role, view.leads): view.entries_behind for view in await views(world)}

        roles = ["admission", "allocator.default", "fair_share.default"]
        assert {key: seen[key] for key in seen if key[0] in roles} == {
            (role, leads): 0 for role in roles for leads in (True, False)
        }
        assert seen["integral.default", False] is None
        assert watched.of(watched.written, "b") == []
        assert set(watched.of(watched.served, "b")) == ALLOWED
        assert watched.of(watched.written, "a")

    in_a_world(course)


def test_a_process_is_seen_while_the_log_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def course(world: World) -> None:
        await with_standbys(world)
        monkeypatch.setattr(simulated._Log, "bounds", lambda _log: anyio.sleep_forever())

        assert sorted((view.role, view.leads, view.entries_behind) for view in await views(world)) == sorted(
            (f"{service}.default" if service != "admission" else service, leads, None)
            for service in SERVICES
            for leads in (False, True)
        )

    in_a_world(course)


def test_whoever_takes_over_asks_for_no_whole_and_serves_what_was_started_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(monkeypatch)

    async def course(world: World) -> None:
        await with_standbys(world)
        watched.asked.clear()
        for kind in SERVICES:
            world.given_up.add(f"{kind}.a")
            world.kill(f"{kind}.a")
        await world.run_operation("operation-2", a_spec("research", 4, ["sleep", "1"]))

        assert [view.leads for view in await views(world)] == [True] * len(SERVICES)
        assert [words for words in watched.of(watched.asked, "b") if words == subjects.OPERATIONS_WHOLE] == []
        assert world.truth.violations == []

    in_a_world(course)


def test_whoever_stands_by_and_cannot_read_is_behind_and_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def course(world: World) -> None:
        await with_standbys(world)
        standby = world.process("admission.b")
        world.freeze("admission.b")
        await world.run_operation("operation-2", a_spec("research", 4, ["sleep", "1"]))
        world.thaw("admission.b")
        assert any(view.entries_behind for view in await views(world) if view.role == "admission")
        await anyio.sleep(5)

        assert world.process("admission.b") == standby
        assert {view.entries_behind for view in await views(world) if view.role == "admission"} == {0}

    in_a_world(course)
